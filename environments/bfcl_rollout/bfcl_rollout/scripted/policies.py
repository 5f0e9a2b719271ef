"""The registry of embedded model policies.

A policy is a pure function from the body of a chat completions request to a `Reply`: the same request always
gets the same answer, whatever came before. Packages add policies with `register`, or with an entry point in
the group `bfcl_rollout.policies` that names such a function.

A model name is `scripted/NAME` or `NAME`, with options behind it: `recall:fault-500:after-3` or, the same,
`recall?fault=500&after=3`. The first form leaves nothing in the name that BFCL could not make a Python
identifier of.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from bfcl_rollout.scripted.faults import Behaviour
from bfcl_rollout.scripted.hostile import hostile
from bfcl_rollout.scripted.misbehave import misbehave
from bfcl_rollout.scripted.recall import recall
from bfcl_rollout.scripted.reply import Body, Reply

Policy = Callable[[Body], Reply]

PREFIX = "scripted/"
ENTRY_POINTS = "bfcl_rollout.policies"

_SEPARATOR = r"[?&:]"
_OPTION = re.compile(r"([a-z]+)[=-]([A-Za-z0-9]+)")


class ModelNameError(ValueError):
    """A model name that says nothing sensible. The message is one line for the user."""


class UnknownPolicyError(ModelNameError):
    """No policy has this name. The message lists those that exist."""


class ModelName(NamedTuple):
    """A model name taken apart."""

    policy: str
    behaviour: Behaviour


def text(body: Body) -> Reply:
    """Always the same text, never a call."""
    return Reply("I am a scripted model and this is all I ever say.")


POLICIES: dict[str, Policy] = {
    "hostile": hostile,
    "misbehave": misbehave,
    "recall": recall,
    "text": text,
}


def register(name: str, policy: Policy) -> None:
    """Add a policy under `name` (letters, digits, underscores and hyphens).

    Raises:
        ValueError: The name is taken or not well-formed.
    """
    if not re.fullmatch(r"[\w-]+", name):
        raise ValueError(f"policy name {name!r} may hold only letters, digits, underscores and hyphens")
    if name in POLICIES:
        raise ValueError(f"a policy named {name!r} exists already")
    POLICIES[name] = policy


def names() -> list[str]:
    """The names of all policies, without loading those of other packages."""
    return sorted({*POLICIES, *_installed()})


def is_ours(model: str) -> bool:
    """Whether a model name means one of the policies, rather than some other model."""
    return model.startswith(PREFIX) or re.split(_SEPARATOR, model)[0] in names()


def resolve(model: str) -> Policy:
    """The policy behind a model name.

    Raises:
        UnknownPolicyError: There is none.
        ModelNameError: The options behind the name are not well-formed.
    """
    name = parse_model(model).policy
    if name not in POLICIES and (entry_point := _installed().get(name)):
        # Loaded only when asked for: the package behind it may be slow to import.
        register(name, entry_point.load())
    try:
        return POLICIES[name]
    except KeyError:
        known = ", ".join(PREFIX + each for each in names())
        raise UnknownPolicyError(f"no scripted policy named {name!r}; there are {known}") from None


def parse_model(model: str) -> ModelName:
    """Split a model name into the policy's name and what its options ask for.

    Raises:
        ModelNameError: An option is not of the form `key=value` or `key-value`, or asks for something unknown.
    """
    name, *parts = re.split(_SEPARATOR, model.removeprefix(PREFIX))
    options = {}
    for part in parts:
        match = _OPTION.fullmatch(part)
        if match is None:
            raise ModelNameError(f"{part!r} in the model name {model!r} is not an option like fault=500")
        options[match[1]] = match[2]
    try:
        return ModelName(name, Behaviour.parse(options))
    except ValueError as error:
        raise ModelNameError(f"model name {model!r}: {error}") from None


@cache
def _installed() -> dict[str, EntryPoint]:
    return {each.name: each for each in entry_points(group=ENTRY_POINTS)}

"""Views: the named choice of what a model sees of a case.

A view is a small set of policies with one hash. Two results belong together only if their hashes are equal; nothing
here or in the reports ever merges different views. What comes out of a view is a `Shown`: state, question and
options. It holds no label, no reference, no stratum and, unless the view asks for it, no schema, and it is all that
the prompt builder (`bfcl_routing.forms`) ever gets.
"""

from __future__ import annotations

import random
import re
import string
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bfcl_routing.cards import CardPolicy, json_schema, render_card
from bfcl_routing.cases import META_IDS, Case
from bfcl_routing.hashing import sha256_json, sha256_text
from bfcl_routing.manifest import Suite
from bfcl_routing.wording import NEUTRAL, Wording, WordingName

FormName = Literal["id_text", "json_choice", "tool_call", "typed_question", "letters_logprob", "distribution"]
IdPolicy = Literal["native", "opaque", "letters"]
MetaPolicy = Literal["three", "neutral", "generic", "none"]
Sampler = Literal["random", "nearest"]
Kind = Literal["meta", "tool"]

GENERIC_ID = "no_function"
MAX_LETTERS = 20
"""OpenAI-compatible endpoints return at most 20 alternatives per token, so more letters could not be read."""
VIEW_VERSION = 1
"""Raised when the same policies come to show something else."""

_ORDER = re.compile(r"frozen|reversed|meta_last|rotations|rotate:\d+|shuffle:\d+")


class View(BaseModel):
    """The policies that decide what a model sees. Fields left alone give the default view of the wording."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    suite: Suite = "v1"
    wording: WordingName = "neutral"
    form: FormName = "id_text"
    card: CardPolicy = "suite"
    ids: IdPolicy = "native"
    meta: MetaPolicy = "three"
    order: str = "frozen"
    catalogue_k: int | None = Field(None, ge=2)
    sampler: Sampler = "random"
    seed: int = 0
    gold_removed: bool = False

    @field_validator("order")
    @classmethod
    def _known_order(cls, value: str) -> str:
        if not _ORDER.fullmatch(value):
            raise ValueError("order is frozen, reversed, meta_last, rotations, rotate:N or shuffle:SEED")
        return value

    @model_validator(mode="after")
    def _shows_something(self) -> View:
        if self.card == "name" and self.ids != "native":
            raise ValueError("card=name shows nothing but the functions' names, so ids must be native")
        if self.form == "letters_logprob" and (self.catalogue_k or 0) + len(META_IDS) > MAX_LETTERS:
            raise ValueError(f"letters_logprob can tell {MAX_LETTERS} options apart; lower catalogue_k")
        return self

    @property
    def card_policy(self) -> CardPolicy:
        """The card policy with `suite` resolved."""
        if self.card != "suite":
            return self.card
        return "short120" if self.suite == "v1" else "full"

    @property
    def name(self) -> str:
        """Readable name: suite, wording, form, then whatever differs from the defaults."""
        parts: list[str] = [self.suite, self.wording, self.form]
        changed = self.model_dump(exclude_defaults=True, exclude={"suite", "wording", "form"})
        parts += [f"{key}={value}" for key, value in changed.items()]
        return "/".join(parts)

    def sha256(self, wording: Wording) -> str:
        """Identity of the view: its policies, its wording's text, and the version of this code."""
        policies = {**self.model_dump(mode="json"), "card": self.card_policy}
        if self.catalogue_k is None:
            policies = {k: v for k, v in policies.items() if k not in ("sampler", "seed")}
        return sha256_json({"version": VIEW_VERSION, **policies, "text": wording.sha256()})


class Option(NamedTuple):
    """One action as the model sees it."""

    id: str
    """The id shown: the function's name, or a neutral id."""
    card: str
    kind: Kind
    parameters: dict[str, Any] | None
    """JSON Schema of the parameters, in `schema` views only."""


class Shown(NamedTuple):
    """All that a model may see of a case."""

    state: str
    instruction: str
    options: tuple[Option, ...]


class Play(NamedTuple):
    """A case under a view: what is shown, and which action each shown option stands for."""

    shown: Shown
    actions: tuple[str, ...]
    """Native action id of each option: a function's name or a no-function action."""
    gold: tuple[str, ...]
    """Right functions among the actions."""
    rotation: int


def show(case: Case, view: View, wording: Wording, rotation: int = 0) -> Play:
    """A case as a view shows it.

    Args:
        case: the case, its functions already those to offer (`bfcl_routing.catalogue` changes them).
        view: the policies.
        wording: the constant strings.
        rotation: by how many places the function block is rotated (`order="rotations"`).

    Raises:
        ValueError: nothing is left to offer.
    """
    policy, n_tools = view.card_policy, len(case.functions)
    tools = [
        Option(
            str(f["name"]),
            render_card(f, policy, n_tools),
            "tool",
            json_schema(f.get("parameters") or {}) if policy == "schema" else None,
        )
        for f in case.functions
    ]
    metas = [Option(name, card, "meta", None) for name, card in meta_cards(view.meta, wording).items()]
    if not metas and not tools:
        raise ValueError(f"case {case.id}: the view offers nothing")
    options = [*metas, *tools]
    actions = tuple(o.id for o in options)
    # Before the order policy: a neutral id stays with its action however the options are ordered.
    options = [o._replace(id=i) for o, i in zip(options, shown_ids(options, view.ids), strict=True)]
    order = option_order(len(metas), len(tools), view.order, rotation, case.id)
    gold = tuple(name for name in case.gold if name in actions)
    return Play(
        Shown(wording.state(case.request), wording.instruction, tuple(options[i] for i in order)),
        tuple(actions[i] for i in order),
        gold,
        rotation,
    )


def meta_cards(policy: MetaPolicy, wording: Wording) -> dict[str, str]:
    """Cards of the no-function actions a view offers, by action id, in order."""
    if policy == "none":
        return {}
    if policy == "generic":
        return {GENERIC_ID: wording.generic}
    return NEUTRAL.meta if policy == "neutral" else wording.meta


def is_no_function(action: str) -> bool:
    """Whether an action is one of the no-function actions."""
    return action in META_IDS or action == GENERIC_ID


def shown_ids(options: list[Option], policy: IdPolicy) -> list[str]:
    """The id each option is shown under, options in frozen order."""
    if policy == "native":
        return [o.id for o in options]
    if policy == "letters":
        return [letter_code(i) for i in range(len(options))]
    n_metas = sum(o.kind == "meta" for o in options)
    return [o.id if o.kind == "meta" else f"action_{i - n_metas + 1}" for i, o in enumerate(options)]


def letter_code(index: int) -> str:
    """`A` ... `Z`, then `AA`, `AB`, ..."""
    letters = string.ascii_uppercase
    prefix = "" if index < len(letters) else letter_code(index // len(letters) - 1)
    return prefix + letters[index % len(letters)]


def option_order(n_metas: int, n_tools: int, policy: str, rotation: int, case_id: str) -> list[int]:
    """Positions of the options, given in frozen order (no-function actions first), as the policy puts them.

    A rotation moves the function block only; `reversed` reverses everything; a shuffle depends on the case, so that
    one seed does not put every case's options in the same places.
    """
    metas, tools = list(range(n_metas)), list(range(n_metas, n_metas + n_tools))
    kind, _, number = policy.partition(":")
    if kind == "reversed":
        return [*metas, *tools][::-1]
    if kind == "meta_last":
        return [*tools, *metas]
    if kind == "shuffle":
        order = [*metas, *tools]
        random.Random(sha256_text(f"{number}\0{case_id}")).shuffle(order)
        return order
    turn = (int(number) if kind == "rotate" else rotation) % max(1, n_tools)
    return [*metas, *tools[turn:], *tools[:turn]]


def visible_sha256(shown: Shown) -> str:
    """Hash of what is shown, as the original pilots' manifests define it."""
    options = [{"id": o.id, "description": o.card, "kind": o.kind} for o in shown.options]
    return sha256_json({"state": shown.state, "instruction": shown.instruction, "options": options})

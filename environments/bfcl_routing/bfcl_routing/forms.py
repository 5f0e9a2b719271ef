"""Prompt forms: how a shown case becomes one request, and which answer stands for which option.

The builder sees a `Shown` and nothing else of the case. Each form returns, next to the prompt, the code of each
option: what the model has to write, call or put its probability on to choose it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bfcl_routing.view import MAX_LETTERS, FormName, Option, Shown, letter_code

_MAX_TOOL_NAME = 64


class Prompt(NamedTuple):
    """One request."""

    system: str
    user: str
    request: dict[str, Any]
    """Further fields of the request body."""
    codes: tuple[str, ...]
    """What stands for each option in the answer, in the order shown."""


def build(form: FormName, shown: Shown) -> Prompt:
    """The request of a form for a shown case.

    Raises:
        ValueError: the form cannot express the options (more than 20 letters).
    """
    return _BUILDERS[form](shown)


def option_lines(options: Sequence[Option], codes: Sequence[str] | None = None) -> str:
    """Options as text, one a line: `- id: card`, or `A. id: card` with codes."""
    marks = ["-"] * len(options) if codes is None else [f"{code}." for code in codes]
    return "\n".join(
        f"{mark} {o.id}: {o.card}" if o.card else f"{mark} {o.id}" for mark, o in zip(marks, options, strict=True)
    )


def _text(shown: Shown, codes: Sequence[str] | None = None) -> str:
    return f"{shown.state}\n\n{shown.instruction}\n\nActions:\n{option_lines(shown.options, codes)}"


_TASK = (
    "You choose the first step of an assistant. You are given the situation and a list of actions, one a line, "
    "each with its id and what it is for."
)


def _id_text(shown: Shown) -> Prompt:
    system = f"{_TASK} Answer with the id of exactly one action, written as in the list, and nothing else."
    return Prompt(system, _text(shown), {}, tuple(o.id for o in shown.options))


def _json_choice(shown: Shown) -> Prompt:
    codes = [o.id for o in shown.options]
    schema = {
        "type": "object",
        "properties": {"choice": {"type": "string", "enum": codes}},
        "required": ["choice"],
        "additionalProperties": False,
    }
    system = f'{_TASK} Answer with a JSON object {{"choice": ID}} that names exactly one action by its id.'
    response_format = {"type": "json_schema", "json_schema": {"name": "choice", "strict": True, "schema": schema}}
    return Prompt(system, _text(shown), {"response_format": response_format}, tuple(codes))


def _distribution(shown: Shown) -> Prompt:
    system = (
        f"{_TASK} Answer with a JSON object that gives every id in the list the probability that its action is the "
        "right one, and nothing else. The probabilities add up to 1."
    )
    return Prompt(system, _text(shown), {}, tuple(o.id for o in shown.options))


def _letters_logprob(shown: Shown) -> Prompt:
    if len(shown.options) > MAX_LETTERS:
        raise ValueError(f"letters_logprob can tell {MAX_LETTERS} options apart, not {len(shown.options)}")
    codes = tuple(letter_code(i) for i in range(len(shown.options)))
    request = {"max_tokens": 1, "logprobs": True, "top_logprobs": MAX_LETTERS}
    return Prompt(f"{_TASK} Answer with the letter of exactly one action.", _text(shown, codes), request, codes)


def _typed_question(shown: Shown) -> Prompt:
    """The request of a decision server, carried as the JSON text of one user message."""
    criteria = {o.id: o.card or None for o in shown.options}
    question = {"type": "choice", "instructions": shown.instruction, "criteria": criteria}
    user = json.dumps({"state": shown.state, "questions": {"next": question}}, ensure_ascii=False)
    system = (
        "You answer typed questions about a state. For the choice question `next`, reply with the JSON object "
        '{"next": {"choice": LABEL, "probabilities": {LABEL: NUMBER, ...}}}. Every label of the criteria has a '
        "probability, and they add up to 1."
    )
    return Prompt(system, user, {}, tuple(criteria))


def _tool_call(shown: Shown) -> Prompt:
    codes = tool_names([o.id for o in shown.options])
    tools = [
        {
            "type": "function",
            "function": {
                "name": code,
                "description": o.card,
                "parameters": o.parameters or {"type": "object", "properties": {}},
            },
        }
        for code, o in zip(codes, shown.options, strict=True)
    ]
    if any(o.kind == "meta" for o in shown.options):
        system = "You choose the first step of an assistant. Take it by calling exactly one function."
    else:
        system = (
            "You choose the first step of an assistant. If one of the functions does what is asked, call it. "
            "Otherwise answer without calling any."
        )
    return Prompt(system, f"{shown.state}\n\n{shown.instruction}", {"tools": tools}, tuple(codes))


def tool_names(ids: Sequence[str]) -> list[str]:
    """Ids as names that tool APIs accept: letters, digits, `_` and `-`, at most 64 characters, all different.

    Every other character becomes `_`; a name already taken gets a number. The list position leads back to the id.
    """
    names: list[str] = []
    for i in ids:
        stem = re.sub(r"[^A-Za-z0-9_-]", "_", i)[:_MAX_TOOL_NAME]
        name, number = stem, 2
        while name in names:
            suffix = f"_{number}"
            name, number = stem[: _MAX_TOOL_NAME - len(suffix)] + suffix, number + 1
        names.append(name)
    return names


_BUILDERS: dict[FormName, Callable[[Shown], Prompt]] = {
    "id_text": _id_text,
    "json_choice": _json_choice,
    "tool_call": _tool_call,
    "typed_question": _typed_question,
    "letters_logprob": _letters_logprob,
    "distribution": _distribution,
}

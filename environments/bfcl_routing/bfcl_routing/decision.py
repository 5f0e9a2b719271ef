"""What a reply decides. A pure function of the reply, strict about form.

Whatever cannot be read as one offered option is an invalid output, with a reason; it is a wrong answer, never an
error. A lenient reading (one offered id somewhere in the text) is kept beside it as a diagnostic.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from bfcl_routing.view import FormName

Reason = Literal["no_reply", "empty", "not_exact", "several", "unknown", "not_json", "bad_probabilities", "no_logprobs"]
"""Why an output is invalid. `not_exact`: exactly one offered id, but not alone. `several`: more than one. `unknown`:
none of the offered. `no_logprobs`: the endpoint gave none, or not for every letter."""

NO_CALL = "(no call)"
"""Action of a tool-call reply without a call. It is a no-function action, but none in particular."""
SUM_TOLERANCE = 0.02

_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’"}
_FENCE = re.compile(r"```[\w-]*\n?(.*?)\n?```", re.DOTALL)


class Decision(BaseModel):
    """One normalised output."""

    model_config = ConfigDict(frozen=True)

    action: str | None
    """Native id of the chosen action, `NO_CALL`, or None if the output is invalid."""
    invalid: Reason | None = None
    distribution: dict[str, float] | None = None
    """Probability of each offered action, by native id; only in forms that ask for it."""
    calls: int = 0
    """Function calls proposed."""
    lenient: str | None = None
    """Native id of the one offered id found in the text (diagnostic)."""
    text: str = ""


def decide(form: FormName, codes: Sequence[str], actions: Sequence[str], choice: dict[str, Any] | None) -> Decision:
    """The decision in a reply.

    Args:
        form: prompt form of the request.
        codes: what stands for each option, in the order shown.
        actions: native action id of each option.
        choice: the reply's choice (`message`, and `logprobs` where asked for); None if there is no reply.
    """
    if choice is None:
        return Decision(action=None, invalid="no_reply")
    message = choice.get("message") or {}
    text = message_text(message)
    by_code = dict(zip(codes, actions, strict=True))
    if form == "tool_call":
        return _from_calls(by_code, message, text)
    if form == "letters_logprob":
        return _from_logprobs(by_code, choice, text)
    lenient = _lenient(by_code, text)
    found = lenient[0] if len(lenient) == 1 else None
    if not text.strip():
        return Decision(action=None, invalid="empty", text=text)
    if form == "id_text":
        action = by_code.get(unwrap(text))
        reason: Reason = "not_exact" if len(lenient) == 1 else "several" if lenient else "unknown"
        return Decision(action=action, invalid=None if action else reason, lenient=found, text=text)
    value = parse_object(text)
    if value is None:
        return Decision(action=None, invalid="not_json", lenient=found, text=text)
    if form == "json_choice":
        return _from_choice(by_code, value, found, text)
    return _from_probabilities(form, by_code, value, found, text)


def message_text(message: dict[str, Any]) -> str:
    """The text of a reply message; parts of other kinds are left out."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [p.get("text") for p in content if isinstance(p, dict)]
        return "".join(p for p in parts if isinstance(p, str))
    return content if isinstance(content, str) else ""


def unwrap(text: str) -> str:
    """Text without outer whitespace and without at most one code fence or pair of quotes around all of it."""
    text = text.strip()
    if fence := _FENCE.fullmatch(text):
        return fence[1].strip()
    if len(text) >= 2 and _QUOTES.get(text[0]) == text[-1]:
        return text[1:-1].strip()
    return text


def parse_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text is, code fence allowed; None if it is none."""
    text = text.strip()
    if fence := _FENCE.fullmatch(text):
        text = fence[1]
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lenient(by_code: dict[str, str], text: str) -> list[str]:
    """Actions whose code stands in the text as a whole token. Codes may contain each other, so no substrings."""
    return [
        action for code, action in by_code.items() if re.search(rf"(?<![\w.:-]){re.escape(code)}(?![\w:-]|\.\w)", text)
    ]


def _from_choice(by_code: dict[str, str], value: dict[str, Any], lenient: str | None, text: str) -> Decision:
    code = value.get("choice")
    action = by_code.get(code) if isinstance(code, str) and len(value) == 1 else None
    return Decision(action=action, invalid=None if action else "unknown", lenient=lenient, text=text)


def _from_probabilities(
    form: FormName, by_code: dict[str, str], value: dict[str, Any], lenient: str | None, text: str
) -> Decision:
    chosen: Any = None
    raw: Any = value
    if form == "typed_question":
        answer = value.get("next")
        answer = answer if isinstance(answer, dict) else {}
        chosen, raw = answer.get("choice"), answer.get("probabilities")
        if not isinstance(chosen, str) or chosen not in by_code:
            return Decision(action=None, invalid="unknown", lenient=lenient, text=text)
    probabilities = read_probabilities(raw, list(by_code))
    if probabilities is None:
        return Decision(action=None, invalid="bad_probabilities", lenient=lenient, text=text)
    # Of equal probabilities the first shown wins: max() keeps the first.
    code = chosen if chosen is not None else max(probabilities, key=lambda c: probabilities[c])
    distribution = {by_code[c]: p for c, p in probabilities.items()}
    return Decision(action=by_code[code], distribution=distribution, lenient=lenient, text=text)


def read_probabilities(raw: Any, codes: Sequence[str]) -> dict[str, float] | None:
    """Probabilities in the order of `codes`, or None unless they cover exactly these codes, are finite and not
    negative, and add up to 1 within `SUM_TOLERANCE`. They are then scaled to add up to 1."""
    if not isinstance(raw, dict) or set(raw) != set(codes):
        return None
    values: dict[str, float] = {}
    for code in codes:
        number = raw[code]
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number <= 1 + SUM_TOLERANCE:
            return None
        values[code] = float(number)
    total = math.fsum(values.values())
    if not abs(total - 1) <= SUM_TOLERANCE:
        return None
    return {code: p / total for code, p in values.items()}


def _from_calls(by_code: dict[str, str], message: dict[str, Any], text: str) -> Decision:
    raw = message.get("tool_calls")
    calls = [c for c in raw if isinstance(c, dict)] if isinstance(raw, list) else []
    if not calls:
        return Decision(action=NO_CALL, text=text)
    function = calls[0].get("function")
    name = function.get("name") if isinstance(function, dict) else None
    action = by_code.get(name) if isinstance(name, str) else None
    return Decision(action=action, invalid=None if action else "unknown", calls=len(calls), text=text)


def _from_logprobs(by_code: dict[str, str], choice: dict[str, Any], text: str) -> Decision:
    """Softmax over the letters' log probabilities at the first token, spellings of one letter added up."""
    try:
        alternatives = choice["logprobs"]["content"][0]["top_logprobs"]
        pairs = [(str(a["token"]).strip(), float(a["logprob"])) for a in alternatives]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return Decision(action=None, invalid="no_logprobs", text=text)
    mass: dict[str, float] = {}
    for token, logprob in pairs:
        if token in by_code and logprob <= 0:
            mass[token] = mass.get(token, 0.0) + math.exp(logprob)
    total = math.fsum(mass.values())
    if len(mass) < len(by_code) or not total > 0:
        return Decision(action=None, invalid="no_logprobs", text=text)
    distribution = {action: mass[code] / total for code, action in by_code.items()}
    best = max(distribution, key=lambda action: distribution[action])
    return Decision(action=best, distribution=distribution, text=text)

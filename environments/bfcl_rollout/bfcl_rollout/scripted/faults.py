"""Ways in which an endpoint can fail, asked for in the model name.

`recall:fault-stall:after-2` answers as `recall` does until a request holds two assistant messages, then
stalls. A fault is a function of the request alone, so a retry of the same request meets the same fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from bfcl_rollout.scripted.reply import Body

Kind = Literal["status", "stall", "drop", "malformed", "truncated", "huge", "empty", "nousage"]
"""What goes wrong, in this order: an HTTP error status; no answer at all; the connection cut before an
answer; a body that is not JSON; a body shorter than announced; a text of many megabytes; no choices; no
usage.
"""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_HUGE = 16 * 2**20
_OPTIONS = {"fault", "after", "delay", "size"}


@dataclass(frozen=True)
class Fault:
    """What to do wrong with one request."""

    kind: Kind
    status: int = 200
    size: int = _HUGE
    """Characters of a `huge` text."""


def find_fault(options: Mapping[str, str], body: Body) -> Fault | None:
    """The fault that the options of a model name ask for in this request, if any.

    Args:
        options: `fault` (a kind, or a status from 400 to 599), `after` (number of assistant messages in the
            request from which on it fails; default 0) and `size`.

    Raises:
        ValueError: An option is unknown or has no such value.
    """
    if unknown := options.keys() - _OPTIONS:
        raise ValueError(f"unknown option {min(unknown)!r}; there are {', '.join(sorted(_OPTIONS))}")
    if "fault" not in options:
        return None
    after = _number(options, "after", 0)
    if sum(message.get("role") == "assistant" for message in body["messages"]) < after:
        return None
    kind = options["fault"]
    if kind.isdigit() and 400 <= int(kind) <= 599:
        return Fault("status", int(kind))
    for known in _KINDS:
        if kind == known != "status":
            return Fault(known, size=_number(options, "size", _HUGE))
    known_kinds = ", ".join(each for each in _KINDS if each != "status")
    raise ValueError(f"unknown fault {kind!r}; there are {known_kinds} and any status from 400 to 599")


def find_delay(options: Mapping[str, str]) -> float:
    """Seconds to wait before the answer: the option `delay`, in milliseconds.

    Raises:
        ValueError: The option is not a whole number.
    """
    return _number(options, "delay", 0) / 1000


def _number(options: Mapping[str, str], key: str, default: int) -> int:
    value = options.get(key)
    if value is None:
        return default
    if not value.isdecimal():
        raise ValueError(f"option {key!r} must be a whole number, not {value!r}")
    return int(value)

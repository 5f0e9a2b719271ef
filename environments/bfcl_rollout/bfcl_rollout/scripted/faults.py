"""Ways in which an endpoint can fail, asked for in the model name.

`recall:fault-stall:after-2` answers as `recall` does until a request holds two assistant messages, then stalls. A fault
is a function of the request alone, so a retry of the same request meets the same fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from bfcl_rollout.scripted.reply import Body

Kind = Literal["status", "stall", "drop", "malformed", "truncated", "huge", "empty", "nousage"]
"""What goes wrong, in this order: an HTTP error status; no answer at all; the connection cut before an answer; a
body that is not JSON; a body shorter than announced; a text of many megabytes; no choices; no usage.
"""

_KINDS: tuple[Kind, ...] = get_args(Kind)
_HUGE = 16 * 2**20
_OPTIONS = {"fault", "after", "delay", "size"}


@dataclass(frozen=True)
class Fault:
    """What to do wrong with a request."""

    kind: Kind
    status: int = 200
    size: int = _HUGE
    """Characters of a `huge` text."""


@dataclass(frozen=True)
class Behaviour:
    """How the endpoint treats the requests of one model name."""

    fault: Fault | None = None
    after: int = 0
    """Assistant messages that a request must hold to be failed."""
    delay_s: float = 0.0
    """Seconds to wait before each answer."""

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> Behaviour:
        """The behaviour that the options of a model name ask for.

        Args:
            options: `fault` (a kind, or a status from 400 to 599), `after`, `delay` (milliseconds), `size`.

        Raises:
            ValueError: An option is unknown or has no such value.
        """
        if unknown := options.keys() - _OPTIONS:
            raise ValueError(f"unknown option {min(unknown)!r}; there are {', '.join(sorted(_OPTIONS))}")
        size = _number(options, "size", _HUGE)
        fault = _fault(options["fault"], size) if "fault" in options else None
        return cls(fault, _number(options, "after", 0), _number(options, "delay", 0) / 1000)

    def fault_for(self, body: Body) -> Fault | None:
        """The fault that this request meets, if any."""
        said = sum(message.get("role") == "assistant" for message in body["messages"])
        return self.fault if said >= self.after else None


def _fault(name: str, size: int) -> Fault:
    if name.isdecimal() and 400 <= int(name) <= 599:
        return Fault("status", int(name))
    for kind in _KINDS:
        if name == kind != "status":
            return Fault(kind, size=size)
    kinds = ", ".join(kind for kind in _KINDS if kind != "status")
    raise ValueError(f"unknown fault {name!r}; there are {kinds} and any status from 400 to 599")


def _number(options: Mapping[str, str], key: str, default: int) -> int:
    value = options.get(key)
    if value is None:
        return default
    if not value.isdecimal():
        raise ValueError(f"option {key!r} must be a whole number, not {value!r}")
    return int(value)

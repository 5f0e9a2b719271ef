"""Protocols other than BFCL's own loop, played in a worker by the packages that define them.

A package names its player in the entry point group `bfcl_rollout.protocols`. Players are imported in the zygote: after
the fork a worker can load no more code. They must import neither verifiers nor anything that starts a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

from bfcl_rollout.records import Failure, RolloutRecord, RolloutSpec, Versions

GROUP = "bfcl_rollout.protocols"

Player = Callable[[RolloutSpec, dict[str, Any], Any, Versions], RolloutRecord | Failure]
"""`player(spec, entry, handler, versions)`: play a private copy of an official entry with an aimed handler."""

_players: dict[str, Player] = {}


def load() -> None:
    """Import every installed player."""
    _players.update({point.name: point.load() for point in entry_points(group=GROUP)})


def player(name: str) -> Player:
    """The player of a protocol.

    Raises:
        LookupError: no installed package plays it.
    """
    try:
        return _players[name]
    except KeyError:
        known = ", ".join(["official", *sorted(_players)])
        raise LookupError(f"no protocol {name!r} is installed; there are {known}") from None

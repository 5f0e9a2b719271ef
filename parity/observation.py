"""What one side did: for each rollout its requests and the facts that a category compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from parity.exchange import Body, body_digests, short_digest

Facts = dict[str, Any]
"""JSON values by name, e.g. `snapshot`, `calls`, `verdict`. Which names there are is the category's business."""


@dataclass
class Rollout:
    """One rollout of one side."""

    requests: list[Body] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    failure: str | None = None
    """Why there is no result."""


@dataclass
class Observation:
    """One side's run of one category."""

    rollouts: dict[str, Rollout]
    """By test id."""
    stray: list[Body] = field(default_factory=list)
    """Requests that belong to no rollout."""


def digested(rollout: Rollout) -> Rollout:
    """A rollout with every message, field and fact replaced by a digest: what a recording holds of it."""
    return Rollout(
        requests=[body_digests(body) for body in rollout.requests],
        facts={name: _digested_fact(value) for name, value in rollout.facts.items()},
        failure=rollout.failure,
    )


def _digested_fact(value: Any) -> Any:
    """Fields of an object one by one, with what is yes, no or nothing left readable."""
    if isinstance(value, dict):
        return {name: _digested_fact(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool) else short_digest(value)


def to_json(rollouts: Mapping[str, Rollout]) -> dict[str, Any]:
    """Digested rollouts as JSON, for a recording.

    Messages are stored once: each request after the first names how many it shares with the one before.
    """
    return {test_id: _rollout_json(digested(rollout)) for test_id, rollout in sorted(rollouts.items())}


def from_json(stored: Mapping[str, Any]) -> dict[str, Rollout]:
    """The digested rollouts that `to_json` stored."""
    rollouts = {}
    for test_id, each in stored.items():
        requests: list[Body] = []
        for line in each["requests"]:
            before = requests[-1]["messages"][: line["shared"]] if requests else []
            requests.append({**line["fields"], "messages": before + line["messages"]})
        requests = [{name: body[name] for name in sorted(body)} for body in requests]
        rollouts[test_id] = Rollout(requests, each["facts"], each["failure"])
    return rollouts


def _rollout_json(rollout: Rollout) -> dict[str, Any]:
    lines = []
    before: list[str] = []
    for body in rollout.requests:
        fields = dict(body)
        messages = fields.pop("messages")
        shared = _shared(before, messages)
        lines.append({"shared": shared, "messages": messages[shared:], "fields": fields})
        before = messages
    return {"requests": lines, "facts": rollout.facts, "failure": rollout.failure}


def _shared(before: list[str], now: list[str]) -> int:
    for index, (old, new) in enumerate(zip(before, now, strict=False)):
        if old != new:
            return index
    return min(len(before), len(now))

"""From played stages to the content of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from bfcl_rollout import official

from parity import compare
from parity.categories import CATEGORIES
from parity.compare import Comparison, Count
from parity.environment import ENCODER_SHA256
from parity.observation import Observation, Rollout
from parity.stages import Stage

OFFICIAL, AGAIN, OURS = "official", "official-again", "ours"
"""Names of the sides, and of their folders."""

Played = dict[str, dict[str, Stage]]
"""Stages by category and side."""


def equality(played: Played, recording: str | None = None) -> dict[str, Any]:
    """Whether both sides did the same, with counts and every mismatch.

    Args:
        recording: digest of the recording that was replayed.
    """
    comparisons = _comparisons(played)
    equal = bool(comparisons) and all(comparison.equal for comparison in comparisons.values())
    wrong = sum(len(comparison.mismatches) for comparison in comparisons.values())
    return {
        "equal": equal,
        "conclusion": "Everything compared is identical." if equal else f"NOT IDENTICAL: {wrong} mismatches.",
        **_content(played, comparisons),
        "hashes": _hashes(played, recording),
    }


def agreement(played: Played) -> dict[str, Any]:
    """How far two official runs and ours agree on verdicts, for a model that does not repeat itself.

    `equal` says that every rollout has a result and that the first requests are equal in all that does not depend on
    the model: every field but the messages.
    """
    comparisons = _comparisons(played)
    fixed = _sum(_fields_equal(found[OFFICIAL].observation, found[OURS].observation) for found in played.values())
    complete = all(
        rollout.requests and not rollout.failure
        for found in played.values()
        for stage in found.values()
        for rollout in stage.observation.rollouts.values()
    )
    pairs = {
        f"{one} and {other}": dataclasses.asdict(
            _sum(compare.agreement(each[one].observation, each[other].observation) for each in played.values())
        )
        for one, other in ((OFFICIAL, AGAIN), (OFFICIAL, OURS), (AGAIN, OURS))
    }
    return {
        "equal": complete and fixed.equal == fixed.total,
        "conclusion": (
            f"{'All rollouts have a result' if complete else 'ROLLOUTS WITHOUT A RESULT'}; the fields of the first "
            f"requests that do not depend on the model are equal in {fixed.equal} of {fixed.total} rollouts."
        ),
        "agreement": pairs,
        **_content(played, comparisons),
        "hashes": _hashes(played, None),
    }


def _comparisons(played: Played) -> dict[str, Comparison]:
    return {
        name: compare.compare(found[OFFICIAL].observation, found[OURS].observation, CATEGORIES[name].facts)
        for name, found in played.items()
    }


def _content(played: Played, comparisons: dict[str, Comparison]) -> dict[str, Any]:
    categories = {name: _category(found, comparisons[name]) for name, found in played.items()}
    names = dict.fromkeys(fact for comparison in comparisons.values() for fact in comparison.counts)
    counts = {name: _sum(each.counts[name] for each in comparisons.values() if name in each.counts) for name in names}
    sides = (OFFICIAL, OURS)
    some = next(iter(played.values()))
    return {
        "total": {
            "counts": {name: dataclasses.asdict(count) for name, count in counts.items()},
            "passed": {side: sum(each["passed"][side] for each in categories.values()) for side in sides},
            "wall_s": {side: sum(each["wall_s"][side] for each in categories.values()) for side in sides},
        },
        "categories": categories,
        "versions": {side: some[side].versions for side in sides},
    }


def _category(found: dict[str, Stage], comparison: Comparison) -> dict[str, Any]:
    return {
        "counts": {name: dataclasses.asdict(count) for name, count in comparison.counts.items()},
        "passed": {side: _passed(found[side].observation) for side in (OFFICIAL, OURS)},
        "wall_s": {side: found[side].wall_s for side in (OFFICIAL, OURS)},
        "mismatches": [mismatch._asdict() for mismatch in comparison.mismatches],
    }


def _passed(observation: Observation) -> int | None:
    verdicts = [each.facts["verdict"] for each in observation.rollouts.values() if "verdict" in each.facts]
    return sum(isinstance(verdict, dict) and verdict["valid"] for verdict in verdicts)


def _fields_equal(left: Observation, right: Observation) -> Count:
    count = Count()
    for test_id, one in left.rollouts.items():
        first, second = (_first_fields(rollout) for rollout in (one, right.rollouts[test_id]))
        count.total += 1
        count.equal += bool(first) and not any(compare.differences(first, second))
    return count


def _first_fields(rollout: Rollout) -> dict[str, Any]:
    first = rollout.requests[0] if rollout.requests else {}
    return {name: value for name, value in first.items() if name != "messages"}


def _hashes(played: Played, recording: str | None) -> dict[str, str]:
    hashes = {"code and data of the official package": official.TREE_SHA256}
    for name in played:
        hashes |= official.data_sha256(name)
    if "memory_vector" in played:
        hashes["encoder weights"] = ENCODER_SHA256
    if recording is not None:
        hashes["recording"] = recording
    return hashes


def _sum(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total.equal += count.equal
        total.total += count.total
    return total

"""Two observations compared: what is equal, counted, and what is not, shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from parity.exchange import is_short_digest
from parity.observation import Observation, Rollout

_CONTEXT = 40
"""Characters shown around the first difference of two texts."""
_SHOWN = 200
_MISSING = object()


class Difference(NamedTuple):
    """One place where two JSON values differ."""

    path: str
    """E.g. `messages[3].content[17]`; the last number of a text's path is the first character that differs."""
    left: str
    right: str


class Mismatch(NamedTuple):
    """One difference of a run."""

    test_id: str
    what: str
    """`request` or the name of a fact."""
    where: str
    official: str
    ours: str

    def __str__(self) -> str:
        return (
            f"{self.test_id}: {self.what}{' ' if self.where else ''}{self.where}\n"
            f"  official: {self.official}\n  ours:     {self.ours}"
        )


@dataclass
class Count:
    """How many of a kind are equal."""

    equal: int = 0
    total: int = 0


@dataclass
class Comparison:
    """What came of comparing one category."""

    counts: dict[str, Count] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Whether something was compared and all of it is equal."""
        return (
            not self.mismatches
            and all(count.equal == count.total for count in self.counts.values())
            and any(count.total for count in self.counts.values())
        )


def compare(left: Observation, right: Observation, facts: Callable[[str], Sequence[str]]) -> Comparison:
    """Compare two observations of the same entries, rollout by rollout.

    Args:
        left: the official side.
        right: ours.
        facts: names of the facts that both must state about a test id.

    Raises:
        ValueError: they are not of the same entries.
    """
    if left.rollouts.keys() != right.rollouts.keys():
        raise ValueError("the observations are of different entries")
    comparison = Comparison({"rollouts": Count(), "requests": Count()})
    for test_id, one in left.rollouts.items():
        before = len(comparison.mismatches)
        other = right.rollouts[test_id]
        _compare_requests(test_id, one, other, comparison)
        _compare_facts(test_id, one, other, facts(test_id), comparison)
        rollouts = comparison.counts["rollouts"]
        rollouts.total += 1
        rollouts.equal += len(comparison.mismatches) == before
    for body in left.stray:
        comparison.mismatches.append(Mismatch("-", "request of no rollout", "", _shown(body), "-"))
    for body in right.stray:
        comparison.mismatches.append(Mismatch("-", "request of no rollout", "", "-", _shown(body)))
    return comparison


def _compare_requests(test_id: str, one: Rollout, other: Rollout, comparison: Comparison) -> None:
    count = comparison.counts["requests"]
    found: list[tuple[int, Difference]] = []
    for index, (left, right) in enumerate(itertools.zip_longest(one.requests, other.requests, fillvalue=_MISSING)):
        difference = next(differences(left, right), None)
        count.total += 1
        count.equal += difference is None
        if difference is not None:
            found.append((index, difference))
    if found:
        # Each later request repeats the conversation, and with it the first difference.
        index, (path, left_text, right_text) = found[0]
        where = f"{index + 1} of {len(one.requests)}{', ' if path else ''}{path}"
        if len(found) > 1:
            where += f" (and {len(found) - 1} later requests)"
        comparison.mismatches.append(Mismatch(test_id, "request", where, left_text, right_text))


def _compare_facts(test_id: str, one: Rollout, other: Rollout, names: Sequence[str], comparison: Comparison) -> None:
    absent: list[str] = []
    for name in names:
        count = comparison.counts.setdefault(name, Count())
        count.total += 1
        left, right = one.facts.get(name, _MISSING), other.facts.get(name, _MISSING)
        if left is _MISSING or right is _MISSING:
            absent.append(name)
            continue
        difference = next(differences(left, right), None)
        count.equal += difference is None
        if difference is not None:
            comparison.mismatches.append(Mismatch(test_id, name, *difference))
    if absent:
        # One line, whatever is missing: it has one cause.
        comparison.mismatches.append(
            Mismatch(test_id, ", ".join(absent), "", _stated(absent, one), _stated(absent, other))
        )


def _stated(names: Sequence[str], rollout: Rollout) -> str:
    if all(name in rollout.facts for name in names):
        return "there"
    return f"absent ({rollout.failure})" if rollout.failure else "absent"


def differences(left: Any, right: Any, path: str = "") -> Iterator[Difference]:
    """Every place where two JSON values differ, depth first. Key order and number types count."""
    if type(left) is not type(right):
        yield Difference(path, _shown(left), _shown(right))
    elif isinstance(left, dict):
        yield from _dict_differences(left, right, path)
    elif isinstance(left, list):
        for index, (one, other) in enumerate(itertools.zip_longest(left, right, fillvalue=_MISSING)):
            yield from differences(one, other, f"{path}[{index}]")
    elif isinstance(left, str):
        if left != right and is_short_digest(left) and is_short_digest(right):
            yield Difference(path, left, right)
        elif left != right:
            yield _text_difference(left, right, path)
    elif left != right:
        yield Difference(path, _shown(left), _shown(right))


def _dict_differences(left: Mapping[str, Any], right: Mapping[str, Any], path: str) -> Iterator[Difference]:
    dot = "." if path else ""
    same = True
    for key in [*left, *(key for key in right if key not in left)]:
        for difference in differences(left.get(key, _MISSING), right.get(key, _MISSING), f"{path}{dot}{key}"):
            same = False
            yield difference
    if same and list(left) != list(right):
        yield Difference(f"{path} (order of the keys)", ", ".join(left), ", ".join(right))


def _text_difference(left: str, right: str, path: str) -> Difference:
    at = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return Difference(f"{path}[{at}]", _around(left, at), _around(right, at))


def _around(text: str, at: int) -> str:
    start, end = max(0, at - _CONTEXT), at + _CONTEXT
    return ("…" if start else "") + repr(text[start:end]) + ("…" if end < len(text) else "")


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "absent"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def agreement(left: Observation, right: Observation) -> Count:
    """On how many graded rollouts two observations agree whether they passed. A missing verdict never agrees."""
    count = Count()
    for test_id, one in left.rollouts.items():
        mine, theirs = one.facts.get("verdict"), right.rollouts[test_id].facts.get("verdict")
        if mine or theirs:
            count.total += 1
            count.equal += bool(mine and theirs and mine["valid"] == theirs["valid"])
    return count

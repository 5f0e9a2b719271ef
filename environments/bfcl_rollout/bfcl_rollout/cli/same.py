"""`bfcl-rollout same A B`: whether two runs came to the same verdicts and left the same memories."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bfcl_rollout import jsonl

_SHOWN = 20


class Difference(NamedTuple):
    """One rollout on which two runs disagree."""

    test_id: str
    what: str


def main(argv: list[str]) -> int:
    """Print the counts and the first differences. Returns 0 if there are none, else 1."""
    parser = argparse.ArgumentParser(
        prog="bfcl-rollout same",
        description="Compare two runs rollout by rollout: verdict, error type, graded message, end memory.",
    )
    parser.add_argument("run_a", type=Path)
    parser.add_argument("run_b", type=Path)
    arguments = parser.parse_args(argv)
    first, second = (
        outcomes(jsonl.read(run / "traces.jsonl", unfinished=True)) for run in (arguments.run_a, arguments.run_b)
    )
    differences = compare(first, second)
    rollouts = sum(len(found) for found in first.values())
    verdicts = sum("valid" in outcome for found in first.values() for outcome in found)
    print(f"{rollouts} rollouts, {verdicts} of them graded; {len(differences)} differ")
    for difference in differences[:_SHOWN]:
        print(f"  {difference.test_id}: {difference.what}")
    return 1 if differences else 0


def outcomes(episodes: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """What each finished rollout of a run came to, by test id; several attempts in a fixed order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for episode in episodes:
        for trace in episode["traces"]:
            record = trace["info"].get("bfcl")
            if record is None:
                continue
            outcome = {name: record.get(name) for name in ("graded_message", "memory", "force_quit")}
            if verdict := trace["info"].get("verdict"):
                outcome |= {"valid": verdict["valid"], "error_type": verdict.get("error_type")}
            found[record["test_id"]].append(outcome)
    return {test_id: sorted(attempts, key=repr) for test_id, attempts in found.items()}


def compare(first: dict[str, list[dict[str, Any]]], second: dict[str, list[dict[str, Any]]]) -> list[Difference]:
    """Every test id on which two runs disagree, in order."""
    differences = []
    for test_id in sorted(first.keys() | second.keys()):
        one, other = first.get(test_id, []), second.get(test_id, [])
        if len(one) != len(other):
            differences.append(Difference(test_id, f"{len(one)} rollouts against {len(other)}"))
            continue
        names = {name for a, b in zip(one, other, strict=True) for name in a if a[name] != b.get(name)}
        if names:
            differences.append(Difference(test_id, f"differs in {', '.join(sorted(names))}"))
    return differences

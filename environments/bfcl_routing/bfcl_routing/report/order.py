"""Whether the order of the options matters, told apart from plain instability."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from bfcl_routing.decision import Decision
from bfcl_routing.report.runs import Row
from bfcl_routing.scoring import route_correct


def order_report(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Position effects over cases that were shown in several rotations; None if none was.

    `by_rotation` plays every case under rotation j (modulo its number of functions): the mean and range over j is
    what another arbitrary order might have scored. `flipped` counts cases whose action is not the same in every
    order, `majority` scores the most frequent action (a tie for the first place is wrong), `averaged` the highest
    mean probability where probabilities were given.
    """
    cases: dict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows:
        cases[row.case_id].setdefault(row.rotation, row)
    if not any(len(found) > 1 for found in cases.values()):
        return None
    turns = max(len(found) for found in cases.values())
    by_rotation = [
        float(np.mean([found[sorted(found)[j % len(found)]].correct for found in cases.values()])) for j in range(turns)
    ]
    several = [found for found in cases.values() if len(found) > 1]
    averaged = [a for found in cases.values() if (a := _averaged(list(found.values()))) is not None]
    return {
        "cases": len(cases),
        "cases_in_several_orders": len(several),
        "accuracy_mean": float(np.mean([np.mean([r.correct for r in found.values()]) for found in cases.values()])),
        "by_rotation": by_rotation,
        "accuracy_range": [min(by_rotation), max(by_rotation)],
        "same_action_everywhere": float(np.mean([len({_action(r) for r in f.values()}) == 1 for f in several])),
        "flipped": sum(len({_action(r) for r in f.values()}) > 1 for f in several),
        "majority": float(np.mean([_majority(list(found.values())) for found in cases.values()])),
        "averaged": float(np.mean(averaged)) if len(averaged) == len(cases) else None,
    }


def repeat_report(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Instability under the identical request: tasks played several times, and how many changed their action."""
    tasks: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tasks[row.key].append(row)
    several = [found for found in tasks.values() if len(found) > 1]
    if not several:
        return None
    changed = sum(len({_action(r) for r in found}) > 1 for found in several)
    return {"tasks": len(several), "changed": changed, "share": changed / len(several)}


def by_gold_position(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    """Right answers among positives with several functions, by the right function's place among those shown."""
    found: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        if row.stratum == "multi_tool_call" and (place := row.gold_position) is not None:
            found[place].append(row.correct)
    return {str(place + 1): {"right": sum(values), "n": len(values)} for place, values in sorted(found.items())}


def _action(row: Row) -> str | None:
    return row.decision.action if row.decision else None


def _majority(rows: list[Row]) -> bool:
    ranked = Counter(_action(r) for r in rows).most_common()
    if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
        return False
    return route_correct(Decision(action=ranked[0][0]), rows[0].gold)


def _averaged(rows: list[Row]) -> bool | None:
    given = [r.decision.distribution for r in rows if r.decision and r.decision.distribution]
    if len(given) != len(rows):
        return None
    mean = {action: float(np.mean([p[action] for p in given])) for action in given[0]}
    return route_correct(Decision(action=max(mean, key=lambda action: mean[action])), rows[0].gold)

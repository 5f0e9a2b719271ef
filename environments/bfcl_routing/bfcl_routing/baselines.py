"""What no model at all scores on the very same requests."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

from bfcl_routing import lexical
from bfcl_routing.cards import render_card
from bfcl_routing.cases import load_cases
from bfcl_routing.scoring import declines


class _Scored(NamedTuple):
    stratum: str
    positive: bool
    hit: bool
    """The best matching function is a right one."""
    score: float


@functools.cache
def abstention_threshold() -> float:
    """Word-overlap score below which declining is better, on the training rows (no pilot case is looked at).

    It maximises the mean of the strata's accuracies over all training and development rows; of equal thresholds the
    lowest. Candidates are the halves from 0 to 30.
    """
    rows = []
    for case in (*load_cases("v1", "train"), *load_cases("v1", "dev")):
        pairs = [(str(f["name"]), render_card(f, "full", len(case.functions))) for f in case.functions]
        index, score = lexical.best(case.request, pairs)
        rows.append(_Scored(case.stratum, case.positive, pairs[index][0] in case.gold, score))
    return max((t / 2 for t in range(61)), key=lambda t: (_macro(rows, t), -t))


def _macro(rows: Iterable[_Scored], threshold: float) -> float:
    by_stratum: dict[str, list[bool]] = {}
    for row in rows:
        called = row.score >= threshold
        by_stratum.setdefault(row.stratum, []).append(row.hit and called if row.positive else not called)
    return sum(sum(found) / len(found) for found in by_stratum.values()) / len(by_stratum)


def uniform_expectation(actions: list[str], gold: list[str]) -> float:
    """Probability that an option drawn evenly from all is right."""
    right = sum(action in gold if gold else declines(action) for action in actions)
    return right / len(actions)

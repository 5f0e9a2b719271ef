"""How far probabilities can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bfcl_routing.report.runs import Row
from bfcl_routing.scoring import brier, confidence, log_loss, right_mass

BINS = 10
ERROR_LEVELS = (0.01, 0.02, 0.05)
GATES = (0.8, 0.9)

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """One step of the risk–coverage curve."""

    threshold: float
    """Confidence from which on an answer is accepted."""
    coverage: float
    """Share of all answers that are accepted."""
    risk: float
    """Share of the accepted answers that are wrong."""


def calibration(rows: Sequence[Row]) -> dict[str, Any] | None:
    """Calibration over the rollouts that gave valid probabilities; None if none did.

    Keys: `n`, `right_mass`, `brier` (sum over classes, 0 to 2, no-function actions pooled on negatives), `log_loss`
    (natural logarithm, floored), `ece_width` and `ece_mass` (10 bins), `auroc` (confidence for being right),
    `coverage_at_error`, `wrong_above_gate` (numbers of answers), and the `risk_coverage` curve.
    """
    found = [r for r in rows if r.decision is not None and r.decision.distribution is not None and r.decision.action]
    if not found:
        return None
    given = [(r, r.decision.distribution or {}) for r in found if r.decision is not None]
    sure = np.array([confidence(p, r.decision.action or "") for r, p in given if r.decision is not None])
    right = np.array([r.correct for r in found])
    curve = risk_coverage(sure, right)
    return {
        "n": len(found),
        "right_mass": float(np.mean([right_mass(p, r.gold) for r, p in given])),
        "brier": float(np.mean([brier(p, r.gold) for r, p in given])),
        "log_loss": float(np.mean([log_loss(p, r.gold) for r, p in given])),
        "ece_width": ece(sure, right, equal_mass=False),
        "ece_mass": ece(sure, right, equal_mass=True),
        "auroc": auroc(sure, right),
        "coverage_at_error": {str(level): coverage_at(curve, level) for level in ERROR_LEVELS},
        "wrong_above_gate": {str(gate): int(np.sum((sure >= gate) & ~right)) for gate in GATES},
        "risk_coverage": [point._asdict() for point in curve],
    }


def ece(sure: Floats, right: NDArray[np.bool_], *, equal_mass: bool) -> float:
    """Expected calibration error: the mean gap between confidence and accuracy over 10 bins, weighted by size.

    Args:
        sure: confidences in [0, 1].
        right: whether each answer is right.
        equal_mass: bins of equally many answers instead of equal width.
    """
    if equal_mass:
        groups = np.array_split(np.argsort(sure, kind="stable"), BINS)
    else:
        places = np.minimum((sure * BINS).astype(int), BINS - 1)
        groups = [np.flatnonzero(places == b) for b in range(BINS)]
    gaps = [g.size * abs(float(sure[g].mean()) - float(right[g].mean())) for g in groups if g.size]
    return sum(gaps) / sure.size


def auroc(sure: Floats, right: NDArray[np.bool_]) -> float | None:
    """Probability that a right answer is more confident than a wrong one, ties counting half; None without both."""
    good, bad = sure[right], sure[~right]
    if not good.size or not bad.size:
        return None
    difference = good[:, None] - bad[None, :]
    return float((np.sum(difference > 0) + np.sum(difference == 0) / 2) / difference.size)


def risk_coverage(sure: Floats, right: NDArray[np.bool_]) -> list[Point]:
    """The curve from the most confident answers on. Equal confidences are accepted together."""
    points = []
    for threshold in np.unique(sure)[::-1]:
        accepted = sure >= threshold
        points.append(Point(float(threshold), float(accepted.mean()), float(1 - right[accepted].mean())))
    return points


def coverage_at(curve: Sequence[Point], level: float) -> float:
    """The largest coverage whose risk is at most `level`; 0 if there is none."""
    return max((point.coverage for point in curve if point.risk <= level), default=0.0)

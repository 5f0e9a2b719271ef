"""Shared statistics, against SciPy's."""

from __future__ import annotations

import pytest
from bfcl_rollout.stats import Interval, wilson
from scipy.stats import binomtest


@pytest.mark.parametrize(("successes", "n"), [(0, 1), (1, 1), (0, 25), (25, 25), (19, 25), (7, 155), (233, 465)])
def test_wilson_agrees_with_scipy(successes: int, n: int) -> None:
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    assert wilson(successes, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_nothing_measured_leaves_everything_possible() -> None:
    assert wilson(0, 0) == Interval(0.0, 1.0)


@pytest.mark.parametrize(("successes", "n"), [(-1, 3), (4, 3), (1, 0)])
def test_impossible_counts_are_refused(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="trials"):
        wilson(successes, n)

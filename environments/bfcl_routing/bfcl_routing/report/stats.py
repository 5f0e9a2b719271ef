"""Intervals and tests. Exact where the samples are small; resampling has a fixed seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from bfcl_rollout.stats import Interval, wilson
from scipy.stats import binomtest

DRAWS = 10_000
SEED = 20260929


class Share(NamedTuple):
    """A mean score over cases with its 95% interval."""

    right: float
    """Sum of the cases' scores; a whole number unless cases were played several times."""
    n: int
    interval: Interval
    method: str
    """`wilson` over cases played once each, else `bootstrap` over cases."""

    @property
    def value(self) -> float | None:
        """The share; None without cases."""
        return self.right / self.n if self.n else None

    def to_json(self) -> dict[str, object]:
        """The share as it is stored."""
        interval = [self.interval.low, self.interval.high]
        return {"right": self.right, "n": self.n, "share": self.value, "interval_95": interval, "method": self.method}


def share(scores: Mapping[str, Sequence[bool]]) -> Share:
    """The share of right answers over cases, each case counted by its own mean.

    Args:
        scores: per case, whether each of its rollouts is right.
    """
    means = [float(np.mean(values)) for values in scores.values()]
    if all(len(values) == 1 for values in scores.values()):
        return Share(sum(means), len(means), wilson(round(sum(means)), len(means)), "wilson")
    return Share(sum(means), len(means), bootstrap_means([means]), "bootstrap")


def bootstrap_means(strata: Sequence[Sequence[float]]) -> Interval:
    """95% percentile interval of the unweighted mean of the strata's means, resampling cases inside each stratum."""
    generator = np.random.default_rng(SEED)
    total = np.zeros(DRAWS)
    for values in strata:
        data = np.asarray(values, dtype=float)
        if not data.size:
            return Interval(0.0, 1.0)
        picks = generator.integers(0, data.size, size=(DRAWS, data.size))
        total += data[picks].mean(axis=1)
    low, high = np.quantile(total / len(strata), [0.025, 0.975])
    return Interval(float(low), float(high))


class McNemar(NamedTuple):
    """The 2×2 table of two systems on the same cases, and the exact two-sided test of its discordant half."""

    both: int
    only_first: int
    only_second: int
    neither: int
    p_value: float


def mcnemar(first: Sequence[bool], second: Sequence[bool]) -> McNemar:
    """Exact McNemar test: the discordant cases against a fair coin (McNemar, Psychometrika 12, 1947).

    Args:
        first, second: whether each case is right, in the same order.
    """
    pairs = list(zip(first, second, strict=True))
    only_first = sum(a and not b for a, b in pairs)
    only_second = sum(b and not a for a, b in pairs)
    discordant = only_first + only_second
    p_value = float(binomtest(only_first, discordant, 0.5).pvalue) if discordant else 1.0
    both = sum(a and b for a, b in pairs)
    return McNemar(both, only_first, only_second, len(pairs) - both - discordant, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values that control the family-wise error (Holm, Scand. J. Stat. 6, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def percentile(values: Sequence[float], share_below: float) -> float:
    """Linear interpolation at `share_below * (n - 1)` of the sorted values."""
    return float(np.quantile(np.asarray(values, dtype=float), share_below, method="linear"))

"""Statistics shared by the summaries."""

from __future__ import annotations

import math
from typing import NamedTuple

Z_95 = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


class Interval(NamedTuple):
    """A confidence interval for a share, both ends in [0, 1]."""

    low: float
    high: float


def wilson(successes: int, n: int, z: float = Z_95) -> Interval:
    """Wilson score interval for a binomial share (E. B. Wilson, JASA 22, 1927).

    Args:
        successes: between 0 and `n`.
        n: trials; 0 gives the whole range.
        z: normal quantile, 95 % two-sided by default.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} trials")
    if n == 0:
        return Interval(0.0, 1.0)
    share = successes / n
    scale = 1 + z * z / n
    centre = (share + z * z / (2 * n)) / scale
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / scale
    return Interval(max(0.0, centre - half), min(1.0, centre + half))

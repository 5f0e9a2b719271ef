"""How hard a task is for a policy, from a group's progress rewards alone (RODS's capability boundary).

Says which tasks a policy sometimes solves: those teach the most, and from those RODS makes new ones. Local credit has
no part in it. Making tasks, and how many of which category to take, is left to whoever trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

LOW = 0.20
HIGH = 0.85


class Boundary(NamedTuple):
    """Where a task lies."""

    mean: float
    """Mean progress reward of the group, in [0, 1]."""
    kind: Literal["too_hard", "boundary", "mastered"]
    priority: float
    """`4 m (1 - m)` for the mean `m`: 1 half-way, 0 at either end."""


def boundary(progress: Sequence[float], low: float = LOW, high: float = HIGH) -> Boundary:
    """Place a task by its group's progress rewards.

    Args:
        progress: one `R_P` per rollout, length K.
        low: below this mean the task is too hard.
        high: above this mean it is mastered; both ends belong to the boundary.

    Raises:
        ValueError: an empty group.
    """
    if not progress:
        raise ValueError("a group without rollouts")
    mean = fmean(progress)
    return Boundary(
        mean=mean,
        kind="too_hard" if mean < low else "mastered" if mean > high else "boundary",
        priority=4 * mean * (1 - mean),
    )

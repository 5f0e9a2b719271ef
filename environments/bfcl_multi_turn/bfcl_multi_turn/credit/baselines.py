"""Advantages from numbers: among peers of one step index, among whole rollouts, and the global one.

The published local baseline compares a step only with the rollouts that have a step at the same index. Whether
there is one is the policy's own choice, made by answering or going on, and the answer carries no share of the
baseline: in expectation the baseline therefore pushes the policy towards or away from answering. The
leave-one-out baseline here does not (`bias_demo` prints both, computed exactly).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_LANES = 8
_UNROLLED = 4


class LocalAdvantage(NamedTuple):
    """One step, compared."""

    support: int
    """How many returns it was compared among, its own included."""
    mean: float
    """Mean of the returns it was compared with."""
    std: float
    """Unbiased sample standard deviation of the returns at this index; 0 for a single one."""
    advantage: float
    active: bool
    """False if the comparison abstained: too few, all equal, or no finite spread."""


def peer_advantages(
    returns: Sequence[Sequence[float]], *, epsilon: float = 1e-6, min_group_size: int = 2
) -> list[list[LocalAdvantage]]:
    """Z-scores among the steps of equal index (ToolWeave 4.6: ragged, nothing padded, float64).

    Args:
        returns: one list per rollout, ragged; position is the runtime interaction index.
        epsilon: added to the standard deviation.
        min_group_size: fewest members, else the step abstains.

    Returns:
        The same shape as `returns`.
    """
    out: list[list[LocalAdvantage]] = [[] for _ in returns]
    for index in range(max(map(len, returns), default=0)):
        members = [rollout for rollout, values in enumerate(returns) if len(values) > index]
        values = np.array([returns[rollout][index] for rollout in members])
        mean, std = _mean_and_std(values)
        active = len(members) >= min_group_size and not _all_equal(values) and math.isfinite(std) and std > 0
        for rollout, value in zip(members, values.tolist(), strict=True):
            advantage = (value - mean) / (std + epsilon) if active else 0.0
            out[rollout].append(LocalAdvantage(len(members), mean, std, advantage, active))
    return out


def leave_one_out_advantages(
    returns: Sequence[Sequence[float]], *, min_group_size: int = 2
) -> list[list[LocalAdvantage]]:
    """Return minus the mean of the other rollouts at the same index, ended rollouts counting as 0.

    The baseline of a rollout depends on nothing that the rollout itself does, so it is unbiased wherever it is
    subtracted from every decision of the turn. The answer is one: its return is 0, and it gets the last entry.
    Not divided by a standard deviation, which would depend on the rollout again.

    Args:
        returns: one list per rollout, ragged.
        min_group_size: fewest rollouts, else every step abstains.

    Returns:
        For each rollout one entry per step and one more for the decision that ended the turn.
    """
    width = max(map(len, returns), default=0) + 1
    padded = np.zeros((len(returns), width))
    for rollout, values in enumerate(returns):
        padded[rollout, : len(values)] = values
    active = len(returns) >= min_group_size
    others = (padded.sum(axis=0) - padded) / max(len(returns) - 1, 1)
    stds = [_mean_and_std(padded[:, index].copy())[1] for index in range(width)]
    return [
        [
            LocalAdvantage(
                support=len(returns),
                mean=float(others[rollout, index]),
                std=stds[index],
                advantage=float(padded[rollout, index] - others[rollout, index]) if active else 0.0,
                active=active,
            )
            for index in range(len(values) + 1)
        ]
        for rollout, values in enumerate(returns)
    ]


def global_advantages(
    outcomes: Sequence[float], *, epsilon: float = 1e-6, equal_group_guard: bool = True
) -> list[float]:
    """Group-normalised outcomes (verl's GRPO outcome estimator), in float32 as published.

    `(outcome - mean) / (std + epsilon)` with the unbiased standard deviation; a group of one uses mean 0 and
    standard deviation 1. The float32 mean is summed in the order of PyTorch's vector kernel, so that the last
    published digits, and without the guard the published leak on equal groups, come out.

    Args:
        outcomes: one per rollout, length K.
        epsilon: added to the standard deviation.
        equal_group_guard: give exactly 0 to a group of equal outcomes.
    """
    values = np.asarray(outcomes, dtype=np.float32)
    if len(values) == 1:
        mean, std = np.float32(0), np.float32(1)
    elif not len(values) or (equal_group_guard and _all_equal(values)):
        return [0.0] * len(values)
    else:
        mean = _float32_sum(values) / np.float32(len(values))
        centred = values.astype(np.float64) - float(mean)
        std = np.float32(math.sqrt(float(centred @ centred) / (len(values) - 1)))
    scaled: list[float] = ((values - mean) / (std + np.float32(epsilon))).tolist()
    return scaled


def _float32_sum(values: npt.NDArray[np.float32]) -> np.float32:
    """The sum as PyTorch's CPU kernel forms it: eight lanes, four-way unrolled rows, then lane by lane.

    Vectors shorter than the lanes are summed by the same scheme with one lane.
    """
    lanes = _LANES if len(values) >= _LANES else 1
    rows = len(values) // lanes
    body = values[: rows * lanes].reshape(rows, lanes)
    partial = np.zeros((_UNROLLED, lanes), np.float32)
    unrolled = rows - rows % _UNROLLED
    for row in range(rows):
        partial[row % _UNROLLED if row < unrolled else 0] += body[row]
    for other in partial[1:]:
        partial[0] += other
    total = np.float32(0)
    for value in (*values[rows * lanes :], *partial[0]):
        total += value
    return total


def _mean_and_std(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean and unbiased standard deviation, 0 for a single value: NumPy's operations, without what it checks first."""
    mean = float(np.add.reduce(values)) / len(values)
    centred = values - mean
    std = math.sqrt(float(np.add.reduce(centred * centred)) / (len(values) - 1)) if len(values) > 1 else 0.0
    return mean, std


def _all_equal(values: npt.NDArray[np.floating]) -> bool:
    return bool((values == values[0]).all())

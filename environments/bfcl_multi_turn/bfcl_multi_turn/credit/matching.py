"""From calls to step rewards and returns: similarity, one optimal assignment per user turn, scatter, discount.

Formulas: MatchTIR's call similarity and ToolWeave's `runtime_interaction_final` (one maximum-weight assignment per
rollout and user turn, in float64). Lists and arrays in, lists and arrays out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from bfcl_multi_turn.credit.gold import GoldCall, plain
from bfcl_multi_turn.interactive.records import ParsedCall

Matrix = npt.NDArray[np.float64]


class Assignment(NamedTuple):
    """Which gold call each predicted call was matched to."""

    columns: list[int | None]
    """Length P; None for an unmatched call."""
    rewards: list[float]
    """Length P: the similarity of a matched call, else the reward of an unmatched one."""


class TurnRewards(NamedTuple):
    """The rewards of one rollout in one user turn of J steps."""

    call_rewards: list[list[float]]
    """Length J, each as long as the step's valid calls."""
    step_rewards: list[float]
    """Length J: mean of the step's call rewards, 0 without calls."""
    similarities: list[float]
    """Similarities of the matched pairs."""
    gold_calls: int

    @property
    def matched(self) -> int:
        """Predicted calls that were matched."""
        return len(self.similarities)


def call_similarity(call: ParsedCall, gold: GoldCall) -> float:
    """Similarity in [0, 1] of a predicted call with arguments P to a gold call with arguments G.

    0 if the call is invalid or the names differ (stripped, case ignored); else `(1 + keys + values) / (2 + |G|)`
    with `keys` the Jaccard index of the argument names (1 if both have none) and `values` the number of gold
    arguments whose value is equal, deeply and by Python's `==` (MatchTIR, as in ToolWeave's `matching`).
    """
    if not call.valid or _normal(call.name) != _normal(gold.name):
        return 0.0
    return _argument_similarity(plain(call.arguments), gold.arguments)


def similarity_matrix(calls: Sequence[ParsedCall], golds: Sequence[GoldCall]) -> Matrix:
    """All similarities, float64 of shape (P, G)."""
    matrix = np.zeros((len(calls), len(golds)))
    by_name: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for column, gold in enumerate(golds):
        by_name.setdefault(_normal(gold.name), []).append((column, gold.arguments))
    for row, call in enumerate(calls):
        same = by_name.get(_normal(call.name)) if call.valid else None
        if same:
            arguments = plain(call.arguments)
            for column, wanted in same:
                matrix[row, column] = _argument_similarity(arguments, wanted)
    return matrix


def assign(matrix: Matrix, unmatched_reward: float = 0.0) -> Assignment:
    """Maximum-weight one-to-one assignment; pairs of similarity 0 stay unmatched.

    Args:
        matrix: similarities, shape (P, G).
        unmatched_reward: reward of an unmatched call.
    """
    count = matrix.shape[0]
    columns: list[int | None] = [None] * count
    rewards = [unmatched_reward] * count
    if matrix.size:
        rows, cols = linear_sum_assignment(matrix, maximize=True)
        for row, column in zip(rows.tolist(), cols.tolist(), strict=True):
            if matrix[row, column] > 0:
                columns[row] = column
                rewards[row] = float(matrix[row, column])
    return Assignment(columns, rewards)


def turn_rewards(
    steps: Sequence[Sequence[ParsedCall]],
    golds: Sequence[GoldCall],
    unmatched_reward: float = 0.0,
    repeats: Literal["once", "match"] = "once",
) -> TurnRewards:
    """Match all calls of a user turn at once and scatter the rewards back to the steps.

    Args:
        steps: the calls of each step, in order, length J. Invalid ones neither match nor count in the mean.
        golds: gold calls of the turn.
        unmatched_reward: reward of an unmatched call.
        repeats: `once` leaves a repeated call unmatched, unless the gold calls hold it several times too.
    """
    valid = [[call for call in calls if call.valid] for calls in steps]
    flat = [call for calls in valid for call in calls]
    matrix = similarity_matrix(flat, golds)
    if repeats == "once":
        matrix[surplus_repeats(flat, golds)] = 0.0
    assignment = assign(matrix, unmatched_reward)
    call_rewards: list[list[float]] = []
    position = 0
    for calls in valid:
        call_rewards.append(assignment.rewards[position : position + len(calls)])
        position += len(calls)
    return TurnRewards(
        call_rewards=call_rewards,
        step_rewards=[sum(rewards) / len(rewards) if rewards else 0.0 for rewards in call_rewards],
        similarities=[
            reward for reward, column in zip(assignment.rewards, assignment.columns, strict=True) if column is not None
        ],
        gold_calls=len(golds),
    )


def surplus_repeats(calls: Sequence[ParsedCall], golds: Sequence[GoldCall]) -> list[int]:
    """Indices of calls that were made before, and more often than they stand among the gold calls.

    Calls are the same if names (stripped, case ignored) and arguments are equal.
    """
    surplus: list[int] = []
    seen: dict[str, list[dict[str, Any]]] = {}
    for index, call in enumerate(calls):
        arguments = plain(call.arguments)
        same = seen.setdefault(_normal(call.name), [])
        made = same.count(arguments)
        if made:
            wanted = sum(_normal(gold.name) == _normal(call.name) and gold.arguments == arguments for gold in golds)
            if made >= max(1, wanted):
                surplus.append(index)
        same.append(arguments)
    return surplus


def discounted_returns(step_rewards: Sequence[float], gamma: float) -> list[float]:
    """`R_j = r_j + gamma * R_{j+1}` over the real steps of one user turn, length J."""
    returns: list[float] = []
    ahead = 0.0
    for reward in reversed(step_rewards):
        ahead = reward + gamma * ahead
        returns.append(ahead)
    return returns[::-1]


def _argument_similarity(predicted: dict[str, Any], gold: dict[str, Any]) -> float:
    shared = values = 0
    for key, wanted in gold.items():
        if key in predicted:
            shared += 1
            values += bool(predicted[key] == wanted)
    union = len(predicted) + len(gold) - shared
    keys = shared / union if union else 1.0
    return (1.0 + keys + values) / (2 + len(gold))


def _normal(name: str) -> str:
    return name.strip().lower()

"""How biased the local baselines are, computed exactly: `python -m bfcl_multi_turn.credit.bias_demo`.

A toy user turn: at each of two decisions a policy answers (which ends the turn), makes a right call (reward 1) or a
wrong one (reward 0). Everything is enumerated, so the printed expectations have no sampling error. The signal to
estimate is the policy gradient of the local returns, the expectation of `sum_j grad log pi(a_j) * R_j`; a baseline
is unbiased if replacing `R_j` by the advantage leaves that expectation as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bfcl_multi_turn.credit.baselines import leave_one_out_advantages, peer_advantages
from bfcl_multi_turn.credit.matching import discounted_returns

Vector = npt.NDArray[np.float64]

ANSWER, RIGHT, WRONG = range(3)
_REWARD = {RIGHT: 1.0, WRONG: 0.0}
_EPSILON = 1e-6

LOGITS = np.array([[0.0, 0.5, 0.0], [1.0, 0.0, 0.5]])
"""The policy: logits of (answer, right, wrong) at each decision."""
GAMMA = 0.9
GROUP = 4

Estimator = Callable[[Sequence[Sequence[float]]], list[list[float]]]
"""From the returns of each rollout's steps to the advantages of its decisions, the answer last if it gets one."""


class Bias(NamedTuple):
    """One estimator's expected update against the true one."""

    name: str
    expected: Vector
    """Expected update of the logits, shape (decisions, 3)."""
    error: float
    """Size of the difference from the true gradient, relative to that gradient's size."""
    direction_error: float
    """The same after the best rescaling: the sine of the angle between the two."""


def peers(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """The published baseline."""
    return [[step.advantage for step in row] for row in peer_advantages(returns, epsilon=_EPSILON)]


def peers_undivided(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """The published baseline before it is divided by the standard deviation."""
    return [[step.advantage * (step.std + _EPSILON) for step in row] for row in peer_advantages(returns)]


def leave_one_out_steps(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """The leave-one-out baseline, withheld from answers."""
    return [row[:-1] for row in leave_one_out(returns)]


def leave_one_out(returns: Sequence[Sequence[float]]) -> list[list[float]]:
    """The leave-one-out baseline, answers included."""
    return [[step.advantage for step in row] for row in leave_one_out_advantages(returns)]


ESTIMATORS: dict[str, Estimator] = {
    "peers (published)": peers,
    "peers, not divided by the std": peers_undivided,
    "leave_one_out, answers left out": leave_one_out_steps,
    "leave_one_out": leave_one_out,
}


def true_gradient(logits: Vector = LOGITS) -> Vector:
    """The gradient to be estimated, shape (decisions, 3)."""
    total = np.zeros_like(logits)
    for actions in _trajectories(len(logits)):
        returns = _returns(actions)
        total += _probability(logits, actions) * _update(logits, actions, returns)
    return total


def biases(logits: Vector = LOGITS, group: int = GROUP) -> list[Bias]:
    """The bias of every estimator, over all groups of `group` rollouts."""
    target = true_gradient(logits)
    size = float(np.linalg.norm(target))
    expected = {name: np.zeros_like(logits) for name in ESTIMATORS}
    trajectories = _trajectories(len(logits))
    weights = [_probability(logits, actions) for actions in trajectories]
    for members in itertools.product(range(len(trajectories)), repeat=group):
        weight = float(np.prod([weights[member] for member in members]))
        returns = [_returns(trajectories[member]) for member in members]
        for name, estimate in ESTIMATORS.items():
            # Rollouts are exchangeable, so the first one stands for all.
            expected[name] += weight * _update(logits, trajectories[members[0]], estimate(returns)[0])
    return [
        Bias(
            name,
            found,
            error=float(np.linalg.norm(found - target)) / size,
            direction_error=float(np.linalg.norm(found * (np.vdot(found, target) / np.vdot(found, found)) - target))
            / size,
        )
        for name, found in expected.items()
    ]


def main() -> None:
    """Print the table."""
    print(f"expected update of the logits, groups of {GROUP}, two decisions, exact")
    print(f"{'':34}{'answer@0':>9}{'right@0':>9}{'wrong@0':>9}{'answer@1':>9}{'right@1':>9}{'wrong@1':>9}", end="")
    print(f"{'bias':>9}{'angle':>9}")
    _line("true gradient", true_gradient(), "", "")
    for bias in biases():
        _line(bias.name, bias.expected, f"{bias.error:.1%}", f"{bias.direction_error:.1%}")
    print("bias: distance from the true gradient over its size. angle: what is left of it after the best rescaling.")


def _line(name: str, values: Vector, *rest: str) -> None:
    print(f"{name:34}" + "".join(f"{value:9.4f}" for value in values.ravel()) + "".join(f"{text:>9}" for text in rest))


def _trajectories(decisions: int) -> list[tuple[int, ...]]:
    """All action sequences: calls up to an answer, or up to the last decision."""
    ended = [
        (*calls, ANSWER) for length in range(decisions) for calls in itertools.product((RIGHT, WRONG), repeat=length)
    ]
    return ended + list(itertools.product((RIGHT, WRONG), repeat=decisions))


def _returns(actions: Sequence[int]) -> list[float]:
    return discounted_returns([_REWARD[action] for action in actions if action != ANSWER], GAMMA)


def _probabilities(logits: Vector, decision: int) -> Vector:
    scores: Vector = np.exp(logits[decision] - logits[decision].max())
    normal: Vector = scores / scores.sum()
    return normal


def _probability(logits: Vector, actions: Sequence[int]) -> float:
    return float(np.prod([_probabilities(logits, j)[action] for j, action in enumerate(actions)]))


def _update(logits: Vector, actions: Sequence[int], advantages: Sequence[float]) -> Vector:
    """`sum_j grad log pi(a_j) * advantage_j`; decisions beyond the advantages contribute nothing."""
    total = np.zeros_like(logits)
    for j, (action, advantage) in enumerate(zip(actions, advantages, strict=False)):
        score = -_probabilities(logits, j)
        score[action] += 1.0
        total[j] += advantage * score
    return total


if __name__ == "__main__":
    main()

"""Credit of one group: K rollouts of one task, from their interactions to an advantage for every step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bfcl_multi_turn.credit.baselines import (
    LocalAdvantage,
    global_advantages,
    leave_one_out_advantages,
    peer_advantages,
)
from bfcl_multi_turn.credit.eligibility import LocalTurn, Skip, local_turn
from bfcl_multi_turn.credit.gold import GoldCall, GoldError, ParameterNames, parse_gold
from bfcl_multi_turn.credit.matching import TurnRewards, discounted_returns, turn_rewards
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.interactive.records import Interaction


class CreditError(ValueError):
    """Input that must not be credited. The message names the rollout, and the user turn where there is one."""


class Rollout(NamedTuple):
    """One member of a group."""

    id: str
    outcome: float
    """What the global advantage compares: `R_P`, or another reward."""
    interactions: Sequence[Interaction] | None
    """None if there is no usable record."""
    problem: str | None = None
    """Why there is none: None means that nothing was recorded at all, which leaves the whole group without local
    credit; a text means a malformed record, which only leaves this rollout out."""


class StepCredit(NamedTuple):
    """One step of an eligible user turn, credited."""

    rollout: int
    interaction: Interaction
    call_rewards: list[float]
    """One per valid call."""
    step_reward: float
    local_return: float
    local: LocalAdvantage
    advantage: float
    """Global plus weighted local advantage: what the step's tokens get."""
    follows_empty_turn: bool
    """The user turn before this one has no right call."""


class AnswerCredit(NamedTuple):
    """The answer that ended an eligible user turn."""

    rollout: int
    interaction: Interaction
    local: LocalAdvantage | None
    """None under the published baseline: answers get the global advantage only."""
    advantage: float


class TurnMatch(NamedTuple):
    """The matching behind one rollout's steps in one user turn."""

    rollout: int
    user_turn: int
    steps: int
    rewards: TurnRewards


class GroupCredit(NamedTuple):
    """Everything about one group, in the order (user turn, rollout, index)."""

    rollouts: list[Rollout]
    options: CreditOptions
    global_advantages: list[float]
    """One per rollout."""
    steps: list[StepCredit]
    answers: list[AnswerCredit]
    turns: list[TurnMatch]
    skips: list[Skip]


def credit_group(
    gold: Sequence[Sequence[str]],
    rollouts: Sequence[Rollout],
    options: CreditOptions | None = None,
    parameters: ParameterNames | None = None,
) -> GroupCredit:
    """Credit the K rollouts of one task.

    Args:
        gold: gold call strings by user turn.
        rollouts: the group, length K.
        options: how.
        parameters: parameter names by function, for positional gold arguments.

    Raises:
        CreditError: an empty group, or an outcome that is not a finite number.
    """
    options = options or CreditOptions()
    if not rollouts:
        raise CreditError("a group without rollouts")
    for rollout in rollouts:
        if not math.isfinite(rollout.outcome):
            raise CreditError(f"rollout {rollout.id}: its outcome is {rollout.outcome}")
    global_ = global_advantages(
        [rollout.outcome for rollout in rollouts],
        epsilon=options.epsilon,
        equal_group_guard=options.equal_group_guard,
    )
    result = GroupCredit(list(rollouts), options, global_, [], [], [], [])
    if any(rollout.interactions is None and rollout.problem is None for rollout in rollouts):
        result.skips.extend(
            Skip(index, None, "no_provenance", "a rollout of the group has no record") for index in range(len(rollouts))
        )
        return result
    golds = [_read_gold(turn, options, parameters or {}) for turn in gold]
    for user_turn, turns in sorted(_eligible(rollouts, golds, result.skips).items()):
        golds_here = golds[user_turn] or []
        _credit_turn(result, turns, golds_here, follows_empty=user_turn > 0 and not gold[user_turn - 1])
    return result


def _read_gold(turn: Iterable[str], options: CreditOptions, parameters: ParameterNames) -> list[GoldCall] | None:
    try:
        return [parse_gold(text, parameters, options.positional_gold) for text in turn]
    except GoldError:
        return None


def _eligible(
    rollouts: Sequence[Rollout], golds: Sequence[list[GoldCall] | None], skips: list[Skip]
) -> dict[int, list[LocalTurn]]:
    """Eligible turns by user turn, rollouts in order; what is left out is added to `skips`."""
    eligible: dict[int, list[LocalTurn]] = defaultdict(list)
    for index, rollout in enumerate(rollouts):
        if rollout.interactions is None:
            skips.append(Skip(index, None, "malformed_rollout", rollout.problem or ""))
            continue
        if not rollout.interactions:
            skips.append(Skip(index, None, "no_interactions", "it was cut off before anything was recorded"))
            continue
        by_turn: dict[int, list[Interaction]] = defaultdict(list)
        for step in rollout.interactions:
            by_turn[step.user_turn].append(step)
        for user_turn, steps in sorted(by_turn.items()):
            outcome = local_turn(index, user_turn, steps, golds)
            if isinstance(outcome, Skip):
                skips.append(outcome)
            else:
                eligible[user_turn].append(outcome)
    return eligible


def _credit_turn(
    result: GroupCredit, turns: Sequence[LocalTurn], golds: Sequence[GoldCall], follows_empty: bool
) -> None:
    options = result.options
    matches = [
        turn_rewards([step.calls for step in turn.steps], golds, options.unmatched_reward, options.repeats)
        for turn in turns
    ]
    returns = [discounted_returns(match.step_rewards, options.gamma) for match in matches]
    leave_one_out = options.local_baseline == "leave_one_out"
    if leave_one_out:
        local = leave_one_out_advantages(returns, min_group_size=options.min_group_size)
    else:
        local = peer_advantages(returns, epsilon=options.epsilon, min_group_size=options.min_group_size)
    for turn, match, turn_returns, turn_local in zip(turns, matches, returns, local, strict=True):
        base = result.global_advantages[turn.rollout]
        result.turns.append(TurnMatch(turn.rollout, turn.user_turn, len(turn.steps), match))
        for position, step in enumerate(turn.steps):
            result.steps.append(
                StepCredit(
                    rollout=turn.rollout,
                    interaction=step,
                    call_rewards=match.call_rewards[position],
                    step_reward=match.step_rewards[position],
                    local_return=turn_returns[position],
                    local=turn_local[position],
                    advantage=_fuse(base, turn_local[position], options.weight),
                    follows_empty_turn=follows_empty,
                )
            )
        if turn.answer is not None:
            ending = turn_local[-1] if leave_one_out else None
            advantage = base if ending is None else _fuse(base, ending, options.weight)
            result.answers.append(AnswerCredit(turn.rollout, turn.answer, ending, advantage))


def _fuse(base: float, local: LocalAdvantage, weight: float) -> float:
    """Sum without halving, re-normalising or clipping (ToolWeave 4.8)."""
    return base + weight * local.advantage if local.active and weight else base

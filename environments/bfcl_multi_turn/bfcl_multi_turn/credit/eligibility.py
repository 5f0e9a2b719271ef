"""Which user turns of a rollout may carry local credit. Fails closed: in doubt, a turn gets the global advantage only.

The rules and their order are ToolWeave's (`runtime_interaction_final`). A turn that is left out is nobody's peer
either, and every one is listed with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from bfcl_multi_turn.credit.gold import GoldCall
from bfcl_multi_turn.interactive.records import Interaction

SkipReason = Literal[
    "no_provenance",
    "malformed_rollout",
    "no_interactions",
    "no_such_turn",
    "empty_gold",
    "unparsable_gold",
    "broken_indices",
    "misplaced_answer",
    "unreliable_record",
]


class Skip(NamedTuple):
    """Something that carries no local credit, and why."""

    rollout: int
    """Position in the group."""
    user_turn: int | None
    """None: the whole rollout."""
    reason: SkipReason
    detail: str


class LocalTurn(NamedTuple):
    """One eligible user turn of one rollout."""

    rollout: int
    user_turn: int
    steps: list[Interaction]
    """All runtime interactions but the valid final answer, in order: length J, at least 0."""
    answer: Interaction | None
    """The valid final answer; None if the attempt limit closed the turn, or the rollout broke off."""


def local_turn(
    rollout: int, user_turn: int, interactions: Sequence[Interaction], gold: Sequence[Sequence[GoldCall] | None]
) -> LocalTurn | Skip:
    """Apply the rules to one user turn.

    Args:
        rollout: position in the group, for the result.
        user_turn: its index.
        interactions: the turn's interactions, in any order.
        gold: gold calls by user turn; None where they cannot be read.
    """

    def skip(reason: SkipReason, detail: str) -> Skip:
        return Skip(rollout, user_turn, reason, detail)

    if user_turn >= len(gold):
        return skip("no_such_turn", f"the task has {len(gold)} user turns")
    golds = gold[user_turn]
    if golds is None:
        return skip("unparsable_gold", "a gold call of this turn cannot be read")
    if not golds:
        return skip("empty_gold", "no call is right in this turn")
    steps = sorted(interactions, key=lambda step: step.index)
    indices = [step.index for step in steps]
    if indices != list(range(len(steps))):
        return skip("broken_indices", f"runtime interaction indices {indices}")
    answers = [step for step in steps if step.response_type == "answer"]
    if answers and (len(answers) > 1 or answers[0] is not steps[-1]):
        return skip("misplaced_answer", f"answers at {[step.index for step in answers]} of {len(steps)} interactions")
    local = steps[:-1] if answers else steps
    for step in local:
        if not step.temporal_reliable:
            return skip("unreliable_record", f"interaction {step.index}: turn and index are not the environment's own")
        if step.call_parse_reliable != (step.response_type == "tool_call"):
            return skip(
                "unreliable_record",
                f"interaction {step.index}: a {step.response_type} marked as "
                f"{'reliably' if step.call_parse_reliable else 'not reliably'} parsed",
            )
    return LocalTurn(rollout, user_turn, local, answers[0] if answers else None)

"""Scores of a rollout from the codes of its steps: the progress reward and the stage-1 score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from bfcl_multi_turn.interactive.records import Code

FORMAT_FAILURE: Code = -3
CALL_RAISED: Code = -2
CALLS_RAN: Code = -1
TURN_FAILED: Code = 0
TURN_SUCCEEDED: Code = 1


class Progress(NamedTuple):
    """The progress reward and what it was made of."""

    reward: float
    """`R_P` in [0, 1]."""
    expected_user_turns: int
    terminal_count: int
    """User turns that closed."""
    terminal_coverage: float
    missing_terminal_turns: int
    incomplete_trajectory: bool
    code_counts: dict[int, int]


class Stage1Score(NamedTuple):
    """The cold-start score: how well-formed the steps were, and how many tool steps ran."""

    score: float
    """In [0, 2]; 0 for a rollout without a tool step."""
    format: float
    tool: float
    is_tool_call: float


def progress_reward(codes: Sequence[int], expected_user_turns: int) -> Progress:
    """Succeeded user turns over all user turns of the task (RODS's fixed denominator).

    A turn without a terminal code counts as failed, so a truncated rollout gains nothing.

    Args:
        codes: one code per step of the rollout, in {-3, -2, -1, 0, 1}.
        expected_user_turns: user turns of the task.

    Raises:
        ValueError: an unknown code, or more terminal codes than user turns.
    """
    counts = _count(codes)
    terminal = counts[TURN_FAILED] + counts[TURN_SUCCEEDED]
    if terminal > expected_user_turns:
        raise ValueError(f"{terminal} terminal codes for a task of {expected_user_turns} user turns")
    total = expected_user_turns
    return Progress(
        reward=min(1.0, max(0.0, counts[TURN_SUCCEEDED] / total)) if total else 0.0,
        expected_user_turns=total,
        terminal_count=terminal,
        terminal_coverage=terminal / total if total else 0.0,
        missing_terminal_turns=total - terminal,
        incomplete_trajectory=terminal < total,
        code_counts={code: counts[code] for code in (-3, -2, -1, 0, 1)},
    )


def stage1_score(codes: Sequence[int]) -> Stage1Score:
    """`S = I * (F + Q)`: `F` the share of steps that parsed, `Q` the share of tool steps that ran without
    raising, `I` whether there was a tool step at all (ToolWeave's stage 1).

    Raises:
        ValueError: an unknown code.
    """
    counts = _count(codes)
    tool_steps = counts[CALL_RAISED] + counts[CALLS_RAN]
    if not codes:
        return Stage1Score(0.0, 0.0, 0.0, 0.0)
    well_formed = (len(codes) - counts[FORMAT_FAILURE]) / len(codes)
    ran = counts[CALLS_RAN] / tool_steps if tool_steps else 0.0
    indicator = 1.0 if tool_steps else 0.0
    return Stage1Score(indicator * (well_formed + ran), well_formed, ran, indicator)


def _count(codes: Sequence[int]) -> Counter[int]:
    if unknown := set(codes) - {-3, -2, -1, 0, 1}:
        raise ValueError(f"unknown step codes {sorted(unknown)}")
    return Counter(codes)

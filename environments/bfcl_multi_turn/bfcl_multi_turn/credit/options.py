"""What can be chosen about credit, and the choices that reproduce the published numbers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class CreditOptions(BaseModel):
    """Options of runtime-interaction credit. The defaults follow ToolWeave's `runtime_interaction_final`, except for
    three corrections: positional gold arguments are kept, repeating a call earns nothing, and a group of equal
    outcomes gets a zero advantage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    weight: float = Field(default=1.0, allow_inf_nan=False)
    """Factor of the local advantage. 0 gives the global advantage exactly."""
    gamma: float = Field(default=0.9, ge=0, le=1)
    """Discount per runtime interaction, failed ones included."""
    epsilon: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    """Added to standard deviations before dividing."""
    min_group_size: int = Field(default=2, ge=2)
    """Fewest peers (the step itself counted) for a local advantage."""
    unmatched_reward: float = Field(default=0.0, allow_inf_nan=False)
    """Reward of a call that matches no gold call."""
    positional_gold: Literal["bind", "drop"] = "bind"
    """Positional arguments of gold calls: bound to the function's parameter names, or lost as in the published
    code (a right `sort(file_name=...)` then scores 0.5 against `sort('...')`, and a wrong `sort()` scores 1)."""
    repeats: Literal["once", "match"] = "once"
    """The same call again in a user turn: matched as often as it stands among the gold calls, but at least once; or
    matched like any other call (published), and then a repeat can take another gold call of the same function at a
    partial score."""
    equal_group_guard: bool = True
    """Give exactly 0 to a group whose outcomes are all equal. Without it, float32 rounding can leave about
    -0.056 on every rollout, as in the published estimator."""
    local_baseline: Literal["peers", "leave_one_out"] = "peers"
    """`peers`: z-score among the rollouts that have a step at the same index (published). `leave_one_out`: return
    minus the mean of the *other* rollouts, those that ended earlier counting as 0, on answers too; unlike the
    published one, it is not biased by the policy's choice of how many steps to take."""
    outcome: Literal["progress", "reward"] = "progress"
    """What the global advantage compares: the progress reward, or the trace's own reward."""

    @classmethod
    def published(cls) -> Self:
        """The options under which ToolWeave's published numbers come out."""
        return cls(positional_gold="drop", repeats="match", equal_group_guard=False)

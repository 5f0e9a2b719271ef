"""What the interactive protocol lets a run choose, and what a rollout of it has to know."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from bfcl_multi_turn.interactive.machine import ATTEMPT_LIMIT

PROTOCOL = "interactive"


class InteractiveOptions(BaseModel):
    """Sent with a rollout and kept in its record."""

    model_config = ConfigDict(extra="forbid")

    no_call_turns: list[bool]
    """Per user turn, whether no call is right in it. The only thing about the answer that reaches a rollout: the
    protocol closes such a turn at the first call, so the model is told anyway."""
    attempt_limit: int = Field(ATTEMPT_LIMIT, ge=1)
    """Failed or executed actions that a user turn allows; one more closes it."""
    execute_json_answers: bool = True
    """Execute an answer whose text is JSON of calls, as upstream does."""
    error_hints: bool = False
    """Show error texts that say what to do next instead of the tools' own."""
    idle_gold: bool = True
    """Execute the accepted calls of a turn even if the model called nothing in it."""

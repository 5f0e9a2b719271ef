"""The harness bundled with this environment: BFCL's own loop, or the interactive protocol, in a worker process."""

from __future__ import annotations

from typing import Any, Literal

from bfcl_rollout.harness import BFCLData, BFCLHarness, BFCLHarnessConfig
from pydantic import Field

from bfcl_multi_turn.interactive.machine import ATTEMPT_LIMIT
from bfcl_multi_turn.interactive.options import PROTOCOL, InteractiveOptions
from bfcl_multi_turn.tasks import MultiTurnData


class MultiTurnHarnessConfig(BFCLHarnessConfig):
    protocol: Literal["official", "interactive"] = "official"
    """How the conversation runs: `official` is BFCL's own loop (see `mode`); `interactive` has the model write think,
    tool_call and answer blocks, tells it about format errors, and closes a user turn after `attempt_limit` attempts."""
    attempt_limit: int = Field(ATTEMPT_LIMIT, ge=1)
    """Interactive: attempts a user turn allows; one more closes it."""
    error_hints: bool = False
    """Interactive: show error texts that say what is wrong and what to do next (the augmented environment)."""
    execute_json_answers: bool = True
    """Interactive: execute an answer whose text is JSON of calls, as EnvTuning does."""
    skip_idle_gold: bool = False
    """Interactive, for comparison with EnvTuning only: leave the accepted calls of a turn unexecuted if the model
    called nothing in it. A turn that is skipped then costs nothing later."""


class MultiTurnHarness(BFCLHarness[MultiTurnHarnessConfig]):
    """Plays multi-turn conversations."""

    def protocol(self, data: BFCLData) -> dict[str, Any]:
        """Which protocol plays the task, and what it has to know."""
        if self.config.protocol != PROTOCOL:
            return {}
        if not isinstance(data, MultiTurnData):
            raise TypeError(f"the interactive protocol plays multi-turn tasks, not {type(data).__name__}")
        options = InteractiveOptions(
            no_call_turns=list(data.no_call_turns),
            attempt_limit=self.config.attempt_limit,
            execute_json_answers=self.config.execute_json_answers,
            error_hints=self.config.error_hints,
            idle_gold=not self.config.skip_idle_gold,
        )
        return {"protocol": PROTOCOL, "options": options.model_dump(mode="json")}

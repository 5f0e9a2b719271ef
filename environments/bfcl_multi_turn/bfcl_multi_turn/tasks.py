"""One task: a conversation, how it is graded, and the signals it leaves for training.

The official verdict is one bit for a whole conversation. Beside it the grader makes the same two checks for every user
turn, whatever came of the turns before, and from these come the dense signals: `trace.info["interactions"]` with every
reply of the model, and `trace.info["turn_rewards"]` with one score at the end of each user turn.
"""

from __future__ import annotations

from typing import Any, Literal

import verifiers.v1 as vf
from bfcl_rollout import metrics, pool
from bfcl_rollout.harness import BFCLData, BFCLState, record_of, verdict_of
from bfcl_rollout.records import GradeSpec, RolloutRecord, Verdict

from bfcl_multi_turn.interactive.log import interaction_log, turn_rewards, unrecorded_log
from bfcl_multi_turn.interactive.options import PROTOCOL, InteractiveOptions
from bfcl_multi_turn.interactive.records import INFO_KEY, InteractionLog

REWARDS_KEY = "turn_rewards"
"""Where `trace.info` holds one score per sampled message: a user turn's at its last message, else None."""
NEVER = -1.0
"""Value of `first_bad_turn` for a conversation without one."""


class MultiTurnData(BFCLData):
    """The wire data of one conversation."""

    variant: str = ""
    """`base`, `miss_func`, `miss_param` or `long_context`."""
    family: int = -1
    """Index that the four variants of a conversation share."""
    split: str = ""
    """`train`, `dev` or `test`; the same for the whole family."""
    no_call_turns: tuple[bool, ...] = ()
    """Per user turn, whether no call is right in it."""
    unsolvable: str | None = None
    """Why the accepted calls cannot be found or played with what the conversation offers; None if they can."""


class MultiTurnTaskConfig(vf.TaskConfig):
    reward: Literal["protocol", "verdict", "progress"] = "protocol"
    """What the reward is: the official `verdict` on the whole conversation (0 or 1), `progress` (user turns passed, of
    all), or what belongs to the `protocol`: the verdict for `official`, progress for `interactive`."""


class MultiTurnTask(vf.Task[MultiTurnData, BFCLState, MultiTurnTaskConfig]):
    """A conversation's behaviour: grading, metrics, validation."""

    @property
    def key(self) -> str:
        """The official test id."""
        return self.data.entry_id

    @vf.reward
    async def outcome(self, trace: vf.Trace) -> float:
        """The reward that the task's config asks for."""
        verdict = await self._verdict(trace)
        record = record_of(trace)
        interactive = record is not None and record.protocol == PROTOCOL
        kind = self.config.reward
        if kind == "protocol":
            kind = "progress" if interactive else "verdict"
        if kind == "verdict":
            return float(verdict.valid)
        return 0.0 if record is None else self._log(record, verdict, trace).progress

    @vf.metric
    async def details(self, trace: vf.Trace) -> dict[str, float]:
        """Weight-0 numbers, and the dense signals in `trace.info`."""
        verdict = await self._verdict(trace)
        record = record_of(trace)
        sampled = sum(node.sampled for node in trace.nodes)
        if record is None:
            log = unrecorded_log(self.data.entry_id, len(self.data.no_call_turns))
            trace.info[INFO_KEY] = log.model_dump(mode="json")
            trace.info[REWARDS_KEY] = [None] * sampled
            return {"official_valid": 0.0, "progress": 0.0, "turns_completed": 0.0}
        log = self._log(record, verdict, trace)
        trace.info[INFO_KEY] = log.model_dump(mode="json")
        trace.info[REWARDS_KEY] = turn_rewards(record, log, sampled)
        results = metrics.tool_results(record)
        failures = sum(step.response_type == "parse_error" for step in log.interactions)
        return {
            "official_valid": float(verdict.valid),
            "progress": log.progress,
            "turns_completed": float(_completed(record, log)),
            "first_bad_turn": first_bad_turn(log),
            "n_tool_calls": float(len(results)),
            "n_tool_errors": float(sum(metrics.is_tool_error(result) for result in results)),
            "n_decode_failures": float(failures),
            "force_quit": float(record.force_quit),
        }

    async def finalize(self, trace: vf.Trace, runtime: Any) -> None:
        """Say on the trace which conversation it was."""
        data = self.data
        trace.info["test_id"] = data.entry_id
        trace.info["family"] = data.family
        trace.info["split"] = data.split

    async def validate(self, runtime: Any) -> bool:
        """Whether the checker passes the accepted calls and fails silence, wrong arguments and a mistake."""
        data = self.data
        spec = GradeSpec(entry_id=data.entry_id, category=data.category, mode="fc", model="validate", result=[[]])
        return await pool.shared().selftest(spec)

    async def _verdict(self, trace: vf.Trace) -> Verdict:
        record = record_of(trace)
        idle_gold = True
        if record is not None and record.protocol == PROTOCOL:
            idle_gold = InteractiveOptions.model_validate(record.options).idle_gold
        return await verdict_of(trace, self.data, idle_gold=idle_gold)

    def _log(self, record: RolloutRecord, verdict: Verdict, trace: vf.Trace) -> InteractionLog:
        nodes = [index for index, node in enumerate(trace.nodes) if node.sampled]
        return interaction_log(record, verdict.details["turn_pass"], nodes)


def first_bad_turn(log: InteractionLog) -> float:
    """Index of the first user turn that did not succeed, or `NEVER`."""
    return next((float(turn) for turn, score in enumerate(log.turn_scores) if score != 1), NEVER)


def _completed(record: RolloutRecord, log: InteractionLog) -> int:
    """User turns that came to their end, right or wrong."""
    if record.protocol == PROTOCOL:
        return sum(score is not None for score in log.turn_scores)
    return len(record.turns) - record.force_quit

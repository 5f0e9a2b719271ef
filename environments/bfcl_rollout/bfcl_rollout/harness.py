"""The harness: a rollout played by BFCL's own loop in a worker process, behind verifiers.

The worker's model calls go to the rollout's interception endpoint like any agent program's, so the trace is recorded,
limited and (in training) tokenised by verifiers, while messages, tools, decoding and step limit are BFCL's. What the
rollout did is left in `trace.info["bfcl"]` as a `RolloutRecord`.

Errors follow one rule: what the model does is for the grader to judge, everything else is an error on the trace. An
endpoint that rate-limits for ever is of the second kind; BFCL would wait for it for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Generic, TypeVar

import verifiers.v1 as vf
from pydantic import Field, model_validator
from verifiers.v1.clients import ModelContext
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.runtimes.subprocess import SubprocessRuntime

from bfcl_rollout import pool
from bfcl_rollout.records import OFFICIAL, Execution, GradeSpec, Limits, Mode, RolloutRecord, RolloutSpec, Verdict

RECORD_KEY = "bfcl"
"""Where `trace.info` holds the rollout's record."""
VERDICT_KEY = "verdict"
"""Where `trace.info` holds the verdict."""

_WATCH_SECONDS = 0.5
_RATE_LIMITED = 429


class BFCLData(vf.TaskData):
    """The wire data of one BFCL rollout."""

    entry_id: str = ""
    """BFCL test id with its category in front."""
    category: str = ""
    """BFCL category, e.g. `memory_kv`."""
    memory: str | None = None
    """Text of the memory snapshot the rollout starts from (memory categories)."""


class BFCLState(vf.State):
    """What a rollout hands to its grading and the trace does not store."""

    execution: Execution | None = None


class BFCLHarnessConfig(vf.HarnessConfig):
    mode: Mode = "fc"
    """Which official loop plays: `fc` (native tool calls) or `prompting` (calls written as text)."""
    temperature: float = 0.001
    """Temperature sent when the run's sampling sets none; 0.001 is BFCL's."""
    limits: Limits = Limits()
    """What one worker process may use."""
    rate_limit_patience: float = Field(120.0, gt=0)
    """Seconds of nothing but HTTP 429 after which the rollout is given up as an endpoint error."""


class BFCLEnvConfig(vf.EnvConfig):
    """Base of the environments' configs: a role's harness options need no `--env.<role>.harness.id`."""

    @model_validator(mode="before")
    @classmethod
    def _name_bundled_harness(cls, data: Any) -> Any:
        # verifiers reads options of a harness without an id as options of its own `bash`.
        taskset = data.get("taskset") if isinstance(data, dict) else None
        ident = taskset.get("id") if isinstance(taskset, dict) else getattr(taskset, "id", None)
        if not ident:
            return data
        data = dict(data)
        for name, field in cls.model_fields.items():
            role = data.get(name)
            if isinstance(field.default, vf.AgentConfig) and isinstance(role, dict):
                harness = role.get("harness")
                if isinstance(harness, dict) and not harness.get("id"):
                    data[name] = {**role, "harness": {**harness, "id": ident}}
        return data


class RolloutFailedError(RuntimeError):
    """A rollout has no result, and not because of what the model did."""


ConfigT = TypeVar("ConfigT", bound=BFCLHarnessConfig)


class BFCLHarness(vf.Harness[ConfigT], Generic[ConfigT]):
    """Plays `BFCLData` tasks. Subclass it with a config in an environment package to bundle it there."""

    APPENDS_SYSTEM_PROMPT = True
    # The tools are in-memory simulations, run in a confined process of their own; nothing a model calls executes in
    # the runtime.
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def setup(self, runtime: Runtime) -> None:
        """Have the runtime's folder removed even if this process is killed before it can do so."""
        if isinstance(runtime, SubprocessRuntime) and runtime.workdir is not None:
            await pool.shared().adopt(str(runtime.workdir))

    async def cleanup(self, trace: vf.Trace, runtime: Runtime) -> None:
        """The runtime removes its folder itself."""
        if isinstance(runtime, SubprocessRuntime) and runtime.workdir is not None:
            await pool.shared().disown(str(runtime.workdir))

    async def launch(
        self,
        ctx: ModelContext,
        trace: vf.Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> ProgramResult:
        """Play the task's entry and leave the record on the trace."""
        if not isinstance(data, BFCLData):
            raise TypeError(f"{type(self).__name__} plays BFCL tasks, not {type(data).__name__}")
        if not isinstance(runtime, SubprocessRuntime):
            raise NotImplementedError(
                f"runtime {type(runtime).__name__} is not supported; BFCL rollouts run in local subprocesses "
                "(--env.<role>.runtime.type subprocess)"
            )
        spec = RolloutSpec(
            entry_id=data.entry_id,
            category=data.category,
            model=ctx.model,
            endpoint=endpoint,
            secret=secret,
            mode=self.config.mode,
            temperature=self.config.temperature,
            memory=data.memory,
            limits=self.config.limits,
            **self.protocol(data),
        )
        try:
            record = await self._play(spec, trace)
        except pool.EndpointError as error:
            if trace.stop_condition is not None:
                # A limit of the run (turns, tokens) refused the next model call; that ends a rollout, it does not
                # fail it.
                if error.partial is not None:
                    trace.info[RECORD_KEY] = error.partial.model_dump(mode="json", exclude={"execution"})
                return ProgramResult(exit_code=0, stdout="", stderr="")
            raise
        if isinstance(trace.state, BFCLState):
            trace.state.execution = record.execution
        trace.info[RECORD_KEY] = record.model_dump(mode="json", exclude={"execution"})
        return ProgramResult(exit_code=0, stdout="", stderr="")

    def protocol(self, data: BFCLData) -> dict[str, Any]:
        """Fields of the spec that choose another protocol than BFCL's own loop. Override it to offer one."""
        return {}

    async def _play(self, spec: RolloutSpec, trace: vf.Trace) -> RolloutRecord:
        playing = asyncio.ensure_future(pool.shared().play(spec))
        watching = asyncio.ensure_future(_rate_limited(trace, self.config.rate_limit_patience))
        try:
            await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                return playing.result()
            raise RolloutFailedError(
                f"the endpoint answered nothing but HTTP 429 for {self.config.rate_limit_patience:g} s"
            )
        finally:
            for future in (playing, watching):
                future.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await future


async def _rate_limited(trace: vf.Trace, patience: float) -> None:
    """Return once the endpoint has answered the rollout with nothing but HTTP 429 for `patience` seconds."""
    while True:
        await asyncio.sleep(min(_WATCH_SECONDS, patience))
        since = None
        for call in reversed(trace.calls):
            if call.error is None or call.error.status_code != _RATE_LIMITED:
                break
            since = call.time.start
        if since is not None and time.time() - since >= patience:
            return


def record_of(trace: vf.Trace) -> RolloutRecord | None:
    """The rollout's record, or None if it has none."""
    stored = trace.info.get(RECORD_KEY)
    return None if stored is None else RolloutRecord.model_validate(stored)


async def verdict_of(trace: vf.Trace, data: BFCLData, *, idle_gold: bool = True) -> Verdict:
    """The official verdict of a finished rollout, graded once and kept in `trace.info`.

    A trace without a record is graded as what it is: untouched, or cut off by a limit of the run, it holds no answer.

    Raises:
        RolloutFailedError: the rollout ran out of time, so there is nothing to judge.
        WorkerError: grading itself failed.
    """
    stored = trace.info.get(VERDICT_KEY)
    if stored is not None:
        return Verdict.model_validate(stored)
    record = record_of(trace)
    if record is None and trace.is_timeout:
        raise RolloutFailedError(f"the rollout timed out ({trace.stop_condition}); it has no result to grade")
    verdict = await pool.shared().grade(_grade_spec(trace, data, record, idle_gold=idle_gold))
    trace.info[VERDICT_KEY] = verdict.model_dump(mode="json")
    return verdict


def _grade_spec(trace: vf.Trace, data: BFCLData, record: RolloutRecord | None, *, idle_gold: bool = True) -> GradeSpec:
    model = trace.agent.config.model if trace.agent.config is not None else None
    common: dict[str, Any] = {"entry_id": data.entry_id, "category": data.category, "model": model or ""}
    if record is None:
        return GradeSpec(**common, mode="fc", result=[[]])
    return GradeSpec(
        **common,
        mode=record.mode,
        result=record.result(),
        calls=None if record.protocol == OFFICIAL else record.calls(),
        execution=trace.state.execution if isinstance(trace.state, BFCLState) else None,
        idle_gold=idle_gold,
        queries=[turn.query for turn in record.turns],
        tool_results=[text for turn in record.turns for step in turn.steps for text in step.results],
    )

"""The tasks: chains of sessions and questions, in two units.

In the unit `scenario` (the benchmark) a task is one backend and scenario: all its sessions, then all its questions. In
the unit `question` (training) a task is one question on a ready memory, so that a group of rollouts is a group of
attempts at the same question. The environment turns either into rollouts, whose tasks are minted from these: a
session, which carries no reward, or a question, which the official checker grades.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import verifiers.v1 as vf
from bfcl_rollout import metrics, official, pool
from bfcl_rollout.harness import BFCLData, record_of, verdict_of
from bfcl_rollout.options import known_names
from bfcl_rollout.records import GradeSpec
from pydantic import field_validator

BACKENDS = ("kv", "vector", "rec_sum")
SCENARIOS = ("student", "customer", "finance", "healthcare", "notetaker")

Unit = Literal["scenario", "question"]
Kind = Literal["scenario", "session", "question"]


class Chain(NamedTuple):
    """One scenario on one backend: test ids in playing order, and the first user message of each."""

    sessions: list[tuple[str, str]]
    questions: list[tuple[str, str]]


@functools.cache
def chain(backend: str, scenario: str) -> Chain:
    """The sessions and questions of a scenario, as the official package orders them."""
    entries = [entry for entry in official.load_entries(f"memory_{backend}") if entry["scenario"] == scenario]
    sessions = [entry for entry in entries if "_prereq_" in entry["id"]]
    questions = [entry for entry in entries if "_prereq_" not in entry["id"]]
    sessions.sort(key=lambda entry: len(entry["depends_on"]))
    return Chain([_identify(entry) for entry in sessions], [_identify(entry) for entry in questions])


def _identify(entry: dict[str, Any]) -> tuple[str, str]:
    messages = [message["content"] for message in entry["question"][0] if message["role"] == "user"]
    return entry["id"], messages[0]


class MemoryData(BFCLData):
    """One row: a scenario chain, a session of it, or a question about it."""

    backend: str = ""
    scenario: str = ""
    kind: Kind = "scenario"


class MemoryTask(vf.Task[MemoryData]):
    """A row's behaviour: how a finished rollout is graded. Only questions are."""

    @property
    def key(self) -> str:
        """Stable and unique in each unit: `kv/student`, or the official test id."""
        data = self.data
        return f"{data.backend}/{data.scenario}" if data.kind == "scenario" else data.entry_id

    def session(self, position: int, memory: str | None) -> MemoryTask:
        """The task of this chain's session number `position`, starting from `memory`."""
        entry_id, text = chain(self.data.backend, self.data.scenario).sessions[position]
        return self._mint("session", entry_id, text, memory)

    def question(self, entry_id: str, memory: str) -> MemoryTask:
        """The task of one question of this chain, on the final `memory`."""
        texts = dict(chain(self.data.backend, self.data.scenario).questions)
        return self._mint("question", entry_id, texts[entry_id], memory)

    def _mint(self, kind: Kind, entry_id: str, text: str, memory: str | None) -> MemoryTask:
        data = self.data.model_copy(
            update={
                "kind": kind,
                "entry_id": entry_id,
                "id": entry_id,
                "name": entry_id,
                "prompt": text,
                "memory": memory,
            }
        )
        return MemoryTask(data, self.config)

    def hooks(self, attr: str) -> list[Any]:
        """A session declares no signals of its own, so none of its traces carries a reward."""
        if attr in ("reward", "metric") and self.data.kind == "session":
            return []
        return super().hooks(attr)

    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """1.0 if the official checker finds an accepted answer in the graded message."""
        if self.data.kind == "scenario":
            return 0.0  # a chain is played as other tasks; a rollout of the chain itself holds no answer
        return float((await verdict_of(trace, self.data)).valid)

    @vf.metric
    async def details(self, trace: vf.Trace) -> dict[str, float]:
        """Weight-0 numbers for auditing what was rewarded."""
        record = record_of(trace)
        if record is None:
            return {}
        verdict = await verdict_of(trace, self.data)
        results = metrics.tool_results(record)
        message = record.graded_message
        return {
            "n_tool_calls": float(len(results)),
            "n_tool_errors": float(sum(metrics.is_tool_error(result) for result in results)),
            "answered": float(bool(message)),
            "abstained": float(metrics.abstained(record)),
            "graded_malformed_call": float(metrics.is_malformed_call(message)),
            "gold_in_prompt": float(verdict.details["gold_in_prompt"]),
            "gold_in_tool_result": float(verdict.details["gold_in_tool_result"]),
            "answer_chars": float(len(metrics.answer_text(record))),
            "force_quit": float(record.force_quit),
        }

    async def finalize(self, trace: vf.Trace, runtime: Any) -> None:
        """Say on the trace which rollout of the chain it was."""
        data = self.data
        trace.info["test_id"] = data.entry_id
        trace.info["role"] = trace.agent.name
        trace.info["kind"] = data.kind
        trace.info["backend"] = data.backend
        trace.info["scenario"] = data.scenario

    async def validate(self, runtime: Any) -> bool:
        """Whether the checker passes an accepted answer of each question here and fails an untouched rollout."""
        data = self.data
        ids = [entry_id for entry_id, _ in chain(data.backend, data.scenario).questions]
        if data.kind == "question":
            ids = [data.entry_id]
        for entry_id in ids:
            spec = GradeSpec(entry_id=entry_id, category=data.category, mode="fc", model="validate", result=[[]])
            if not await pool.shared().selftest(spec):
                return False
        return True


class MemoryTasksetConfig(vf.TasksetConfig):
    backends: list[str] = list(BACKENDS)
    """Memory backends to play: kv, vector, rec_sum."""
    scenarios: list[str] = list(SCENARIOS)
    """Scenarios to play: student, customer, finance, healthcare, notetaker."""
    unit: Unit = "scenario"
    """What one task is: a whole `scenario` (15 tasks, the benchmark), or one `question` on a ready memory (465 tasks,
    for training; see --env.snapshots)."""

    @field_validator("backends")
    @classmethod
    def _known_backends(cls, value: list[str]) -> list[str]:
        return known_names("backend", value, BACKENDS)

    @field_validator("scenarios")
    @classmethod
    def _known_scenarios(cls, value: list[str]) -> list[str]:
        return known_names("scenario", value, SCENARIOS)


class MemoryTaskset(vf.Taskset[MemoryTask, MemoryTasksetConfig]):
    """15 scenario chains or 465 questions, by backend and scenario."""

    def load(self) -> Iterable[MemoryTask]:
        """Yield the selected tasks, backend by backend."""
        for backend in self.config.backends:
            for scenario in self.config.scenarios:
                task = self._chain_task(backend, scenario)
                if self.config.unit == "scenario":
                    yield task
                else:
                    for entry_id, text in chain(backend, scenario).questions:
                        yield task._mint("question", entry_id, text, None)

    def _chain_task(self, backend: str, scenario: str) -> MemoryTask:
        sessions, questions = chain(backend, scenario)
        name = f"{backend}/{scenario}"
        data = MemoryData(
            id=name,
            name=name,
            category=f"memory_{backend}",
            backend=backend,
            scenario=scenario,
            prompt=f"{len(sessions)} sessions, then {len(questions)} questions ({name})",
        )
        return MemoryTask(data, self.config.task)

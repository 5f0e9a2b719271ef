"""How one task becomes one episode: sessions in order, then questions.

The sessions are played by the role `prefill`, one after the other, each starting from the memory that the last one
left. The questions are played by the role `agent`, independently, each from the final memory. Only questions are
graded, so an episode's reward is question accuracy; `prefill` is never trained.

A session that fails fails the episode: official BFCL would carry on with an empty memory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import verifiers.v1 as vf
from bfcl_rollout import official, pool
from bfcl_rollout.harness import BFCLEnvConfig, record_of
from bfcl_rollout.worker.embeddings import locate_weights
from verifiers.v1.agent import Agents

from bfcl_v4_memory.snapshots import Snapshots, check_folder
from bfcl_v4_memory.taskset import MemoryTask, chain


class MemoryEnvConfig(BFCLEnvConfig):
    prefill: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """Plays the sessions, which write the memory. Untrainable, no reward."""
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """Answers the questions from the memory."""
    snapshots: Path | None = None
    """Folder of finished memories, by backend, scenario, prefill model and sampling, and BFCL version. With it a memory
    is built once and read from then on; without it each scenario builds its own, and each question of
    `--env.taskset.unit question` shares the one built first in this run."""


class MemoryEnv(vf.Env[MemoryEnvConfig]):
    """Sessions write, questions read."""

    async def start(self) -> None:
        """Start the workers."""
        if self.config.snapshots is not None:
            check_folder(self.config.snapshots)
        if "vector" in self.taskset.config.backends:
            locate_weights()
        self._snapshots = Snapshots(self.config.snapshots)
        await pool.acquire()

    async def stop(self) -> None:
        """End the workers."""
        pool.release()

    async def setup(self, agents: Agents) -> None:
        agents.prefill.trainable = False

    async def run(self, task: vf.Task, agents: Agents) -> None:
        """Play one task's sessions (or read their memory) and its questions."""
        if not isinstance(task, MemoryTask):
            raise TypeError(f"{type(self).__name__} plays memory tasks, not {type(task).__name__}")
        if task.data.kind == "question":
            memory = await self._ready_memory(task, agents)
            await agents.agent.run(task.question(task.data.entry_id, memory))
            return
        if self.config.snapshots is None:
            memory = await self._play_sessions(task, agents)
        else:
            memory = await self._ready_memory(task, agents)
        questions = chain(task.data.backend, task.data.scenario).questions
        async with asyncio.TaskGroup() as group:
            for entry_id, _ in questions:
                group.create_task(agents.agent.run(task.question(entry_id, memory)))

    async def _ready_memory(self, task: MemoryTask, agents: Agents) -> str:
        config = agents.prefill.config
        # verifiers resolves both for each episode.
        assert config.harness is not None
        assert config.sampling is not None
        identity = {
            "backend": task.data.backend,
            "scenario": task.data.scenario,
            "model": config.model,
            "sampling": config.sampling.model_dump(exclude_none=True),
            "harness": config.harness.model_dump(mode="json", include={"mode", "temperature"}),
            "bfcl_eval": official.VERSION,
            "data": official.data_sha256(task.data.category),
        }
        return await self._snapshots.get(identity, lambda: self._play_sessions(task, agents))

    async def _play_sessions(self, task: MemoryTask, agents: Agents) -> str:
        """Play a chain's sessions in order and return the memory they leave.

        Raises:
            RuntimeError: a session failed; the message names it and its error.
        """
        memory = None
        for position, (entry_id, _) in enumerate(chain(task.data.backend, task.data.scenario).sessions):
            trace = await agents.prefill.run(task.session(position, memory))
            record = record_of(trace)
            if record is not None and trace.ok and record.inference_error is not None and memory is not None:
                # What the model wrote broke its own session. Officially the session's writes are lost and the next
                # one starts from the memory before it.
                continue
            if record is None or not trace.ok or record.memory is None:
                error = trace.last_error.message if trace.last_error else f"stopped: {trace.stop_condition}"
                if record is not None and record.inference_error:
                    error = record.inference_error
                raise RuntimeError(f"session {entry_id} failed, so there is no memory to ask about: {error}")
            memory = record.memory
        assert memory is not None, "every scenario has sessions"
        return memory

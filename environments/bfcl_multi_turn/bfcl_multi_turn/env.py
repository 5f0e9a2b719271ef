"""One conversation is one episode of one rollout."""

from __future__ import annotations

import sys

import verifiers.v1 as vf
from bfcl_rollout import pool
from bfcl_rollout.errors import SetupError
from bfcl_rollout.harness import BFCLEnvConfig
from bfcl_rollout.records import GradeSpec
from verifiers.v1.agent import Agents

from bfcl_multi_turn.splits import manifest
from bfcl_multi_turn.tasks import MultiTurnTask

_SELFTEST_ENTRY = "multi_turn_base_0"


class MultiTurnEnvConfig(BFCLEnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig())
    """Holds the conversation."""


class MultiTurnEnv(vf.Env[MultiTurnEnvConfig]):
    """Starts the workers, makes sure that the checker can tell right from wrong, and plays."""

    async def start(self) -> None:
        """Start the workers and test the checker.

        Raises:
            SetupError: the checker would pass wrong calls of this model.
        """
        print(f"bfcl-multi-turn: split {manifest().sha256[:16]} (families by split)", file=sys.stderr)
        await pool.acquire()
        try:
            await check_checker(self.config.agent.model or "")
        except BaseException:
            pool.release()
            raise

    async def stop(self) -> None:
        """End the workers."""
        pool.release()

    async def run(self, task: vf.Task, agents: Agents) -> None:
        """Play one conversation."""
        if not isinstance(task, MultiTurnTask):
            raise TypeError(f"{type(self).__name__} plays multi-turn tasks, not {type(task).__name__}")
        await agents.agent.run(task)  # type: ignore[arg-type]  # a task's state is invariant in verifiers


async def check_checker(model: str) -> None:
    """Refuse to grade if the official checker passes wrong calls of a model with this name.

    Raises:
        SetupError: it does.
    """
    category = _SELFTEST_ENTRY.rsplit("_", 1)[0]
    spec = GradeSpec(entry_id=_SELFTEST_ENTRY, category=category, mode="fc", model=model, result=[[]])
    if not await pool.shared().selftest(spec):
        raise SetupError(
            f"the official checker cannot tell right from wrong calls for a model named {model!r}; nothing was graded"
        )

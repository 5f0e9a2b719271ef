"""The environment: one role, one request, in this process."""

from __future__ import annotations

import verifiers.v1 as vf
from bfcl_rollout.harness import BFCLEnvConfig
from bfcl_rollout.request_harness import RequestHarness
from verifiers.v1.agent import Agents


class RoutingEnvConfig(BFCLEnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig(runtime=vf.SubprocessConfig(), network_notice=False)
    """Makes the decision."""


class RoutingEnv(vf.Env[RoutingEnvConfig]):
    """One task, one rollout of the role `agent`."""

    async def run(self, task: vf.Task, agents: Agents) -> None:
        await agents.agent.run(task)


class RoutingHarness(RequestHarness):
    """The one-request harness, bundled as the default of the role."""

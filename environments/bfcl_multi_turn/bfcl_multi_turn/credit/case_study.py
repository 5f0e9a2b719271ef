"""ToolWeave's case study, played again: `python -m bfcl_multi_turn.credit.case_study [OUT]`.

Sixteen rollouts of one conversation are played through this environment, in the interactive protocol and on BFCL's
tools, by an embedded model that behaves as the published rollouts did. Then they are credited with the published
options, like any other run. No reward or advantage is written down anywhere on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import verifiers.v1 as vf
from bfcl_rollout.scripted import ScriptedServer
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.utils.trace_store import TRACES_FILE, write_episode

from bfcl_multi_turn.credit.commands import main as credit
from bfcl_multi_turn.env import MultiTurnEnv, MultiTurnEnvConfig
from bfcl_multi_turn.harness import MultiTurnHarnessConfig
from bfcl_multi_turn.scripted_case_study import STUDIED, STUDIED_TURN
from bfcl_multi_turn.taskset import MultiTurnTasksetConfig

ENVIRONMENT = "bfcl-multi-turn"
GROUP_SIZE = 16
UNUSUAL = {
    2: "scripted/case-study-wrong-airport",
    9: "scripted/case-study-late-recovery",
    14: "scripted/case-study-extra-argument",
}
"""Models by rollout offset; the other offsets play `USUAL`."""
USUAL = "scripted/case-study-usual"
_AT_ONCE = 4


async def play_group(url: str) -> list[vf.Episode]:
    """Play the group against the embedded model at `url`. Episodes in the order of the rollout offsets."""
    env = MultiTurnEnv(
        MultiTurnEnvConfig(
            taskset=MultiTurnTasksetConfig(id=ENVIRONMENT, categories=["base"]),
            agent=vf.AgentConfig(
                harness=MultiTurnHarnessConfig(id=ENVIRONMENT, protocol="interactive"),
                runtime=vf.SubprocessConfig(),
            ),
        )
    )
    (task,) = [task for task in env.taskset.load() if task.key == STUDIED]
    client = EvalClientConfig(base_url=url, api_key_var="BFCL_SCRIPTED_KEY")
    gate = asyncio.Semaphore(_AT_ONCE)
    async with env.serving():
        return await asyncio.gather(
            *(
                env.run_slot(slot, ModelContext(client=client, model=UNUSUAL.get(offset, USUAL)), gate)
                for offset, slot in enumerate(env.slots(task, GROUP_SIZE))
            )
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Play, store and credit the group. Exit status as `bfcl-rollout credit`; 2 if OUT holds a run already."""
    parser = argparse.ArgumentParser(prog="python -m bfcl_multi_turn.credit.case_study", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, help="run directory to write (default: a new one below outputs/)")
    out: Path = parser.parse_args(argv).out or Path("outputs") / "credit-case-study" / uuid.uuid4().hex[:8]
    if (out / TRACES_FILE).exists():
        print(f"there is a run in {out} already", file=sys.stderr)
        return 2
    with ScriptedServer() as server:
        episodes = asyncio.run(play_group(server.url))
    out.mkdir(parents=True, exist_ok=True)
    for episode in episodes:
        write_episode(out, episode)
    options = ["--task", STUDIED, "--user-turn", str(STUDIED_TURN), "--group-size", str(GROUP_SIZE), "--published"]
    return credit([str(out), *options])


if __name__ == "__main__":
    sys.exit(main())

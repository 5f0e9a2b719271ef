"""Credit of rollouts that the environment played: what it has to record for the group to be credited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bfcl_multi_turn.credit import credit_episodes
from bfcl_multi_turn.interactive.records import INFO_KEY, InteractionLog
from bfcl_rollout.scripted import ScriptedServer
from endpoint_helpers import endpoint, says
from eval_helpers import evaluate
from verifiers.v1.episode import Episode

ENTRY = "multi_turn_base_1"


def play(url: str, out: Path, *, model: str = "m", mode: str = "fc", ids: str = ENTRY, **agent: Any) -> Episode:
    env = {
        "taskset": {"categories": ["base"]},
        "agent": {"harness": {"id": "bfcl-multi-turn", "mode": mode}, **agent},
    }
    (episode,) = evaluate("bfcl-multi-turn", model, url, out, env=env, select={"include": {"ids": [ids]}})
    assert episode.ok
    return episode


def log_of(episode: Episode) -> InteractionLog:
    return InteractionLog.model_validate(episode.traces[0].info[INFO_KEY])


@pytest.mark.slow
def test_a_rollout_cut_off_by_the_run_does_not_cost_its_group_the_credit(
    scripted: ScriptedServer, tmp_path: Path
) -> None:
    gold, mistake = "scripted/multi-turn-gold", "scripted/multi-turn-parse-errors"
    group = [
        play(scripted.url, tmp_path / "0", model=gold),
        play(scripted.url, tmp_path / "1", model=mistake),
        play(scripted.url, tmp_path / "2", model=gold, max_turns=3),
    ]
    cut = group[2].traces[0]
    assert cut.stop_condition == "max_turns"
    sampled = sum(node.sampled for node in cut.nodes)
    assert sampled == 3
    assert log_of(group[2]).turn_scores == [None] * 4
    assert cut.info["turn_rewards"] == [None] * sampled
    credit = credit_episodes(group).credit
    assert [skip.reason for skip in credit.skips if skip.rollout == 2] == ["no_interactions"]
    assert {step.rollout for step in credit.steps} == {0, 1}
    assert any(step.local.active for step in credit.steps)
    assert [rollout.outcome for rollout in credit.rollouts] == [1.0, 0.0, 0.0]


@pytest.mark.slow
def test_positional_calls_of_prompting_mode_earn_what_bfcl_executes_of_them(tmp_path: Path) -> None:
    group = []
    for number, call in enumerate(["cd('document')", "cd(folder='document')"]):
        with endpoint(says(f"[{call}]"), says("That is done.")) as at:
            group.append(play(at.url, tmp_path / str(number), mode="prompting", ids="multi_turn_base_0"))
    first = [log_of(episode).interactions[0] for episode in group]
    assert [[(made.name, made.arguments, made.valid) for made in step.calls] for step in first] == [
        [("cd", {}, True)],
        [("cd", {"folder": "document"}, True)],
    ]
    assert "missing 1 required positional argument" in first[0].results[0]
    credit = credit_episodes(group).credit
    rewards = [step.step_reward for step in credit.steps if step.interaction.user_turn == 0]
    assert rewards == [pytest.approx(1 / 3), 1.0]

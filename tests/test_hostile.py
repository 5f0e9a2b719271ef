"""The hostile policy, through the environment: it gets no code run and no answer right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout.harness import record_of
from bfcl_rollout.scripted import ScriptedServer
from bfcl_rollout.scripted.hostile import MARKER
from eval_helpers import evaluate, questions

BACKENDS = [("kv", "fc"), ("rec_sum", "fc"), ("kv", "prompting")]


@pytest.mark.parametrize(("backend", "mode"), BACKENDS)
def test_the_hostile_policy_escapes_nowhere(
    scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, mode: str
) -> None:
    monkeypatch.chdir(tmp_path)
    role = {"harness": {"mode": mode}}
    env: dict[str, Any] = {
        "taskset": {"backends": [backend], "scenarios": ["notetaker"]},
        "prefill": role,
        "agent": role,
        "max_concurrent_agents": 4,
    }
    (episode,) = evaluate("bfcl-v4-memory", "scripted/hostile", scripted.url, tmp_path, env=env)
    assert episode.ok, episode.last_error
    assert sum(trace.reward for trace in questions(episode)) == 0
    records = [record for trace in episode.traces if (record := record_of(trace)) is not None]
    assert len(records) == 30
    steps = [step for record in records for turn in record.turns for step in turn.steps]
    # Some attacks do not survive decoding, the others are answered by the guard.
    assert sum(bool(step.blocked) for step in steps) > 10
    assert not list(tmp_path.rglob(MARKER))
    assert not Path(MARKER).exists()

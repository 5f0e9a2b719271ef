"""The environment through verifiers' own runner, against the embedded model."""

from __future__ import annotations

import asyncio
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from bfcl_multi_turn import scripted as policies
from bfcl_multi_turn.env import check_checker
from bfcl_multi_turn.interactive.prompt import FUNCTIONS_MARKER
from bfcl_multi_turn.interactive.records import InteractionLog
from bfcl_multi_turn.summary import WITHOUT, summarize
from bfcl_multi_turn.tasks import MultiTurnTask
from bfcl_multi_turn.taskset import MultiTurnTaskset, MultiTurnTasksetConfig
from bfcl_rollout import pool
from bfcl_rollout.errors import SetupError
from bfcl_rollout.harness import record_of
from bfcl_rollout.scripted import ScriptedServer
from bfcl_rollout.scripted.hostile import MARKER
from endpoint_helpers import calls, endpoint, says
from eval_helpers import evaluate
from multi_turn_helpers import golds
from verifiers.v1.trace import Trace
from verifiers.v1.utils.loaders import environment_class, harness_class, resolve_env_config, taskset_class

OFFICIAL: dict[str, Any] = {"mode": "fc"}
PROMPTING: dict[str, Any] = {"mode": "prompting"}
INTERACTIVE: dict[str, Any] = {"protocol": "interactive"}
FORMS = [OFFICIAL, PROMPTING, INTERACTIVE]


def run(
    model: str,
    url: str,
    out: Path,
    harness: dict[str, Any],
    *,
    category: str = "base",
    ids: list[str] | None = None,
    agent: dict[str, Any] | None = None,
    task: dict[str, Any] | None = None,
    **settings: Any,
) -> list[Trace]:
    """One trace a rollout, in the order of the tasks."""
    env = {
        "taskset": {"categories": [category], "task": task or {}},
        "agent": {"harness": {"id": "bfcl-multi-turn", **harness}, **(agent or {})},
    }
    select = {"include": {"ids": ids}} if ids else {"limit": 2}
    episodes = evaluate("bfcl-multi-turn", model, url, out, env=env, select=select, **settings)
    traces = [trace for episode in episodes for trace in episode.traces]
    return sorted(traces, key=lambda trace: str(trace.task.data.entry_id))


def log_of(trace: Trace) -> InteractionLog:
    return InteractionLog.model_validate(trace.info["interactions"])


def test_the_package_exports_what_verifiers_looks_for() -> None:
    assert taskset_class("bfcl-multi-turn").__name__ == "MultiTurnTaskset"
    assert harness_class("bfcl-multi-turn").__name__ == "MultiTurnHarness"
    assert environment_class("bfcl-multi-turn").__name__ == "MultiTurnEnv"


@pytest.mark.parametrize("harness", FORMS)
@pytest.mark.parametrize(
    ("category", "model", "entry"),
    [
        ("base", "multi-turn-gold", "multi_turn_base_17"),
        ("miss_func", "multi-turn-gold", "multi_turn_miss_func_3"),
        ("miss_param", "multi-turn-gold-param", "multi_turn_miss_param_195"),
        ("long_context", "multi-turn-gold-long", "multi_turn_long_context_38"),
    ],
)
def test_the_accepted_calls_pass_in_every_form(
    scripted: ScriptedServer, tmp_path: Path, harness: dict[str, Any], category: str, model: str, entry: str
) -> None:
    (trace,) = run(f"scripted/{model}", scripted.url, tmp_path, harness, category=category, ids=[entry])
    assert trace.ok, trace.last_error
    assert trace.reward == 1.0
    assert trace.metrics["progress"] == 1.0
    assert trace.metrics["official_valid"] == 1.0
    assert trace.metrics["first_bad_turn"] == -1.0
    log = log_of(trace)
    assert set(log.turn_scores) == {1}
    sampled = [index for index, node in enumerate(trace.nodes) if node.sampled]
    assert [step.node for step in log.interactions] == sampled
    assert trace.info["turn_rewards"].count(1.0) == len(log.turn_scores)
    assert len(trace.info["turn_rewards"]) == len(sampled)
    assert trace.info["turn_rewards"][-1] == 1.0


@pytest.mark.parametrize(
    ("model", "harness", "progress", "first_bad", "forced"),
    [
        ("multi-turn-mistake", OFFICIAL, 0.0, 0.0, 0.0),
        ("multi-turn-mistake", INTERACTIVE, 0.0, 0.0, 0.0),
        ("multi-turn-skip", OFFICIAL, 0.75, 0.0, 0.0),
        ("multi-turn-skip", INTERACTIVE, 0.75, 0.0, 0.0),
        ("multi-turn-runaway", OFFICIAL, 0.25, 1.0, 1.0),
        ("multi-turn-runaway", INTERACTIVE, 0.25, 1.0, 0.0),
        ("multi-turn-parse-errors", OFFICIAL, 0.0, 0.0, 0.0),
        ("multi-turn-parse-errors", INTERACTIVE, 1.0, -1.0, 0.0),
    ],
)
def test_what_goes_wrong_shows_in_the_metrics(
    scripted: ScriptedServer,
    tmp_path: Path,
    model: str,
    harness: dict[str, Any],
    progress: float,
    first_bad: float,
    forced: float,
) -> None:
    # The first turn of entry 1 only looks, so that skipping it leaves the others intact.
    ids = ["multi_turn_base_0" if model == "multi-turn-mistake" else "multi_turn_base_1"]
    (trace,) = run(f"scripted/{model}", scripted.url, tmp_path, harness, ids=ids)
    assert trace.ok, trace.last_error
    assert trace.metrics["progress"] == progress
    assert trace.metrics["first_bad_turn"] == first_bad
    assert trace.metrics["force_quit"] == forced
    interactive = harness is INTERACTIVE
    assert trace.reward == (progress if interactive else 0.0)
    if model == "multi-turn-runaway":
        # 21 steps officially, six attempts a user turn interactively.
        assert trace.metrics["n_tool_calls"] == (24.0 if interactive else 21.0)
        assert trace.metrics["turns_completed"] == (4.0 if interactive else 0.0)
    if model == "multi-turn-parse-errors":
        assert trace.metrics["n_decode_failures"] == 4.0


def test_the_reward_can_be_progress_in_either_protocol(scripted: ScriptedServer, tmp_path: Path) -> None:
    ids = ["multi_turn_base_1"]
    (trace,) = run("scripted/multi-turn-skip", scripted.url, tmp_path, OFFICIAL, ids=ids, task={"reward": "progress"})
    assert trace.reward == 0.75
    other = tmp_path / "other"
    (trace,) = run("scripted/multi-turn-skip", scripted.url, other, INTERACTIVE, ids=ids, task={"reward": "verdict"})
    assert trace.reward == 0.0


@pytest.mark.parametrize(("harness", "progress"), [(OFFICIAL, 0.0), (INTERACTIVE, 0.25)])
def test_a_limit_of_the_run_ends_a_rollout_with_what_it_did(
    scripted: ScriptedServer, tmp_path: Path, harness: dict[str, Any], progress: float
) -> None:
    ids = ["multi_turn_base_1"]
    (trace,) = run("scripted/multi-turn-gold", scripted.url, tmp_path, harness, ids=ids, agent={"max_turns": 3})
    assert trace.stop_condition == "max_turns"
    assert trace.ok
    assert trace.reward == progress
    assert trace.metrics["progress"] == progress


def _card() -> str:
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.long_context import CREDIT_CARD_EXTENSION

    return str(next(iter(CREDIT_CARD_EXTENSION)))


def _record(trace: Trace) -> dict[str, Any]:
    record = record_of(trace)
    assert record is not None
    return record.model_dump()


@pytest.mark.parametrize("case", ["card", "logarithm"])
def test_sixteen_rollouts_at_once_equal_sixteen_in_a_row(tmp_path: Path, case: str) -> None:
    if case == "card":
        category, entry = "long_context", "multi_turn_long_context_155"
        account = {"access_token": "abc123xyz", "card_id": _card()}
        flight = {"travel_date": "2027-01-05", "travel_from": "RMS", "travel_to": "SBK", "travel_class": "economy"}
        look = ("get_credit_card_balance", account)
        actions = [calls(look), calls(("book_flight", account | flight)), calls(look)]
    else:
        category, entry = "base", "multi_turn_base_57"
        actions = [
            calls(("logarithm", {"value": 630.0, "base": 10, "precision": 50})),
            calls(("logarithm", {"value": 630.0, "base": 10, "precision": 5})),
        ]
    records = []
    with endpoint(*actions, says("done")) as at:
        for concurrency in (1, 16):
            traces = run(
                "canned",
                at.url,
                tmp_path / str(concurrency),
                OFFICIAL,
                category=category,
                ids=[entry],
                num_rollouts=16,
                max_concurrent=concurrency,
            )
            assert len(traces) == 16
            records += [_record(trace) | {"verdict": trace.info["verdict"]} for trace in traces]
    assert all(record == records[0] for record in records)
    results = [step["results"] for step in records[0]["turns"][0]["steps"] if step["results"]]
    if case == "card":
        before, booked, after = (json.loads(result) for (result,) in results)
        assert booked["booking_status"] is True
        assert after["card_balance"] < before["card_balance"]
    else:
        (long,), (short,) = results
        assert len(long) > len(short) + 40


@pytest.mark.parametrize("harness", FORMS)
def test_the_hostile_policy_escapes_nowhere(
    scripted: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harness: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = [f"multi_turn_base_{family}" for family in (0, 30, 60, 90, 120, 150)]
    traces = run("scripted/hostile", scripted.url, tmp_path, harness, ids=ids)
    assert [trace.ok for trace in traces] == [True] * len(ids)
    assert sum(trace.metrics["official_valid"] or 0 for trace in traces) == 0
    assert not list(tmp_path.rglob(MARKER))
    known = [line for entry in ids for turn in golds(entry) for line in turn if len(line) > 40]
    seen = [text for trace in traces for node in trace.nodes if node.sampled for text in [str(node.message.content)]]
    assert not [line for line in known for text in seen if line in text]


def test_a_run_ends_with_its_table(scripted: ScriptedServer, tmp_path: Path) -> None:
    ids = ["multi_turn_base_1", "multi_turn_base_173"]
    run("scripted/multi-turn-skip", scripted.url, tmp_path, OFFICIAL, ids=ids)
    summary = summarize(tmp_path / "run")
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert {key: value for key, value in summary.items() if key != "table"} == stored
    assert stored["categories"]["base"]["n"] == 2
    assert stored[WITHOUT]["n"] == 1
    assert stored["categories"]["base"]["passed"] == 0
    assert 0 < stored["categories"]["base"]["progress"] < 1
    assert not stored["complete"]
    assert not stored["is_leaderboard_score"]
    assert stored["split_sha256"] in summary["table"]
    assert "INCOMPLETE" in summary["table"]


def test_a_checker_that_cannot_tell_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def blind(self: pool.WorkerPool, spec: Any) -> bool:
        return False

    monkeypatch.setattr(pool.WorkerPool, "selftest", blind)
    with pytest.raises(SetupError, match="cannot tell right from wrong"):
        asyncio.run(check_checker("a b"))


def test_the_training_config_resolves() -> None:
    path = Path(policies.__file__).parents[1] / "configs" / "train.toml"
    orchestrator = tomllib.loads(path.read_text(encoding="utf-8"))["orchestrator"]
    resolved = {}
    for kind in ("train", "eval"):
        (source,) = orchestrator[kind]["source"]
        config = resolve_env_config({key: value for key, value in source.items() if key != "name"})
        assert isinstance(config.taskset, MultiTurnTasksetConfig)
        (harness,) = config.agent_harnesses().values()
        assert harness.id == "bfcl-multi-turn"
        resolved[kind] = (config.taskset.split, harness.protocol)
        assert len(list(MultiTurnTaskset(config.taskset).load())) == (480 - 7 if kind == "train" else 160)
    assert resolved == {"train": ("train", "interactive"), "eval": ("dev", "official")}


@pytest.mark.slow
def test_every_task_is_valid() -> None:
    tasks = list(MultiTurnTaskset(MultiTurnTasksetConfig.model_validate({"id": "bfcl-multi-turn"})).load())

    async def validate() -> list[str]:
        await pool.acquire()
        few = asyncio.Semaphore(4)

        async def check(task: MultiTurnTask) -> bool:
            async with few:
                return await task.validate(None)

        try:
            valid = await asyncio.gather(*map(check, tasks))
        finally:
            pool.release()
        return [task.key for task, is_valid in zip(tasks, valid, strict=True) if not is_valid]

    assert len(tasks) == 800
    assert asyncio.run(validate()) == []


def test_the_embedded_model_knows_every_conversation() -> None:
    for script in policies.scripts():
        prefer = "base" if script.variant == "miss_func" else script.variant
        for form in ("fc", "prompting", "interactive"):
            messages = []
            for turn, question in enumerate(script.questions):
                messages.append({"role": "user", "content": question or policies.RESTORED})
                marker = FUNCTIONS_MARKER if form == "interactive" else ""
                listed = " ".join(f"'name': '{name}'" for name in script.offered[0])
                body: dict[str, Any] = {"messages": [{"role": "system", "content": marker + listed}, *messages]}
                if form == "fc":
                    body = {
                        "messages": messages,
                        "tools": [{"function": {"name": name}} for name in script.offered[turn]],
                    }
                scene = policies.recognise(body, prefer)
                assert scene is not None
                assert (scene.form, scene.turn, scene.calls) == (form, turn, script.calls[turn])

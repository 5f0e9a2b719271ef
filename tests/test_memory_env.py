"""bfcl-v4-memory through verifiers' runner, on the embedded model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from bfcl_rollout import metrics, pool
from bfcl_rollout.harness import record_of
from bfcl_rollout.scripted import ScriptedServer
from bfcl_v4_memory import MemoryTaskset
from bfcl_v4_memory.summary import summarize
from bfcl_v4_memory.taskset import MemoryData, MemoryTask, MemoryTasksetConfig, chain
from endpoint_helpers import Endpoint, calls, endpoint, says
from eval_helpers import eval_config, evaluate, questions
from verifiers.v1.episode import Episode
from verifiers.v1.utils.loaders import load_environment

NAME = "bfcl-v4-memory"
KV = {"taskset": {"backends": ["kv"], "scenarios": ["notetaker"]}, "max_concurrent_agents": 4}


def verdicts(episode: Episode) -> dict[str, Any]:
    return {trace.task.data.entry_id: trace.info["verdict"] for trace in questions(episode)}


def tasks(**config: Any) -> list[MemoryTask]:
    return list(MemoryTaskset(MemoryTasksetConfig(id=NAME, **config)))


def test_the_benchmark_is_fifteen_chains_of_111_sessions_and_465_questions() -> None:
    loaded = tasks()
    assert [task.key for task in loaded][:5] == [
        f"kv/{name}" for name in ("student", "customer", "finance", "healthcare", "notetaker")
    ]
    assert len(loaded) == 15
    chains = [chain(task.data.backend, task.data.scenario) for task in loaded]
    assert sum(len(found.sessions) for found in chains) == 111
    assert sum(len(found.questions) for found in chains) == 465


def test_sessions_are_in_the_order_they_depend_on_each_other() -> None:
    assert [entry_id for entry_id, _ in chain("vector", "finance").sessions] == [
        f"memory_vector_prereq_{15 + position}-finance-{position}" for position in range(7)
    ]


def test_the_question_unit_is_465_tasks_with_stable_unique_keys() -> None:
    keys = [task.key for task in tasks(unit="question")]
    assert len(set(keys)) == 465
    assert keys == [task.key for task in tasks(unit="question")]
    assert "memory_rec_sum_154-notetaker-24" in keys


def test_no_task_carries_an_answer() -> None:
    from bfcl_rollout import official

    answers = official.package_dir() / "data" / "possible_answer" / "BFCL_v4_memory.json"
    golds = {row["id"]: row["ground_truth"] for row in map(json.loads, answers.read_text().splitlines())}
    for task in tasks(unit="question", backends=["kv"]):
        assert not {"ground_truth", "answer", "gold"} & set(task.data.model_dump())
        assert task.key.replace("memory_kv", "memory") in golds


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("backends", ["kv", "disk"], "unknown backend 'disk'; known: kv, vector, rec_sum"),
        ("scenarios", ["work"], "unknown scenario 'work'; known: student"),
        ("backends", [], "no backend selected"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(field: str, value: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MemoryTasksetConfig.model_validate({field: value})


@pytest.fixture(scope="module")
def kv_run(scripted: ScriptedServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Episode, Path]:
    out = tmp_path_factory.mktemp("kv")
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, out, env=KV)
    return episode, out / "run"


def test_an_episode_is_sessions_in_order_then_questions(kv_run: tuple[Episode, Path]) -> None:
    episode, _ = kv_run
    assert episode.ok
    sessions = episode.by_agent["prefill"]
    assert [trace.task.data.entry_id for trace in sessions] == [i for i, _ in chain("kv", "notetaker").sessions]
    assert len(episode.by_agent["agent"]) == 25
    assert {trace.agent.trainable for trace in sessions} == {False}
    assert all(trace.rewards == {} and trace.metrics == {} for trace in sessions)


def test_each_session_starts_from_what_the_last_one_left(kv_run: tuple[Episode, Path]) -> None:
    episode, _ = kv_run
    memory = None
    for trace in episode.by_agent["prefill"]:
        assert trace.task.data.memory == memory
        record = record_of(trace)
        assert record is not None
        memory = record.memory
    assert {trace.task.data.memory for trace in questions(episode)} == {memory}


def test_a_question_carries_the_record_and_its_metrics(kv_run: tuple[Episode, Path]) -> None:
    episode, _ = kv_run
    trace = questions(episode)[0]
    record = record_of(trace)
    assert record is not None
    assert trace.info["test_id"] == record.test_id == trace.task.data.entry_id
    assert (trace.info["role"], trace.info["backend"], trace.info["scenario"]) == ("agent", "kv", "notetaker")
    assert set(trace.metrics) == {
        "n_tool_calls",
        "n_tool_errors",
        "answered",
        "abstained",
        "graded_malformed_call",
        "gold_in_prompt",
        "gold_in_tool_result",
        "answer_chars",
        "force_quit",
    }
    assert trace.metrics["n_tool_calls"] == len(metrics.tool_results(record)) > 0
    assert trace.reward == float(trace.info["verdict"]["valid"])


def test_the_summary_is_question_accuracy(kv_run: tuple[Episode, Path]) -> None:
    episode, run_dir = kv_run
    accuracy = sum(trace.reward for trace in questions(episode)) / 25
    assert accuracy > 0.2
    summary = summarize(run_dir)
    assert summary["backends"]["kv"]["accuracy"] == summary["memory_score"] == accuracy
    assert summary["complete"]
    assert not summary["is_leaderboard_score"]
    assert json.loads((run_dir / "summary.json").read_text())["memory_score"] == accuracy
    assert f"{100 * accuracy:.1f} %" in summary["table"]


def test_concurrency_and_repetition_change_nothing(
    kv_run: tuple[Episode, Path], scripted: ScriptedServer, tmp_path: Path
) -> None:
    env = KV | {"max_concurrent_agents": 1}
    episodes = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env, num_rollouts=2, max_concurrent=2)
    assert [verdicts(episode) for episode in episodes] == [verdicts(kv_run[0])] * 2


def test_roles_may_use_different_models(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"agent": {"model": "scripted/text"}}
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    assert all(record.graded_message for record in map(record_of, questions(episode)) if record)
    assert {trace.metrics["n_tool_calls"] for trace in questions(episode)} == {0.0}
    assert {trace.agent.config.model for trace in episode.by_agent["prefill"]} == {"scripted/recall"}


def test_the_question_unit_builds_each_memory_once(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = {
        "taskset": {"backends": ["kv"], "scenarios": ["notetaker"], "unit": "question"},
        "snapshots": str(tmp_path / "snapshots"),
    }
    select = {"include": {"ids": ["memory_kv_130-notetaker-0", "memory_kv_131-notetaker-1"]}}
    episodes = evaluate(
        NAME, "scripted/recall", scripted.url, tmp_path, env=env, select=select, num_rollouts=4, max_concurrent=8
    )
    assert len(episodes) == 8
    assert all(episode.ok for episode in episodes)
    assert sum(len(episode.by_agent.get("prefill", [])) for episode in episodes) == 5
    assert len({questions(episode)[0].task.data.memory for episode in episodes}) == 1
    (stored,) = (tmp_path / "snapshots").glob("*.json")
    assert json.loads(stored.read_text())["memory"] == questions(episodes[0])[0].task.data.memory
    again = evaluate(NAME, "scripted/recall", scripted.url, tmp_path / "again", env=env, select=select, num_rollouts=1)
    assert [len(episode.traces) for episode in again] == [1, 1]


def _build(url: str, out: str) -> None:
    env = {
        "taskset": {"backends": ["kv"], "scenarios": ["notetaker"], "unit": "question"},
        "snapshots": str(Path(out).parent / "shared"),
    }
    select = {"include": {"ids": ["memory_kv_130-notetaker-0"]}}
    (episode,) = evaluate(NAME, "scripted/recall", url, Path(out), env=env, select=select)
    assert episode.ok
    (Path(out) / "result.json").write_text(json.dumps([len(episode.traces), questions(episode)[0].task.data.memory]))


@pytest.mark.slow
def test_two_processes_on_one_snapshot_folder_build_it_once(scripted: ScriptedServer, tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_build, args=(scripted.url, str(tmp_path / name))) for name in ("one", "two")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "two")]
    assert sorted(count for count, _ in results) == [1, 6]
    assert results[0][1] == results[1][1]


def test_a_question_that_gets_no_memory_is_counted_as_an_error(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = {"taskset": {"backends": ["kv"], "scenarios": ["notetaker"], "unit": "question"}}
    select = {"include": {"ids": ["memory_kv_130-notetaker-0"]}}
    (episode,) = evaluate(NAME, "scripted/recall?fault=400", scripted.url, tmp_path, env=env, select=select)
    assert not episode.ok
    assert summarize(tmp_path / "run")["backends"]["kv"]["errors"] == 1


@pytest.mark.parametrize("fault", ["500", "400", "malformed", "drop"])
def test_a_failing_session_fails_the_episode_and_scores_nothing(
    scripted: ScriptedServer, tmp_path: Path, fault: str
) -> None:
    (episode,) = evaluate(NAME, f"scripted/recall?fault={fault}", scripted.url, tmp_path, env=KV)
    assert not episode.ok
    assert episode.last_error is not None
    assert "session memory_kv_prereq_32-notetaker-0 failed" in episode.last_error.message
    (trace,) = episode.traces
    assert not trace.ok
    assert trace.last_error is not None
    assert trace.last_error.type == "ProviderError"


def test_a_failing_question_is_an_error_and_not_a_wrong_answer(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"agent": {"model": "scripted/recall?fault=500&after=1"}}
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    failed = questions(episode)
    assert len(failed) == 25
    assert all(not trace.ok and trace.reward == 0 and trace.rewards == {} for trace in failed)
    summary = summarize(tmp_path / "run")
    assert summary["backends"]["kv"] | {"wilson_95": None} == {
        "accuracy": None,
        "correct": 0,
        "n": 0,
        "wilson_95": None,
        "errors": 25,
        "expected": 25,
        "coverage": 0.0,
        "sessions": 5,
        "session_errors": 0,
    }
    assert "INCOMPLETE" in summary["table"]


def test_endless_rate_limits_end_as_an_endpoint_error(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"prefill": {"harness": {"id": NAME, "rate_limit_patience": 0.5}}}
    (episode,) = evaluate(NAME, "scripted/recall?fault=429", scripted.url, tmp_path, env=env)
    (trace,) = episode.traces
    assert trace.last_error is not None
    assert trace.last_error.type == "ProviderError"
    assert trace.last_error.status_code == 429


def test_a_rollout_that_runs_out_of_time_is_an_error(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"agent": {"model": "scripted/recall?fault=stall", "timeout": {"rollout": 0.5}}}
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    for trace in questions(episode):
        assert not trace.ok
        assert trace.is_timeout
        assert trace.rewards == {"correct": None}


def test_a_limit_of_the_run_ends_a_question_without_an_answer(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"agent": {"max_turns": 1}}
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    stopped = [trace for trace in questions(episode) if trace.stop_condition == "max_turns"]
    assert stopped
    assert all(trace.ok and trace.reward == 0.0 for trace in stopped)
    assert {trace.info["verdict"]["error_type"] for trace in stopped} == {"agentic:no_last_message"}


def test_a_limit_of_the_run_in_a_session_fails_the_episode(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"prefill": {"max_turns": 2}}
    (episode,) = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    assert episode.last_error is not None
    assert "stopped: max_turns" in episode.last_error.message


def test_a_session_that_breaks_itself_leaves_the_memory_before_it(tmp_path: Path) -> None:
    class Breaking(Endpoint):
        """In the third session it stores half of a surrogate pair, which no later prompt can carry."""

        def reply(self, body: dict[str, Any]) -> dict[str, Any]:
            last = body["messages"][-1]
            if last["role"] == "user" and "Dishes" in last["content"]:
                return calls(("memory_append", '{"text": "\\ud800"}'))
            return says("fine")

    env = {"taskset": {"backends": ["rec_sum"], "scenarios": ["notetaker"]}, "max_concurrent_agents": 4}
    with endpoint(kind=Breaking) as at:
        (episode,) = evaluate(NAME, "canned", at.url, tmp_path, env=env)
    assert episode.ok, episode.last_error
    records = [record_of(trace) for trace in episode.by_agent["prefill"]]
    assert [record.inference_error is not None for record in records if record] == [False, False, False, True, True]
    assert {trace.task.data.memory for trace in questions(episode)} == {'{\n    "memory": "\\ud800"\n}'}
    assert {trace.reward for trace in questions(episode)} == {0.0}
    assert {trace.info["verdict"]["error_type"] for trace in questions(episode)} == {"agentic:inference_error"}


def test_killing_a_worker_fails_exactly_its_trace(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = KV | {"agent": {"model": "scripted/recall?fault=stall&after=1"}, "max_concurrent_agents": None}

    async def run() -> Episode:
        config = eval_config(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
        environment = load_environment(config.env)
        (task,) = environment.taskset
        context = vf.ModelContext(client=config.client, model=config.model, sampling=config.sampling)
        async with environment.serving():
            (slot,) = environment.slots(task)
            playing = asyncio.create_task(environment.run_slot(slot, context))
            zygote = None
            while len(workers := _children(zygote := pool.shared().pid)) < 25:
                await asyncio.sleep(0.05)
            assert zygote is not None
            for worker in workers[:3]:
                os.kill(worker, signal.SIGKILL)
            while sum(trace.is_completed for trace in slot.traces) < 8:
                await asyncio.sleep(0.05)
            os.kill(zygote, signal.SIGKILL)
            return await playing

    episode = asyncio.run(run())
    messages = [trace.last_error.message for trace in questions(episode) if trace.last_error]
    assert len(messages) == 25
    assert sum("killed by signal 9" in message for message in messages) == 3
    assert sum("zygote died" in message for message in messages) == 22
    assert all(trace.ok for trace in episode.by_agent["prefill"])


def _children(pid: int | None) -> list[int]:
    if pid is None:
        return []
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_resume_completes_a_run(scripted: ScriptedServer, tmp_path: Path) -> None:
    env = {"taskset": {"backends": ["kv", "rec_sum"], "scenarios": ["notetaker"]}, "max_concurrent_agents": 4}
    first = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env)
    traces = tmp_path / "run" / "traces.jsonl"
    lines = traces.read_text().splitlines()
    broken = json.loads(lines[1])
    broken["ok"] = False
    traces.write_text(lines[0] + "\n" + json.dumps(broken) + "\n")
    resumed = evaluate(NAME, "scripted/recall", scripted.url, tmp_path, env=env, resume=True)
    assert len(resumed) == 2
    assert summarize(tmp_path / "run")["complete"]
    both = {key: value for episode in first for key, value in verdicts(episode).items()}
    assert {key: value for episode in resumed for key, value in verdicts(episode).items()} == both


def test_validation_passes_gold_and_fails_an_untouched_trace(tmp_path: Path) -> None:
    (task,) = tasks(backends=["kv"], scenarios=["notetaker"])
    assert asyncio.run(task.validate(None))
    trace: vf.Trace = vf.Trace(
        task=vf.TraceTask(type="MemoryTask", data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig(), name="agent", trainable=True),
    )
    question = task.question("memory_kv_130-notetaker-0", "{}")
    asyncio.run(question.score(trace))
    assert trace.reward == 0.0
    assert trace.info["verdict"]["error_type"] == "agentic:no_last_message"
    pool.shared().close()


def test_a_task_is_rebuilt_from_its_data() -> None:
    (task,) = tasks(backends=["kv"], scenarios=["notetaker"])
    minted = task.session(1, "{}")
    rebuilt = MemoryTask(MemoryData.model_validate_json(minted.data.model_dump_json()))
    assert rebuilt.key == minted.key == "memory_kv_prereq_33-notetaker-1"
    assert rebuilt.hooks("reward") == []


MAIN = "from bfcl_rollout.cli.run import main; main()"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, how: signal.Signals) -> None:
    marker = f"bfcl-rollout-test-{tmp_path.name}"
    rollouts = tmp_path / "home" / ".cache" / "verifiers" / "runtimes" / "subprocess"
    command = [
        *(sys.executable, "-c", MAIN, NAME, "-m", "scripted/recall?fault=stall&after=3"),
        *("--env.taskset.backends", "kv", "--env.taskset.scenarios", "notetaker", "--no-rich", "--no-push"),
        *("-o", str(tmp_path / "out"), "--run.name", marker),
    ]
    # verifiers keeps a rollout's folder in the cache of the user's home.
    environment = os.environ | {"TMPDIR": str(tmp_path / "tmp"), "HOME": str(tmp_path / "home")}
    (tmp_path / "tmp").mkdir()
    (tmp_path / "home").mkdir()
    main = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        deadline = time.monotonic() + 120
        # The embedded model, the zygote and a worker of it, and a rollout's folder.
        while len(family := _descendants(main.pid)) < 3 or not list(rollouts.glob("*")):
            assert main.poll() is None
            assert time.monotonic() < deadline, family
            time.sleep(0.05)
        main.send_signal(how)
        main.wait(60)
    finally:
        main.kill()
        main.wait()
    deadline = time.monotonic() + 30
    while left := [pid for pid in family if not _gone(pid)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
    while left_folders := [*(tmp_path / "tmp").glob("bfcl-rollout-*"), *rollouts.iterdir()]:
        assert time.monotonic() < deadline, left_folders
        time.sleep(0.05)


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # ended while we looked
        for task in Path(f"/proc/{pid}/task").iterdir():
            for text in (task / "children").read_text().split():
                found += [int(text), *_descendants(int(text))]
    return found


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True

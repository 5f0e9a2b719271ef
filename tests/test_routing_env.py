"""The environment as a user runs it: through verifiers' runner, against the embedded model."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from bfcl_rollout.errors import SetupError
from bfcl_rollout.request_harness import RequestData, RequestHarness, RequestHarnessConfig
from bfcl_rollout.scripted import ScriptedServer
from bfcl_routing import commands
from bfcl_routing.report.compare import compare
from bfcl_routing.report.plots import plot
from bfcl_routing.report.runs import read_run
from bfcl_routing.report.summary import summarize
from bfcl_routing.taskset import RoutingConfig, RoutingData, RoutingTask, RoutingTaskset, reply_choice
from endpoint_helpers import calls, endpoint, says
from eval_helpers import evaluate
from pydantic import ValidationError
from routing_helpers import FROZEN_FILES, shared
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

ENV = "bfcl-routing"
TEN = {"select": {"limit": 10}}


def routing(out: Path, policy: str, url: str, taskset: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A run; returns its episodes."""
    env = {"taskset": taskset or {}, **settings.pop("env", {})}
    return evaluate(ENV, policy, url, out, env=env, **settings)


def rewards(episodes: Any) -> list[float]:
    return [episode.traces[0].reward for episode in episodes]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suite", "policy", "expected"),
    [
        ("v1", "routing_first", (56, 50, 0)),
        ("v1", "routing_last", (64, 50, 0)),
        ("v1", "routing_none", (0, 0, 50)),
        ("v4_live", "routing_first", (66, 50, 0)),
        ("v4_live", "routing_last", (57, 50, 0)),
        ("v4_live", "routing_none", (0, 0, 50)),
        ("v1", "routing_oracle", (150, 50, 50)),
    ],
)
def test_whole_suites_through_the_environment(
    suite: str, policy: str, expected: tuple[int, ...], scripted: ScriptedServer, tmp_path: Path
) -> None:
    episodes = routing(tmp_path, f"scripted/{policy}", scripted.url, {"suite": suite})
    assert len(episodes) == 250
    assert all(episode.ok for episode in episodes)
    summary = summarize(tmp_path / "run")
    selection = summary["selection"]
    strata = ("multi_tool_call", "one_tool_call", "one_tool_no_call")
    assert tuple(selection[s]["right"] for s in strata) == expected
    assert [selection[s]["n"] for s in (*strata, "positives", "negatives", "pooled")] == [150, 50, 50, 200, 50, 250]
    assert sum(rewards(episodes)) == selection["pooled"]["right"] == sum(expected)
    assert summary["complete"]
    assert "PARTIAL" not in summary["table"]
    # The same numbers stand beside every result as baselines.
    names = {"routing_first": "first function", "routing_last": "last function", "routing_none": "no function"}
    if policy in names:
        assert summary["baselines"][names[policy]]["pooled"]["right"] == sum(expected)
    assert summary["baselines"]["uniform (expected)"]["pooled"]["right"] == pytest.approx(
        76.07 if suite == "v1" else 76.39, abs=0.01
    )


@pytest.mark.slow
def test_vf_run_and_vf_validate(tmp_path: Path) -> None:
    scripts = Path(sys.executable).parent
    run = subprocess.run(
        [scripts / "vf-run", ENV, "-m", "scripted/routing_first", "--no-push", "--no-rich", "--run.name", "a"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "106/250" in run.stdout
    check = subprocess.run(
        [scripts / "vf-validate", ENV, "--runtime.type", "subprocess", "--no-rich"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 0, check.stderr[-2000:]
    (summary,) = (json.loads(p.read_text()) for p in tmp_path.rglob("summary.json") if "checks" in p.read_text())
    assert summary["checks"]["gold"]["valid"] == summary["checks"]["noop"]["valid"] == 250


def test_the_request_is_what_the_view_says_and_nothing_more(tmp_path: Path) -> None:
    with endpoint(says("no_tool")) as model:
        (episode,) = routing(tmp_path, "m", model.url, select={"limit": 1})
    (request,) = model.requests
    assert set(request) == {"model", "messages", "temperature"}
    assert request["temperature"] == 0.0
    assert [m["role"] for m in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"].startswith("No action has been taken so far.\nRequest: ")
    data = episode.traces[0].task.data
    assert data.gold == ["math.triangle_area_heron"]
    trace = episode.traces[0]
    assert trace.reward == 0.0
    assert trace.metrics["outcome_under_call"] == 1.0
    assert trace.info["decision"]["action"] == "no_tool"
    assert trace.info["reply"]["wall_s"] > 0
    assert trace.info["reply"]["boundary"].startswith("http")


def test_parameters_of_a_form_are_sent_per_case_and_sampling_overrides_them(tmp_path: Path) -> None:
    with endpoint(calls(("math_triangle_area_heron", {}))) as model:
        episodes = routing(tmp_path, "m", model.url, {"form": "tool_call", "meta": "none"}, select={"limit": 2})
    assert sorted(rewards(episodes)) == [0.0, 1.0]
    assert all(len(r["tools"]) >= 2 for r in model.requests)
    assert episodes[0].traces[0].metrics["calls"] == 1.0
    with endpoint(says("A")) as model:
        taskset = {"form": "letters_logprob"}
        settings: dict[str, Any] = {"sampling": {"temperature": 0.5, "max_tokens": 4}}
        (episode,) = routing(tmp_path / "b", "m", model.url, taskset, select={"limit": 1}, **settings)
    assert (model.requests[0]["temperature"], model.requests[0]["max_tokens"]) == (0.5, 4)
    assert (model.requests[0]["logprobs"], model.requests[0]["top_logprobs"]) == (True, 20)
    # This endpoint gives no log probabilities: an invalid output, not an error.
    assert episode.ok
    assert episode.traces[0].info["decision"]["invalid"] == "no_logprobs"


def test_log_probabilities_survive_the_interception(scripted: ScriptedServer, tmp_path: Path) -> None:
    taskset = {"form": "letters_logprob"}
    episodes = routing(tmp_path, "scripted/routing_oracle", scripted.url, taskset, **TEN)
    assert rewards(episodes) == [1.0] * 10
    summary = summarize(tmp_path / "run")
    assert summary["calibration"]["n"] == 10
    assert summary["calibration"]["right_mass"] == pytest.approx(0.9)
    assert "Brier" in summary["table"]


def test_endpoint_failures_are_errors_without_a_reward(scripted: ScriptedServer, tmp_path: Path) -> None:
    harness = {"agent": {"harness": {"max_retries": 1, "backoff": 0.0}}}
    model = "scripted/routing_first:fault-503"
    episodes = routing(tmp_path, model, scripted.url, env=harness, select={"limit": 2})
    for episode in episodes:
        trace = episode.traces[0]
        assert not episode.ok
        assert not any(reward for reward in trace.rewards.values())
        assert trace.errors[-1].type == "ProviderError"
        assert len(trace.calls) == 2
    summary = summarize(tmp_path / "run")
    assert (summary["rollouts"]["failed"], summary["errors"]) == (2, {"ProviderError": 2})
    assert "pooled" not in summary["selection"]
    assert "PARTIAL: 0 of 250 tasks graded, 2 rollouts failed (ProviderError 2)" in summary["table"]
    # A client error is not repeated.
    episodes = routing(
        tmp_path / "b", "scripted/routing_first:fault-400", scripted.url, env=harness, select={"limit": 1}
    )
    assert len(episodes[0].traces[0].calls) == 1
    for fault in ("drop", "empty", "malformed"):
        (episode,) = routing(
            tmp_path / fault, f"scripted/routing_first:fault-{fault}", scripted.url, env=harness, select={"limit": 1}
        )
        assert not episode.ok, fault


def test_a_refused_call_is_an_answer_that_never_came(tmp_path: Path) -> None:
    with endpoint(says("no_tool")) as model:
        (episode,) = routing(tmp_path, "m", model.url, env={"agent": {"max_turns": 0}}, select={"limit": 1})
    assert not model.requests
    assert episode.ok
    assert episode.traces[0].reward == 0.0
    assert episode.traces[0].info["decision"]["invalid"] == "no_reply"


def test_only_one_request_tasks_and_the_local_runtime_are_played() -> None:
    harness = RequestHarness(RequestHarnessConfig(id=ENV))
    nothing: Any = None
    with pytest.raises(TypeError, match="one-request tasks, not TaskData"):
        asyncio.run(harness.launch(nothing, nothing, nothing, "", "", {}, vf.TaskData()))
    with pytest.raises(NotImplementedError, match=r"runtime\.type subprocess"):
        asyncio.run(harness.launch(nothing, nothing, nothing, "", "", {}, RequestData()))
    body = harness.body("m", RequestData(prompt=[vf.UserMessage(content="hi")], request={"top_p": 1}))
    assert body == {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.0, "top_p": 1}
    plain = RequestHarness(RequestHarnessConfig(id=ENV, temperature=None))
    assert "temperature" not in plain.body("m", RequestData(prompt="hi"))


def test_frozen_wording_through_the_environment(tmp_path: Path) -> None:
    path = shared(FROZEN_FILES["v1"])
    with endpoint(says("no_tool")) as model:
        taskset = {"wording": "frozen", "frozen_file": str(path)}
        routing(tmp_path, "m", model.url, taskset, select={"limit": 1})
    first = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    content = model.requests[0]["messages"][1]["content"]
    assert content.startswith(first["jev"]["laya"]["state"])
    assert all(f"- {o['id']}: {o['description']}" in content for o in first["jev"]["options"])


def test_rotations_and_repeats_are_reported(scripted: ScriptedServer, tmp_path: Path) -> None:
    taskset = {"order": "rotations"}
    settings: dict[str, Any] = {"num_rollouts": 2, "select": {"limit": 8}}
    routing(tmp_path, "scripted/routing_first", scripted.url, taskset, **settings)
    summary = summarize(tmp_path / "run")
    assert summary["tasks"] == {"expected": 527, "graded": 8}
    assert summary["order"]["flipped"] == summary["order"]["cases_in_several_orders"] == 3
    assert summary["repeats"] == {"tasks": 8, "changed": 0, "share": 0.0}
    assert summary["selection"]["pooled"]["method"] == "bootstrap"
    assert "majority" in summary["table"]
    with pytest.raises(SetupError, match="several times"):
        compare([read_run(tmp_path / "run"), read_run(tmp_path / "run")])


def test_runs_are_compared_and_drawn(
    scripted: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = []
    for policy in ("routing_first", "routing_words"):
        routing(tmp_path / policy, f"scripted/{policy}", scripted.url, **TEN)
        folders.append(str(tmp_path / policy / "run"))
    assert commands.main(["compare", *folders, "--output", str(tmp_path / "c.json")]) == 0
    assert "exact McNemar" in capsys.readouterr().out
    stored = json.loads((tmp_path / "c.json").read_text())
    test = stored["pairs"][0]["tests"]["pooled"]
    assert sum(test[k] for k in ("both", "only_first", "only_second", "neither")) == 10
    assert test["only_second"] > 0
    assert any("hardware not declared" in reason for reason in stored["latency_not_comparable"])
    assert commands.main(["plot", *folders, "--output", str(tmp_path / "figures")]) == 0
    written = sorted(p.name for p in (tmp_path / "figures").iterdir())
    assert written == [
        f"accuracy_{name}.{kind}" for name in ("against_latency", "by_stratum") for kind in ("png", "svg")
    ]
    assert (tmp_path / "figures" / "accuracy_by_stratum.png").read_bytes().startswith(b"\x89PNG")
    runs = [read_run(Path(folder)) for folder in folders]
    with pytest.raises(SetupError, match="different views"):
        plot([runs[0], runs[1]._replace(view_sha256="other")], tmp_path)


def test_different_views_are_never_merged(scripted: ScriptedServer, tmp_path: Path) -> None:
    for name, taskset in (("a", {}), ("b", {"card": "full"})):
        routing(tmp_path / name, "scripted/routing_first", scripted.url, taskset, select={"limit": 2})
    with pytest.raises(SetupError, match="different views"):
        compare([read_run(tmp_path / name / "run") for name in "ab"])
    merged = tmp_path / "a" / "run" / "traces.jsonl"
    merged.write_text(merged.read_text() + (tmp_path / "b" / "run" / "traces.jsonl").read_text())
    with pytest.raises(SetupError, match=r"never merged: v1/neutral/id_text, v1/neutral/id_text/card=full"):
        summarize(tmp_path / "a" / "run")


def test_broken_run_directories_are_refused(scripted: ScriptedServer, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"no traces\.jsonl"):
        summarize(tmp_path)
    routing(tmp_path, "scripted/routing_first", scripted.url, select={"limit": 3})
    traces = tmp_path / "run" / "traces.jsonl"
    lines = traces.read_text().splitlines()
    # A half-written last line is what a kill leaves.
    traces.write_text("\n".join([*lines[:2], lines[2][:50]]))
    assert summarize(tmp_path / "run")["rollouts"]["graded"] == 2
    traces.write_text("\n".join([lines[0][:50], lines[1]]))
    with pytest.raises(SetupError, match="line 1"):
        summarize(tmp_path / "run")
    traces.write_text("")
    with pytest.raises(SetupError, match="no routing traces"):
        summarize(tmp_path / "run")
    # Without the run's config nothing is known about how many cases there should be.
    traces.write_text("\n".join(lines))
    shutil.rmtree(tmp_path / "run" / "configs")
    assert not summarize(tmp_path / "run")["complete"]


def test_the_reward_can_be_a_proper_score(scripted: ScriptedServer, tmp_path: Path) -> None:
    taskset = {"form": "distribution", "task": {"reward": "brier"}}
    episodes = routing(tmp_path, "scripted/routing_oracle", scripted.url, taskset, select={"limit": 3})
    assert all(0.98 < reward < 1.0 for reward in rewards(episodes))
    with endpoint(says("not JSON")) as model:
        (episode,) = routing(tmp_path / "b", "m", model.url, taskset, select={"limit": 1})
    assert episode.traces[0].reward == 0.0


def load(**settings: Any) -> list[RoutingTask]:
    taskset = RoutingTaskset(RoutingConfig(id=ENV, **settings))
    return list(taskset)


def test_keys_are_unique_and_differ_between_views_and_splits() -> None:
    sets = [load(), load(suite="v4_live"), load(card="full"), load(split="train"), load(split="dev")]
    sets.append(load(order="rotations"))
    keys = [task.key for tasks in sets for task in tasks]
    assert len(set(keys)) == len(keys)
    assert [task.key for task in load()] == [task.key for task in sets[0]]


def test_tasks_are_rebuilt_from_their_data() -> None:
    task = load()[0]
    again = RoutingTask(RoutingData.model_validate_json(task.data.model_dump_json()))
    assert again.data == task.data
    assert again.key == task.key


def test_a_reply_is_found_without_our_harness(tmp_path: Path) -> None:
    with endpoint(calls(("no_tool", {}))) as model:
        (episode,) = routing(tmp_path, "m", model.url, {"form": "tool_call"}, select={"limit": 1})
    trace = episode.traces[0]
    del trace.info["reply"]
    assert reply_choice(trace) == {
        "message": {"content": None, "tool_calls": [{"function": {"name": "no_tool", "arguments": "{}"}}]}
    }
    trace.nodes.clear()
    assert reply_choice(trace) is None


def test_policies_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(ValidationError, match="ids must be native"):
        RoutingConfig(card="name", ids="letters")
    with pytest.raises(ValidationError, match="order is frozen"):
        RoutingConfig(order="sideways")


def test_the_environment_runs_locally_by_default() -> None:
    config = resolve_env_config({"taskset": {"id": ENV}})
    environment = load_environment(config)
    assert type(environment).__name__ == "RoutingEnv"
    assert config.model_dump()["agent"]["runtime"]["type"] == "subprocess"
    (harness,) = config.agent_harnesses().values()
    assert harness.id == ENV


def test_the_training_config_resolves() -> None:
    path = Path(commands.__file__).parents[1] / "configs" / "train.toml"
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    orchestrator = config["orchestrator"]
    splits = {}
    for kind in ("train", "eval"):
        (source,) = orchestrator[kind]["source"]
        env = resolve_env_config({k: v for k, v in source.items() if k != "name"})
        assert isinstance(env.taskset, RoutingConfig)
        splits[kind] = env.taskset.split
        assert next(iter(RoutingTaskset(env.taskset))).data.split == splits[kind]
    assert splits == {"train": "train", "eval": "dev"}


def test_the_embedded_policies_need_no_verifiers() -> None:
    code = (
        "import sys; from bfcl_rollout.scripted import resolve; resolve('scripted/routing_words');"
        "assert 'verifiers' not in sys.modules and 'bfcl_eval' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_bench_reports_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.main(["bench", "--passes", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6

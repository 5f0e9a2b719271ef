"""The commands a user types, as a user types them."""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from bfcl_rollout.cli import main as bfcl_rollout
from bfcl_rollout.scripted import ScriptedServer

SCRIPTS = Path(sysconfig.get_path("scripts"))
NOTETAKER = ("--env.taskset.backends", "kv", "--env.taskset.scenarios", "notetaker", "--env.max-concurrent-agents", "4")


def run(command: str, *arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"COLUMNS": "120", "TERM": "dumb"} | variables
    return subprocess.run(
        [SCRIPTS / command, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def run_dir(cwd: Path) -> Path:
    (found,) = (cwd / "outputs").iterdir()
    return found


def test_vf_run_plays_the_embedded_model_and_ends_with_a_table(tmp_path: Path) -> None:
    done = run("vf-run", "bfcl-v4-memory", "-m", "scripted/recall", *NOTETAKER, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "BFCL V4 memory, scripted/recall" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("run directory: ")
    summary = json.loads((run_dir(tmp_path) / "summary.json").read_text())
    assert summary["backends"]["kv"]["n"] == 25
    again = run("bfcl-rollout", "summary", str(run_dir(tmp_path)), cwd=tmp_path)
    assert again.stdout.strip() in done.stdout
    # The saved config names no port of an embedded model that is gone, so that the run can be resumed.
    saved = json.loads((run_dir(tmp_path) / "configs" / "resolved" / "eval.json").read_text())
    assert "127.0.0.1" not in saved["client"]["base_url"]


def test_the_seeds_flags_are_understood(tmp_path: Path) -> None:
    flags = [
        *("--env.taskset.scenarios", "notetaker"),
        *("--env.prefill.sampling.temperature", "0.001", "--env.agent.sampling.temperature", "0.001"),
        *("--env.max-concurrent-agents", "4", "--env.prefill.model", "a", "--env.agent.model", "b"),
        *(
            "--env.agent.client.type",
            "eval",
            "--env.agent.client.base-url",
            "http://127.0.0.1:1/v1",
            "--env.prefill.runtime.type",
            "prime",
        ),
    ]
    done = run("vf-run", "bfcl-v4-memory", "-m", "x", *flags, "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    saved = json.loads((run_dir(tmp_path) / "configs" / "resolved" / "eval.json").read_text())
    assert saved["env"]["prefill"]["model"] == "a"
    assert saved["env"]["agent"]["runtime"]["type"] == "subprocess"


@pytest.mark.slow
def test_resume_after_a_kill_completes_the_run_from_the_command_line(tmp_path: Path) -> None:
    arguments = ["bfcl-v4-memory", "-m", "scripted/recall", *NOTETAKER, "--run.name", "r", "-r", "2", "-c", "1"]
    first = run("vf-run", *arguments, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    traces = tmp_path / "outputs" / "r" / "traces.jsonl"
    lines = traces.read_text().splitlines()
    assert len(lines) == 2
    # A run killed while it wrote its second episode.
    traces.write_text(lines[0] + "\n")
    resumed = run("vf-run", *arguments, "--resume", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert len(traces.read_text().splitlines()) == 2
    summary = json.loads((traces.parent / "summary.json").read_text())
    assert summary["complete"]
    assert summary["backends"]["kv"]["n"] == 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "scripted/nobody"], "vf-run: no scripted policy named 'nobody'; there are scripted/"),
        (
            ["-m", "x", "--client.base-url", "http://127.0.0.1:1/v1"],
            "vf-run: the endpoint http://127.0.0.1:1/v1 cannot be reached (Connection refused)",
        ),
        (["-m", "scripted/recall", "--env.taskset.backends", "disk"], "unknown backend 'disk'; known: kv, vector"),
        (["-m", "scripted/recall", "--env.taskset.scenarios", "x"], "unknown scenario 'x'; known: student"),
        (["-m", "scripted/recall", "--env.snapshots", "/proc/nowhere"], "--env.snapshots: cannot write to"),
        (["-m", "scripted/recall", "--env.agent.harness.mode", "xml"], "'fc' or 'prompting'"),
    ],
)
def test_bad_input_is_one_clear_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = run("vf-run", "bfcl-v4-memory", *arguments, cwd=tmp_path)
    assert done.returncode != 0
    text = done.stdout + done.stderr
    assert message in text
    assert "Traceback" not in text


def test_doctor_reports_and_succeeds_where_everything_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert bfcl_rollout(["doctor"]) == 0
    text = capsys.readouterr().out
    for expected in ("verifiers ", "bfcl-eval 2026.3.23 in ", "filesystem: ", "environment bfcl-v4-memory"):
        assert expected in text
    assert "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db" in text


def test_doctor_fails_where_an_environment_could_not_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bfcl_rollout import official

    monkeypatch.setattr(official, "TREE_SHA256", "0" * 64)
    assert bfcl_rollout(["doctor"]) == 1
    assert "CANNOT RUN: its files are not those of the release" in capsys.readouterr().out


def test_unknown_commands_and_folders_are_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert bfcl_rollout(["frobnicate"]) == 2
    assert "unknown command 'frobnicate'; known: " in capsys.readouterr().err
    assert bfcl_rollout(["summary", str(tmp_path)]) == 2
    assert capsys.readouterr().err.strip() == f"bfcl-rollout summary: {tmp_path}: no traces.jsonl; name a run directory"


def test_the_embedded_model_can_be_served_alone(scripted: ScriptedServer) -> None:
    done = subprocess.run(
        [SCRIPTS / "bfcl-rollout", "scripted", "recall", "--port", scripted.url.split(":")[2].split("/")[0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("bfcl-rollout scripted: cannot listen on")


@pytest.mark.slow
def test_vf_validate_is_green(tmp_path: Path) -> None:
    done = run("vf-validate", "bfcl-v4-memory", "--no-rich", "--runtime.type", "subprocess", cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    rows = [json.loads(line) for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len(rows) == 15, [str(path) for path in tmp_path.rglob("*")]
    assert all(row["valid"] for row in rows)

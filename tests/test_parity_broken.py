"""A broken copy of our side is caught, and what is broken is named.

Our side plays the committed recording once. Each test breaks one thing in a copy of what that run left and compares
again, with what the recording says of official BFCL.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parity_helpers import RECORDING

from parity.__main__ import main

pytestmark = pytest.mark.slow

SESSION, QUESTION = "memory_kv_prereq_34-notetaker-2", "memory_kv_130-notetaker-0"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run's folder: our side of the recording, identical."""
    folder = tmp_path_factory.mktemp("parity") / "run"
    assert replay(folder) == 0
    return folder


def replay(folder: Path, *more: str) -> int:
    return main(["replay", str(RECORDING), "--only-ours", "--out", str(folder), *more])


@pytest.fixture
def copy(played: Path, tmp_path: Path) -> Path:
    shutil.copytree(played, tmp_path / "copy", symlinks=True)
    return tmp_path / "copy"


def edit_lines(path: Path, edit: Callable[[dict[str, Any]], bool]) -> None:
    """Change the first line of a file that `edit` takes."""
    lines = [json.loads(line) for line in path.read_text().split("\n") if line]
    assert any(edit(line) for line in lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def edit_trace(folder: Path, test_id: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change what a trace holds under `info`."""

    def find(episode: dict[str, Any]) -> bool:
        for trace in episode["traces"]:
            if trace["info"]["test_id"] == test_id:
                edit(trace["info"])
                return True
        return False

    edit_lines(folder / "ours" / "memory_kv" / "run" / "traces.jsonl", find)


def mismatches(folder: Path) -> list[dict[str, Any]]:
    """What comparing again finds, which must be something."""
    assert replay(folder, "--resume") == 1
    report = json.loads((folder / "report.json").read_text())
    assert report["conclusion"].startswith("NOT IDENTICAL")
    return [each for category in report["categories"].values() for each in category["mismatches"]]


def test_the_recording_is_replayed_identically(played: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(played, "--resume") == 0
    report = json.loads((played / "report.json").read_text())
    counts = {name: (count["equal"], count["total"]) for name, count in report["total"]["counts"].items()}
    assert counts["rollouts"] == (60, 60)
    assert counts["requests"] == (392, 392)
    assert counts["snapshot"] == (10, 10)
    assert counts["verdict"] == (50, 50)
    assert report["total"]["passed"]["official"] == report["total"]["passed"]["ours"] > 0
    assert "392 / 392" in capsys.readouterr().out
    assert "392 / 392" in (played / "report.md").read_text()


def test_one_wrong_temperature_is_caught_and_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def edit(line: dict[str, Any]) -> bool:
        if line.get("number") != 100:
            return False
        line["fields"]["temperature"] = 0.002
        return True

    edit_lines(copy / "ours" / "memory_kv" / "exchanges.jsonl", edit)
    (found,) = mismatches(copy)
    assert found["what"] == "request"
    assert found["where"].endswith(", temperature")
    assert found["test_id"].startswith("memory_kv")
    assert found["test_id"] in capsys.readouterr().out


def test_one_wrong_character_of_a_snapshot_is_caught_and_named(copy: Path) -> None:
    def edit(info: dict[str, Any]) -> None:
        text = info["bfcl"]["memory"]
        at = text.index("note") + 2
        info["bfcl"]["memory"] = text[:at] + "T" + text[at + 1 :]

    edit_trace(copy, SESSION, edit)
    (found,) = mismatches(copy)
    assert (found["test_id"], found["what"]) == (SESSION, "snapshot")


def test_one_flipped_verdict_is_caught_and_named(copy: Path) -> None:
    def edit(info: dict[str, Any]) -> None:
        info["verdict"]["valid"] = not info["verdict"]["valid"]

    edit_trace(copy, QUESTION, edit)
    (found,) = mismatches(copy)
    assert (found["test_id"], found["what"], found["where"]) == (QUESTION, "verdict", "valid")


@pytest.mark.parametrize(
    ("what", "edit"),
    [
        ("replies", lambda turns: turns[0]["steps"][-1].update(raw="something else")),
        ("calls", lambda turns: turns[0]["steps"][0].update(decoded=["f()"])),
        ("results", lambda turns: turns[0]["steps"][0].update(results=["ok"])),
    ],
)
def test_a_wrong_step_is_caught_and_named(copy: Path, what: str, edit: Callable[[Any], None]) -> None:
    edit_trace(copy, QUESTION, lambda info: edit(info["bfcl"]["turns"]))
    (found,) = mismatches(copy)
    assert (found["test_id"], found["what"]) == (QUESTION, what)


def test_a_rollout_that_is_missing_is_caught_and_named(copy: Path) -> None:
    def remove(episode: dict[str, Any]) -> bool:
        before = len(episode["traces"])
        episode["traces"] = [each for each in episode["traces"] if each["info"]["test_id"] != QUESTION]
        return len(episode["traces"]) < before

    edit_lines(copy / "ours" / "memory_kv" / "run" / "traces.jsonl", remove)
    found = mismatches(copy)
    assert {each["test_id"] for each in found} == {QUESTION}
    assert {each["ours"] for each in found} == {"absent (not played)"}


def test_a_side_that_asks_something_else_is_told_so(tmp_path: Path) -> None:
    """Not an edited file: our side plays with another temperature, and the recording does not know its requests."""
    from parity.categories.memory import MemoryCategory

    usual = MemoryCategory.run_arguments
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            MemoryCategory,
            "run_arguments",
            lambda self, *args: [*usual(self, *args), "--env.agent.sampling.temperature", "0.5"],
        )
        assert replay(tmp_path / "run") == 1
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    found = [each for category in report["categories"].values() for each in category["mismatches"]]
    questions = {each["test_id"] for each in found}
    assert len(questions) == 50
    assert len(found) == 100
    first = [each for each in found if each["test_id"] == QUESTION]
    assert (first[0]["what"], first[0]["where"].split(" (")[0]) == ("request", "1 of 4, temperature")
    assert report["total"]["counts"]["snapshot"] == {"equal": 10, "total": 10}

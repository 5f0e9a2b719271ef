"""Comparing two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout.cli import main


def trace(test_id: str, **changes: Any) -> dict[str, Any]:
    record = {"test_id": test_id, "graded_message": "a", "memory": "{}", "force_quit": False}
    verdict = {"valid": True}
    for name, value in changes.items():
        (verdict if name in ("valid", "error_type") else record)[name] = value
    return {"info": {"bfcl": record, "verdict": verdict}}


def write(folder: Path, *traces: dict[str, Any]) -> str:
    folder.mkdir()
    (folder / "traces.jsonl").write_text(json.dumps({"traces": list(traces)}) + "\n")
    return str(folder)


def test_equal_runs_are_equal_in_any_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "a", trace("x"), trace("y"), trace("y", valid=False))
    other = write(tmp_path / "b", trace("y", valid=False), trace("y"), trace("x"))
    assert main(["same", one, other]) == 0
    assert capsys.readouterr().out == "3 rollouts, 3 of them graded; 0 differ\n"


@pytest.mark.parametrize("name", ["graded_message", "memory", "force_quit", "valid", "error_type"])
def test_each_part_of_an_outcome_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    values: tuple[Any, Any] = (True, False) if name in ("valid", "force_quit") else ("a", "b")
    one = write(tmp_path / "a", trace("x"), trace("y", **{name: values[0]}))
    other = write(tmp_path / "b", trace("x"), trace("y", **{name: values[1]}))
    assert main(["same", one, other]) == 1
    assert capsys.readouterr().out.splitlines()[1:] == [f"  y: differs in {name}"]


def test_a_missing_rollout_is_a_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["same", write(tmp_path / "a", trace("x")), write(tmp_path / "b")]) == 1
    assert "x: 1 rollouts against 0" in capsys.readouterr().out

"""The table after a run: accuracy by backend and scenario, from `traces.jsonl` alone."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.runs import counted_episodes, resolved_config
from bfcl_rollout.stats import wilson
from rich.console import Console
from rich.table import Table

from bfcl_v4_memory.taskset import BACKENDS, SCENARIOS, chain

SUMMARY_VERSION = 1


@dataclass
class Cell:
    """What a run did for one backend and scenario."""

    expected: int = 0
    """Questions the run was to ask, each as many times as it has rollouts per task."""
    correct: int = 0
    graded: int = 0
    errors: int = 0
    """Questions that ended in an error, which is never a wrong answer."""
    sessions: int = 0
    session_errors: int = 0
    seen: set[str] = field(default_factory=set)

    def add(self, other: Cell) -> None:
        """Add another cell's counts to this one."""
        self.expected += other.expected
        self.correct += other.correct
        self.graded += other.graded
        self.errors += other.errors
        self.sessions += other.sessions
        self.session_errors += other.session_errors

    @property
    def accuracy(self) -> float | None:
        """Share of graded questions that are right; None if none was graded."""
        return self.correct / self.graded if self.graded else None

    def to_json(self) -> dict[str, Any]:
        """The cell as it is stored."""
        low, high = wilson(self.correct, self.graded)
        return {
            "accuracy": self.accuracy,
            "correct": self.correct,
            "n": self.graded,
            "wilson_95": [low, high],
            "errors": self.errors,
            "expected": self.expected,
            "coverage": self.graded / self.expected if self.expected else None,
            "sessions": self.sessions,
            "session_errors": self.session_errors,
        }


def summarize(run_dir: Path) -> dict[str, Any]:
    """Read a run's traces, write `summary.json` beside them, and return it with the printed table under `table`."""
    config = _run_config(run_dir)
    cells = tally(counted_episodes(run_dir, config["num_rollouts"]), config)
    backends = {backend: _total(cells, backend) for backend, _ in cells}
    scores = {backend: cell.accuracy for backend, cell in backends.items()}
    measured = [score for score in scores.values() if score is not None]
    complete = all(cell.graded == cell.expected for cell in cells.values())
    whole = set(cells) == {(backend, scenario) for backend in BACKENDS for scenario in SCENARIOS}
    summary: dict[str, Any] = {
        "version": SUMMARY_VERSION,
        "environment": "bfcl-v4-memory",
        "model": config["model"],
        "bfcl_eval": official.VERSION,
        "cells": [
            {"backend": backend, "scenario": scenario, **cell.to_json()} for (backend, scenario), cell in cells.items()
        ],
        "backends": {backend: cell.to_json() for backend, cell in backends.items()},
        "memory_score": mean(measured) if measured and len(measured) == len(scores) else None,
        "is_leaderboard_score": whole and complete and config["num_rollouts"] == 1,
        "complete": complete,
    }
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return {**summary, "table": render(summary)}


def tally(episodes: Iterable[dict[str, Any]], config: dict[str, Any]) -> dict[tuple[str, str], Cell]:
    """Counts by backend and scenario, in the benchmark's order."""
    cells = {
        (backend, scenario): Cell(expected=len(chain(backend, scenario).questions) * config["num_rollouts"])
        for backend in config["backends"]
        for scenario in config["scenarios"]
    }
    for episode in episodes:
        task = episode["task"]["data"]
        asked = {trace["task"]["data"]["entry_id"] for trace in episode["traces"]}
        # Without its trace, a question failed before it was asked, for want of a memory.
        unasked = task["kind"] == "question" and task["entry_id"] not in asked
        if unasked and (cell := cells.get((task["backend"], task["scenario"]))) is not None:
            cell.errors += 1
        for trace in episode["traces"]:
            data = trace["task"]["data"]
            cell = cells.get((data["backend"], data["scenario"]))
            if cell is None:
                continue
            if data["kind"] == "session":
                cell.sessions += 1
                cell.session_errors += not trace["ok"]
                continue
            reward = (trace.get("rewards") or {}).get("correct")
            if trace["ok"] and reward is not None:
                cell.graded += 1
                cell.correct += reward["score"] == 1.0
            else:
                cell.errors += 1
    return cells


def _total(cells: dict[tuple[str, str], Cell], backend: str) -> Cell:
    total = Cell()
    for (name, _), cell in cells.items():
        if name == backend:
            total.add(cell)
    return total


def _run_config(run_dir: Path) -> dict[str, Any]:
    stored = resolved_config(run_dir)
    if stored is None:
        return {"backends": list(BACKENDS), "scenarios": list(SCENARIOS), "num_rollouts": 1, "model": None}
    taskset = stored["env"]["taskset"]
    return {
        "backends": taskset["backends"],
        "scenarios": taskset["scenarios"],
        "num_rollouts": stored["num_rollouts"],
        "model": stored["model"],
    }


def render(summary: dict[str, Any]) -> str:
    """The summary as a table of text."""
    table = Table(title=f"BFCL V4 memory, {summary['model'] or 'model unknown'}", title_justify="left")
    for name in ("backend", "scenario", "accuracy", "n", "95% interval", "errors", "coverage"):
        table.add_column(name, justify="left" if name in ("backend", "scenario") else "right")
    for backend, total in summary["backends"].items():
        for cell in summary["cells"]:
            if cell["backend"] == backend:
                table.add_row(backend, cell["scenario"], *_numbers(cell))
        table.add_row(backend, "all", *_numbers(total), style="bold", end_section=True)
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    score = summary["memory_score"]
    lines = [
        console.export_text().rstrip(),
        f"memory score (mean of the backends, as BFCL computes it): {'-' if score is None else f'{100 * score:.2f} %'}"
        + ("" if summary["is_leaderboard_score"] else "  (not the whole benchmark once; not the leaderboard's number)"),
    ]
    if not summary["complete"]:
        lines.append("INCOMPLETE: questions are missing or ended in errors, which are not counted as wrong answers.")
    return "\n".join(lines)


def _numbers(cell: dict[str, Any]) -> list[str]:
    accuracy, (low, high) = cell["accuracy"], cell["wilson_95"]
    coverage = cell["coverage"]
    errors = str(cell["errors"])
    if cell["session_errors"]:
        errors += f" + {cell['session_errors']} sessions"
    return [
        "-" if accuracy is None else f"{100 * accuracy:.1f} %",
        str(cell["n"]),
        f"{100 * low:.1f} to {100 * high:.1f}",
        errors,
        "-" if coverage is None else f"{100 * coverage:.0f} %",
    ]

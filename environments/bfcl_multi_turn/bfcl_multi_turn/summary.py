"""The table after a run: the official score and progress by category, from `traces.jsonl` alone."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.runs import counted_episodes, resolved_config
from bfcl_rollout.stats import wilson
from rich.console import Console
from rich.table import Table

from bfcl_multi_turn.splits import CATEGORIES, manifest
from bfcl_multi_turn.taskset import rows, unsolvable

SUMMARY_VERSION = 1
WITHOUT = "without unsolvable"
"""Name of the total that leaves the unsolvable entries out."""


@dataclass
class Cell:
    """What a run did for one category."""

    expected: int = 0
    """Conversations the run was to play, each as many times as it has rollouts per task."""
    graded: int = 0
    passed: int = 0
    """Conversations that the official checker passes."""
    progress: float = 0.0
    """Sum of the conversations' progress."""
    errors: int = 0
    """Conversations that ended in an error, which is never a wrong answer."""

    def add(self, other: Cell) -> None:
        """Add another cell's counts to this one."""
        for name in vars(self):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_json(self) -> dict[str, Any]:
        """The cell as it is stored."""
        low, high = wilson(self.passed, self.graded)
        return {
            "accuracy": self.passed / self.graded if self.graded else None,
            "passed": self.passed,
            "n": self.graded,
            "wilson_95": [low, high],
            "progress": self.progress / self.graded if self.graded else None,
            "errors": self.errors,
            "expected": self.expected,
            "coverage": self.graded / self.expected if self.expected else None,
        }


Cells = dict[tuple[str, bool], Cell]
"""By category and whether the entries are solvable."""


def summarize(run_dir: Path) -> dict[str, Any]:
    """Read a run's traces, write `summary.json` beside them, and return it with the printed table under `table`."""
    config = _run_config(run_dir)
    cells = tally(counted_episodes(run_dir, config["num_rollouts"]), config)
    categories = {variant: _sum(cells, [variant]).to_json() for variant in config["categories"]}
    total = _sum(cells, config["categories"])
    scores = [cell["accuracy"] for cell in categories.values()]
    complete = all(cell.graded == cell.expected for cell in cells.values())
    whole = list(config["categories"]) == list(CATEGORIES) and config["split"] == "all"
    comparable = config["protocol"] == "official" and config["num_rollouts"] == 1
    summary: dict[str, Any] = {
        "version": SUMMARY_VERSION,
        "environment": "bfcl-multi-turn",
        "model": config["model"],
        "protocol": config["protocol"],
        "split": config["split"],
        "split_sha256": manifest().sha256,
        "bfcl_eval": official.VERSION,
        "categories": categories,
        "all": total.to_json(),
        WITHOUT: _sum(cells, config["categories"], solvable_only=True).to_json(),
        "multi_turn_score": mean(scores) if scores and None not in scores else None,
        "is_leaderboard_score": whole and complete and comparable and not config["exclude_unsolvable"],
        "complete": complete,
    }
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    return {**summary, "table": render(summary)}


def tally(episodes: Iterable[dict[str, Any]], config: dict[str, Any]) -> Cells:
    """Counts by category and solvability."""
    cells: Cells = {(variant, solvable): Cell() for variant in config["categories"] for solvable in (True, False)}
    for row in rows(config["categories"], config["split"], config["exclude_unsolvable"]):
        cells[row.variant, row.unsolvable is None].expected += config["num_rollouts"]
    for episode in episodes:
        for trace in episode["traces"]:
            data, metrics = trace["task"]["data"], trace.get("metrics") or {}
            cell = cells.get((data["variant"], unsolvable().get(data["entry_id"]) is None))
            if cell is None:
                continue
            if trace["ok"] and metrics.get("official_valid") is not None:
                cell.graded += 1
                cell.passed += metrics["official_valid"] == 1.0
                cell.progress += metrics["progress"]
            else:
                cell.errors += 1
    return cells


def _sum(cells: Cells, variants: Iterable[str], *, solvable_only: bool = False) -> Cell:
    total = Cell()
    for (variant, solvable), cell in cells.items():
        if variant in variants and (solvable or not solvable_only):
            total.add(cell)
    return total


def _run_config(run_dir: Path) -> dict[str, Any]:
    stored = resolved_config(run_dir)
    if stored is None:
        return {
            "categories": list(CATEGORIES),
            "split": "all",
            "exclude_unsolvable": False,
            "num_rollouts": 1,
            "model": None,
            "protocol": "official",
        }
    taskset, agent = stored["env"]["taskset"], stored["env"].get("agent") or {}
    return {
        "categories": taskset["categories"],
        "split": taskset["split"],
        "exclude_unsolvable": taskset["exclude_unsolvable"],
        "num_rollouts": stored["num_rollouts"],
        "model": agent.get("model") or stored["model"],
        "protocol": (agent.get("harness") or {}).get("protocol", "official"),
    }


def render(summary: dict[str, Any]) -> str:
    """The summary as a table of text."""
    title = f"BFCL V4 multi-turn, {summary['model'] or 'model unknown'}, {summary['protocol']} protocol"
    table = Table(title=title, title_justify="left")
    for name in ("category", "passed", "n", "95% interval", "progress", "errors", "coverage"):
        table.add_column(name, justify="left" if name == "category" else "right")
    for variant, cell in summary["categories"].items():
        table.add_row(variant, *_numbers(cell))
    table.add_section()
    table.add_row("all", *_numbers(summary["all"]), style="bold")
    table.add_row(WITHOUT, *_numbers(summary[WITHOUT]))
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(table)
    score = summary["multi_turn_score"]
    note = "" if summary["is_leaderboard_score"] else "  (not the whole benchmark once, officially played)"
    lines = [
        console.export_text().rstrip(),
        f"multi-turn score (mean of the categories, as BFCL computes it): "
        f"{'-' if score is None else f'{100 * score:.2f} %'}{note}",
        f"split: {summary['split']}, sha256 {summary['split_sha256']}",
    ]
    if not summary["complete"]:
        lines.append(
            "INCOMPLETE: conversations are missing or ended in errors, which are not counted as wrong answers."
        )
    return "\n".join(lines)


def _numbers(cell: dict[str, Any]) -> list[str]:
    low, high = cell["wilson_95"]
    return [
        _percent(cell["accuracy"]),
        str(cell["n"]),
        f"{100 * low:.1f} to {100 * high:.1f}",
        _percent(cell["progress"]),
        str(cell["errors"]),
        _percent(cell["coverage"]),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"

"""What the summaries of all environments read of a run directory."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bfcl_rollout import jsonl

TRACES = "traces.jsonl"
RESOLVED_CONFIG = Path("configs") / "resolved" / "eval.json"


def resolved_config(run_dir: Path) -> dict[str, Any] | None:
    """The run's config as verifiers saved it, or None where a run directory has none."""
    path = run_dir / RESOLVED_CONFIG
    if not path.is_file():
        return None
    stored: dict[str, Any] = json.loads(path.read_text())
    return stored


def counted_episodes(run_dir: Path, num_rollouts: int | None) -> Iterator[dict[str, Any]]:
    """The episodes that count, by task: at most `num_rollouts` each, all if None.

    A task that was run again (`--resume`) counts by its good episodes first and then by its latest failed ones;
    earlier failures are superseded. A half-written last line, of a killed run, is left out.

    Raises:
        SetupError: the traces cannot be read.
    """
    by_task: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for episode in jsonl.read(run_dir / TRACES, unfinished=True):
        by_task[episode["task"]["key"]].append(episode)
    for found in by_task.values():
        good = [episode for episode in found if episode["ok"]]
        bad = [episode for episode in found if not episode["ok"]]
        yield from (good + bad[::-1])[:num_rollouts]

"""Find the environment that made a run, and have it summarise its traces."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path

from bfcl_rollout.errors import SetupError

SUMMARY_GROUP = "bfcl_rollout.summary"
"""Entry points `environment-id = "module:summarize"`, `summarize(run_dir: Path) -> dict` with the table under
`table`; it also writes `summary.json` into the run directory."""


def summarize(run_dir: Path) -> str:
    """The table of a finished or interrupted run.

    Raises:
        SetupError: there are no traces, or no installed environment knows them.
    """
    environment = environment_of(run_dir)
    found = list(entry_points(group=SUMMARY_GROUP, name=environment))
    if not found:
        raise SetupError(f"{run_dir}: no summary for environment {environment!r}; is its package installed?")
    return str(found[0].load()(run_dir)["table"])


def environment_of(run_dir: Path) -> str:
    """Id of the environment whose run this is, from the run's own files."""
    traces = run_dir / "traces.jsonl"
    if not traces.is_file():
        raise SetupError(f"{run_dir}: no traces.jsonl; name a run directory")
    config = run_dir / "configs" / "resolved" / "eval.json"
    if config.is_file():
        return str(json.loads(config.read_text())["env"]["taskset"]["id"])
    with traces.open() as file:
        first = file.readline()
    try:
        return str(json.loads(first)["env"]["id"])
    except (ValueError, KeyError) as error:
        raise SetupError(f"{traces}: holds no episode") from error

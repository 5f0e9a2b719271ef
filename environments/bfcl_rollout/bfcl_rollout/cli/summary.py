"""Find the environment that made a run, and have it summarise its traces."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

from bfcl_rollout import jsonl
from bfcl_rollout.errors import SetupError
from bfcl_rollout.runs import TRACES, resolved_config

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
    traces = run_dir / TRACES
    if not traces.is_file():
        raise SetupError(f"{run_dir}: no traces.jsonl; name a run directory")
    if (config := resolved_config(run_dir)) is not None:
        return str(config["env"]["taskset"]["id"])
    for episode in jsonl.read(traces, unfinished=True):
        return str(episode["env"]["id"])
    raise SetupError(f"{traces}: holds no episode")

"""The two sides: official BFCL's own commands, and vf-run. Each plays one category against an endpoint."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from parity.assign import assign
from parity.categories import Category
from parity.categories.base import Row, Selection
from parity.environment import OfficialEnvironment, official_environment
from parity.exchange import read_exchanges
from parity.observation import Observation, Rollout
from parity.processes import clean_environment, run

REGISTRY_NAME = "parity"
"""Name of the model in BFCL's registry and of its result folder. No underscore, which `bfcl evaluate` takes for a
slash, and no `FC`, which BFCL takes for the mode."""

EXCHANGES = "exchanges.jsonl"
_KEY_VARIABLE = "PARITY_ENDPOINT_KEY"
_START = Path(__file__).with_name("official_start.py")
_REPORTED = ("bfcl-eval", "faiss-cpu", "numpy", "openai", "sentence-transformers", "torch", "transformers", "verifiers")


@dataclass(frozen=True)
class Settings:
    """What is played, equal for both sides."""

    model: str
    """Model name on the wire."""
    mode: str
    """`fc` or `prompting`."""
    selection: Selection
    concurrency: int
    """Rollouts in flight: BFCL's threads, our agents."""


class Side(Protocol):
    """One side of the comparison."""

    @property
    def versions(self) -> dict[str, str]:
        """What is installed there."""

    async def play(self, category: Category, settings: Settings, url: str, folder: Path) -> None:
        """Play a category against the endpoint and leave the outcome in `folder`."""

    def rows(self, category: Category, folder: Path) -> dict[str, Row]:
        """Read the outcome, by test id."""


class OfficialSide:
    """`bfcl generate`, then `bfcl evaluate`, in a fresh project root.

    Args:
        environment: needed to play, not to read.
    """

    def __init__(self, environment: OfficialEnvironment | None = None) -> None:
        self._given = environment

    @property
    def _environment(self) -> OfficialEnvironment:
        if self._given is None:
            raise RuntimeError("this side has no environment; it can only read what was played")
        return self._given

    @property
    def versions(self) -> dict[str, str]:
        """Versions in the official environment."""
        return self._environment.versions

    async def play(self, category: Category, settings: Settings, url: str, folder: Path) -> None:
        """Run both commands.

        Raises:
            SideFailedError: one of them failed.
        """
        root = folder / "root"
        root.mkdir()
        env = {
            **clean_environment(),
            "BFCL_PROJECT_ROOT": str(root),
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "parity",
            "HF_HOME": str(self._environment.hub),
            "HF_HUB_OFFLINE": "1",
        }
        whole = settings.selection == Selection()
        if not whole:
            ids = [entry.test_id for entry in category.entries(settings.selection)]
            (root / "test_case_ids_to_generate.json").write_text(json.dumps({category.name: ids}))
        model = {
            "registry_name": REGISTRY_NAME,
            "wire_model": settings.model,
            "is_fc": settings.mode == "fc",
        }
        start = [str(self._environment.python), str(_START), json.dumps(model)]
        chosen = ["--model", REGISTRY_NAME, "--test-category", category.name]
        threads = ["--num-threads", str(settings.concurrency)]
        await run(
            [*start, "generate", *chosen, *threads, *([] if whole else ["--run-ids"])],
            cwd=root,
            env=env,
            log=folder / "generate.log",
        )
        await run(
            [*start, "evaluate", *chosen, *([] if whole else ["--partial-eval"])],
            cwd=root,
            env=env,
            log=folder / "evaluate.log",
        )

    def rows(self, category: Category, folder: Path) -> dict[str, Row]:
        """BFCL's result, score and snapshot files."""
        return category.official_rows(folder / "root", REGISTRY_NAME)


class OurSide:
    """`vf-run`, one run a category."""

    @property
    def versions(self) -> dict[str, str]:
        """Versions in this environment."""
        found = {name: importlib.metadata.version(name) for name in (*_REPORTED, "bfcl-rollout")}
        return {"python": platform.python_version(), **found}

    async def play(self, category: Category, settings: Settings, url: str, folder: Path) -> None:
        """Run the environment.

        Raises:
            SideFailedError: vf-run failed.
        """
        command = [
            *(sys.executable, "-m", "bfcl_rollout.cli.run", category.environment),
            *("--model", settings.model),
            *("--client.base-url", url),
            *("--client.api-key-var", _KEY_VARIABLE),
            *("--output-dir", str(folder), "--run.dir", "run", "--no-push", "--no-rich"),
            *category.run_arguments(settings.selection, settings.mode, settings.concurrency),
        ]
        env = {**clean_environment(), _KEY_VARIABLE: "parity"}
        await run(command, cwd=folder, env=env, log=folder / "vf-run.log")

    def rows(self, category: Category, folder: Path) -> dict[str, Row]:
        """The records and verdicts in the run's traces. Of a rollout that was tried again, the one that succeeded."""
        rows: dict[str, Row] = {}
        for trace in _traces(folder):
            test_id, row = category.our_row(trace)
            if test_id not in rows or row.failure is None:
                rows[test_id] = row
        return rows


def _traces(folder: Path) -> Iterator[dict[str, Any]]:
    with (folder / "run" / "traces.jsonl").open() as file:
        for line in file:
            yield from json.loads(line)["traces"]


def observe(side: Side, category: Category, settings: Settings, folder: Path) -> Observation:
    """What a side did: its rows, and the requests that the endpoint recorded of each rollout."""
    entries = category.entries(settings.selection)
    requests, stray = assign(read_exchanges(folder / EXCHANGES), entries)
    rows = side.rows(category, folder)
    rollouts = {}
    for entry in entries:
        row = rows.get(entry.test_id)
        if row is None:
            row = Row({}, "not played")
        rollouts[entry.test_id] = Rollout(requests.get(entry.test_id, []), row.facts, row.failure)
    return Observation(rollouts, stray)


async def official_side() -> OfficialSide:
    """The official side, its environment built if need be."""
    return OfficialSide(await asyncio.to_thread(official_environment))

"""One side of one category, played into a folder: whole or not at all, so that an interrupted run can be taken up."""

from __future__ import annotations

import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parity.answers import Answerer
from parity.categories import Category
from parity.endpoint import serve
from parity.observation import Observation
from parity.sides import EXCHANGES, Settings, Side, observe

_DONE = "stage.json"


@dataclass(frozen=True)
class Stage:
    """A played stage."""

    observation: Observation
    versions: dict[str, str]
    wall_s: float
    """Seconds from the first process's start to the last one's end."""


async def play(
    side: Side, category: Category, settings: Settings, answerer: Answerer, folder: Path, *, resume: bool
) -> Stage:
    """Play a stage, or read it if `resume` is set and it was finished with the same settings."""
    if not (resume and _done(folder, category, settings)):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        start = time.monotonic()
        async with serve(answerer, folder / EXCHANGES) as url:
            await side.play(category, settings, url, folder)
        done = {
            "stage": _identity(category, settings),
            "versions": side.versions,
            "wall_s": round(time.monotonic() - start, 1),
        }
        # By a rename: a stage is finished or it is not.
        partial = folder / f"{_DONE}.partial"
        partial.write_text(json.dumps(done, indent=1))
        os.replace(partial, folder / _DONE)
    return read(side, category, settings, folder)


def read(side: Side, category: Category, settings: Settings, folder: Path) -> Stage:
    """Read a finished stage."""
    done = json.loads((folder / _DONE).read_text())
    return Stage(observe(side, category, settings, folder), done["versions"], done["wall_s"])


def _done(folder: Path, category: Category, settings: Settings) -> bool:
    path = folder / _DONE
    return path.is_file() and bool(json.loads(path.read_text())["stage"] == _identity(category, settings))


def _identity(category: Category, settings: Settings) -> dict[str, Any]:
    scenarios, ids = settings.selection
    return {
        "category": category.name,
        "model": settings.model,
        "mode": settings.mode,
        "scenarios": None if scenarios is None else list(scenarios),
        "ids": None if ids is None else list(ids),
    }

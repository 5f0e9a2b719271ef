"""`python -m parity.benchmark CATEGORY MODEL`: how long each side takes against the embedded model.

Official `bfcl generate` and `bfcl evaluate`, and this suite's `vf-run`, play a whole category with the same scripted
policy at the same concurrency, in turns, each with everything it starts and imports. Printed are wall time and
processor time (user and system, all processes of the side; not the embedded model's). On a machine that does other
work at the same time, only the processor times mean much.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bfcl_rollout.errors import SetupError
from bfcl_rollout.scripted import ScriptedServer

from parity.categories import CATEGORIES
from parity.categories.base import Selection
from parity.sides import OurSide, Settings, Side, official_side


class Cost(NamedTuple):
    """What one side took, in seconds."""

    wall: float
    processor: float


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0, or 2 if a side could not be played."""
    parser = argparse.ArgumentParser(prog="python -m parity.benchmark", description=__doc__)
    parser.add_argument("category", choices=[*CATEGORIES])
    parser.add_argument("model", help="a policy of the embedded model")
    parser.add_argument("--mode", choices=["fc", "prompting"], default="fc")
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=3, help="rounds; the medians are compared (default: 3)")
    arguments = parser.parse_args(argv)
    try:
        costs = asyncio.run(_measure(arguments))
    except SetupError as error:
        print(f"benchmark: {error}", file=sys.stderr)
        return 2
    official, ours = (Cost(median(c.wall for c in each), median(c.processor for c in each)) for each in costs)
    print(f"{arguments.category}, {arguments.model}, {arguments.mode}, concurrency {arguments.concurrency}")
    print(f"median of {arguments.repeat} on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end")
    for name, cost in (("official", official), ("ours", ours)):
        print(f"{name:<9} wall {cost.wall:6.1f} s   processor {cost.processor:6.1f} s")
    print(f"ratio     wall {ours.wall / official.wall:6.2f}     processor {ours.processor / official.processor:6.2f}")
    return 0


async def _measure(arguments: argparse.Namespace) -> tuple[list[Cost], list[Cost]]:
    settings = Settings(arguments.model, arguments.mode, Selection(), arguments.concurrency)
    sides: tuple[Side, Side] = (await official_side(), OurSide())
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    with ScriptedServer() as server:
        for _ in range(arguments.repeat):
            for side, found in zip(sides, costs, strict=True):
                with tempfile.TemporaryDirectory() as folder:
                    found.append(await _play(side, arguments.category, settings, server.url, Path(folder)))
    return costs


async def _play(side: Side, category: str, settings: Settings, url: str, folder: Path) -> Cost:
    before, start = _processor(), time.perf_counter()
    await side.play(CATEGORIES[category], settings, url, folder)
    return Cost(time.perf_counter() - start, _processor() - before)


def _processor() -> float:
    """Processor seconds of all processes that this one has started and that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())

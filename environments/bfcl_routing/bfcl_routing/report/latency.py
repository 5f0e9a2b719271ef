"""How long a decision takes, and between which runs that may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bfcl_routing.report.runs import Run
from bfcl_routing.report.stats import percentile

DECLARED = ("boundary", "hardware", "precision", "serving")


def latency(run: Run) -> dict[str, Any] | None:
    """Times of one run in milliseconds, the first request apart as well as included; None without any.

    The clock is monotonic and runs around the request (`boundary` says between which points). No p99: it would be the
    third slowest of 250.
    """
    rows = sorted((row for row in run.graded if row.wall_s is not None), key=lambda row: row.started)
    times = [1000 * row.wall_s for row in rows if row.wall_s is not None]
    if not times:
        return None
    return {
        "n": len(times),
        "mean_ms": float(np.mean(times)),
        "p50_ms": percentile(times, 0.5),
        "p95_ms": percentile(times, 0.95),
        "first_ms": times[0],
        "mean_input_tokens": float(np.mean([row.input_tokens for row in rows])),
        "mean_output_tokens": float(np.mean([row.output_tokens for row in rows])),
        "concurrency": run.concurrency,
        **run.declared,
        "caveats": caveats(run),
    }


def caveats(run: Run) -> list[str]:
    """Why a run's times are not those of single decisions on known hardware; empty if nothing is missing."""
    found = [f"{field} not declared" for field in DECLARED if not run.declared.get(field)]
    if run.concurrency != 1:
        found.append(f"{run.concurrency or 'unbounded'} requests at once instead of 1")
    return found


def comparable(runs: Sequence[Run]) -> list[str]:
    """Reasons why the times of these runs must not be compared; empty if they may be."""
    reasons = [f"{run.name}: {reason}" for run in runs for reason in caveats(run)]
    for field in DECLARED:
        values = {run.declared.get(field) for run in runs}
        if len(values) > 1:
            reasons.append(f"{field} differs: {', '.join(sorted(str(v) for v in values))}")
    return reasons

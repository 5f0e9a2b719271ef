"""Runs side by side, case by case. Only runs under the same view are compared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from bfcl_rollout.errors import SetupError
from rich.table import Table

from bfcl_routing.report.latency import comparable, latency
from bfcl_routing.report.runs import Row, Run
from bfcl_routing.report.stats import DRAWS, SEED, holm, mcnemar
from bfcl_routing.report.summary import STRATA, selection
from bfcl_routing.report.table import TITLES, new_console, percent, span, text_of

COMPARE_VERSION = 1


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """Paired comparison of two or more runs.

    Every pair is tested on the cases graded in both, over all cases and inside each stratum, by the exact McNemar
    test; Holm's adjustment is over all pairs' tests of one kind. The mean of the strata is compared by a paired
    bootstrap over cases.

    Raises:
        SetupError: fewer than two runs, different views, several rollouts of a task, or no case in common.
    """
    if len(runs) < 2:
        raise SetupError("a comparison needs at least two runs")
    views = {run.view_sha256: run.view for run in runs}
    if len(views) > 1:
        raise SetupError(f"results of different views are never merged or compared: {', '.join(views.values())}")
    for run in runs:
        if len({row.case_id for row in run.rows}) != len(run.rows):
            raise SetupError(f"{run.name} plays cases several times; the paired test needs one rollout a case")
    pairs = [_pair(first, second) for first, second in combinations(runs, 2)]
    for kind in ("pooled", *STRATA):
        tests = [pair["tests"][kind] for pair in pairs if kind in pair["tests"]]
        for test, adjusted in zip(tests, holm([t["p_value"] for t in tests]), strict=True):
            test["p_holm"] = adjusted
    return {
        "version": COMPARE_VERSION,
        "view": runs[0].view,
        "view_sha256": runs[0].view_sha256,
        "runs": [
            {
                "name": run.name,
                "model": run.model,
                "complete": run.complete,
                "failed": len(run.rows) - len(run.graded),
                "selection": selection(run.graded, lambda row: row.correct),
                "latency": latency(run),
            }
            for run in runs
        ],
        "pairs": pairs,
        "latency_not_comparable": comparable(runs),
    }


def _pair(first: Run, second: Run) -> dict[str, Any]:
    left, right = ({row.case_id: row for row in run.graded} for run in (first, second))
    shared = [case_id for case_id in left if case_id in right]
    if not shared:
        raise SetupError(f"{first.name} and {second.name} have no graded case in common")
    tests = {"pooled": _test([left[c] for c in shared], [right[c] for c in shared])}
    for stratum in STRATA:
        if inside := [c for c in shared if left[c].stratum == stratum]:
            tests[stratum] = _test([left[c] for c in inside], [right[c] for c in inside])
    return {
        "first": first.name,
        "second": second.name,
        "cases": len(shared),
        "only_in_one": len(left) + len(right) - 2 * len(shared),
        "tests": tests,
        "macro_difference": _macro_difference([left[c] for c in shared], [right[c] for c in shared]),
    }


def _test(left: Sequence[Row], right: Sequence[Row]) -> dict[str, Any]:
    return {**mcnemar([r.correct for r in left], [r.correct for r in right])._asdict()}


def _macro_difference(left: Sequence[Row], right: Sequence[Row]) -> dict[str, Any]:
    """First minus second, mean of the strata, with a 95% interval from resampling cases (10,000 draws)."""
    generator = np.random.default_rng(SEED)
    total, value, used = np.zeros(DRAWS), 0.0, 0
    for stratum in STRATA:
        gaps = np.array(
            [float(a.correct) - float(b.correct) for a, b in zip(left, right, strict=True) if a.stratum == stratum]
        )
        if not gaps.size:
            continue
        used += 1
        value += float(gaps.mean())
        total += gaps[generator.integers(0, gaps.size, size=(DRAWS, gaps.size))].mean(axis=1)
    low, high = np.quantile(total / used, [0.025, 0.975])
    return {"share": value / used, "interval_95": [float(low), float(high)], "method": "paired bootstrap"}


def render_comparison(result: dict[str, Any]) -> str:
    """A comparison as text."""
    console = new_console()
    scores = Table(title=f"view {result['view']}", title_justify="left")
    scores.add_column("run")
    kinds = [k for k in TITLES if any(k in run["selection"] for run in result["runs"])]
    for kind in kinds:
        scores.add_column(TITLES[kind], justify="right")
    for run in result["runs"]:
        name = run["name"] + ("" if run["complete"] else " (PARTIAL)")
        cells = [run["selection"].get(kind) for kind in kinds]
        scores.add_row(name, *(f"{c['right']:.0f}/{c['n']} ({span(c)})" if c else "-" for c in cells))
    console.print(scores)
    tests = Table(title="exact McNemar, Holm over the pairs shown", title_justify="left")
    for name in ("first", "second", "cases", "both", "only first", "only second", "neither", "p", "p (Holm)"):
        tests.add_column(name, justify="left" if name in ("first", "second", "cases") else "right")
    for pair in result["pairs"]:
        for kind, t in pair["tests"].items():
            counts = (t["both"], t["only_first"], t["only_second"], t["neither"])
            p_values = (f"{t['p_value']:.4f}", f"{t['p_holm']:.4f}")
            tests.add_row(pair["first"], pair["second"], TITLES[kind], *map(str, counts), *p_values)
    console.print(tests)
    lines = [text_of(console)]
    for pair in result["pairs"]:
        gap = pair["macro_difference"]
        lines.append(
            f"{pair['first']} minus {pair['second']}, mean of the strata: {percent(gap['share'])} ({span(gap)})"
            + (f"; {pair['only_in_one']} cases are graded in one run only" if pair["only_in_one"] else "")
        )
    lines += _latency_lines(result)
    return "\n".join(lines)


def _latency_lines(result: dict[str, Any]) -> list[str]:
    lines = []
    for run in result["runs"]:
        if found := run["latency"]:
            times = ", ".join(f"{key} {found[f'{key}_ms']:.1f}" for key in ("mean", "p50", "p95", "first"))
            lines.append(f"latency ms, {run['name']}: {times} ({found['boundary']})")
    if lines and result["latency_not_comparable"]:
        lines.append(f"latencies are not comparable: {'; '.join(result['latency_not_comparable'])}")
    return lines

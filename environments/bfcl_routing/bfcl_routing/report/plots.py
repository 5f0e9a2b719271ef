"""Figures of one or several runs, as PNG and SVG. Needs the extra `plots`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bfcl_rollout.errors import SetupError

from bfcl_routing.report.latency import comparable, latency
from bfcl_routing.report.runs import Run
from bfcl_routing.report.summary import STRATA, selection
from bfcl_routing.report.table import TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write `accuracy_by_stratum` and `accuracy_against_latency` into a folder, each as PNG and SVG.

    Raises:
        SetupError: runs under different views, or matplotlib is not installed.
    """
    if len({run.view_sha256 for run in runs}) > 1:
        raise SetupError("results of different views are never shown in one figure")
    try:
        import matplotlib.figure  # noqa: F401
    except ModuleNotFoundError:
        raise SetupError("plots need matplotlib; install it with: pip install 'bfcl-routing[plots]'") from None
    folder.mkdir(parents=True, exist_ok=True)
    figures = {"accuracy_by_stratum": by_stratum(runs), "accuracy_against_latency": against_latency(runs)}
    written = []
    for name, figure in figures.items():
        for suffix in ("png", "svg"):
            path = folder / f"{name}.{suffix}"
            # Without a date and with fixed ids equal results give equal files.
            figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
            written.append(path)
    return written


def by_stratum(runs: Sequence[Run]) -> Figure:
    """Grouped bars: share of right routes per stratum and over all, with 95% intervals."""
    figure = _figure()
    axes = figure.subplots()
    found = [selection(run.graded, lambda row: row.correct) for run in runs]
    kinds = [k for k in (*STRATA, "pooled") if any(k in s for s in found)]
    width = 0.8 / len(runs)
    for index, (run, scores) in enumerate(zip(runs, found, strict=True)):
        present = [(place, scores[kind]) for place, kind in enumerate(kinds) if kind in scores]
        places = [place + (index - (len(runs) - 1) / 2) * width for place, _ in present]
        axes.bar(
            places,
            [100 * s["share"] for _, s in present],
            width,
            yerr=_bars([s for _, s in present]),
            capsize=2,
            label=_label(run),
        )
    axes.set_xticks(range(len(kinds)), [f"{TITLES[k]}\n(n = {_size(found, k)})" for k in kinds])
    axes.set_ylim(0, 105)
    axes.set_ylabel("right route, %")
    axes.set_title(runs[0].view)
    axes.legend()
    return figure


def against_latency(runs: Sequence[Run]) -> Figure:
    """Points: share of right routes over all cases against the median time of a decision."""
    figure = _figure()
    axes = figure.subplots()
    for run in runs:
        times, scores = latency(run), selection(run.graded, lambda row: row.correct)
        if times is None:
            continue
        pooled = scores["pooled"]
        axes.errorbar(
            [times["p50_ms"]], [100 * pooled["share"]], yerr=_bars([pooled]), fmt="o", capsize=2, label=_label(run)
        )
    axes.set_xlabel("median time of a decision, ms (logarithmic)")
    axes.set_xscale("log")
    axes.set_ylim(0, 105)
    axes.set_ylabel("right route, %")
    note = "" if not comparable(runs) else "\ntimes are not comparable: see the caveats of the reports"
    axes.set_title(runs[0].view + note)
    axes.legend()
    return figure


def _figure() -> Figure:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "bfcl-routing"
    return Figure(figsize=(9, 5), dpi=150, layout="constrained")


def _bars(found: Sequence[dict[str, Any]]) -> list[list[float]]:
    lows = [100 * (s["share"] - s["interval_95"][0]) for s in found]
    highs = [100 * (s["interval_95"][1] - s["share"]) for s in found]
    return [[max(0.0, v) for v in lows], [max(0.0, v) for v in highs]]


def _size(found: Sequence[dict[str, Any]], kind: str) -> str:
    sizes = sorted({s[kind]["n"] for s in found if kind in s})
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"


def _label(run: Run) -> str:
    return f"{run.model or run.name}" + ("" if run.complete else " (partial)")

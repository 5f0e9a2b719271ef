"""A summary as text."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

TITLES = {
    "multi_tool_call": "multi-tool call",
    "one_tool_call": "one-tool call",
    "multi_tool_no_call": "multi-tool no call",
    "one_tool_no_call": "one-tool no call",
    "positives": "positive",
    "negatives": "negative",
    "pooled": "all",
}
WIDTH = 130


def render(summary: Mapping[str, Any]) -> str:
    """The table of one run, with its baselines and everything that limits what it says."""
    console = new_console()
    head = f"BFCL routing, {summary['suite']} ({summary['split']}), {summary['model'] or 'model unknown'}"
    selection, baselines = summary["selection"], summary["baselines"]
    rows = [name for name in TITLES if name in selection]
    table = Table(title=head, title_justify="left")
    table.add_column("right route", no_wrap=True)
    for name in rows:
        table.add_column(TITLES[name], justify="right")
    table.add_column("strata mean", justify="right")
    macro = selection.get("macro", {}).get("share")
    table.add_row("model", *(_count(selection[name]) for name in rows), percent(macro), style="bold")
    table.add_row("95% interval", *(span(selection[name]) for name in rows), span(selection.get("macro")))
    table.add_section()
    for name, found in baselines.items():
        macro = found.get("macro", {}).get("share")
        table.add_row(name, *(_count(found.get(row)) for row in rows), percent(macro), style="dim")
    console.print(table)
    return "\n".join([text_of(console), *_lines(summary)])


def _lines(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"view {summary['view']} ({summary['view_sha256'][:12]}), bfcl-eval {summary['bfcl_eval']}"]
    outcomes = ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in summary["outcomes"].items() if n)
    lines.append(f"outcomes: {outcomes or 'none'}")
    if summary["invalid"]:
        lines.append(f"invalid output (wrong): {_pairs(summary['invalid'])}")
    hard = summary["lexically_hard"]
    lines.append(f"right where word overlap is wrong: {hard['right']} of {hard['n']}")
    exact = summary["exact_action"]
    if exact["n"]:
        lines.append(
            f"exact action (diagnostic, not comparable across meta policies): {exact['right']} of {exact['n']}"
            f"; negatives: {_pairs(summary['actions_on_negatives']) or 'none right'}"
        )
    if found := summary["calibration"]:
        lines.append(
            f"probabilities (n = {found['n']}): Brier {found['brier']:.3f} of 2, log loss {found['log_loss']:.3f}, "
            f"ECE {found['ece_width']:.3f}, AUROC {number(found['auroc'])}, wrong above 0.8/0.9: "
            f"{found['wrong_above_gate']['0.8']}/{found['wrong_above_gate']['0.9']}"
        )
    if found := summary["order"]:
        low, high = found["accuracy_range"]
        lines.append(
            f"order: {percent(low)} to {percent(high)} over rotations, {found['flipped']} of "
            f"{found['cases_in_several_orders']} cases change their action, majority {percent(found['majority'])}"
        )
    if found := summary["repeats"]:
        lines.append(f"repeats: {found['changed']} of {found['tasks']} tasks change their action")
    if found := summary["latency"]:
        lines.append(
            f"latency ms: mean {found['mean_ms']:.1f}, p50 {found['p50_ms']:.1f}, p95 {found['p95_ms']:.1f}, "
            f"first {found['first_ms']:.1f} ({found['boundary']})"
        )
        if found["caveats"]:
            lines.append(f"  not comparable with other runs: {'; '.join(found['caveats'])}")
    if summary["split"] == "test" and not summary["complete"]:
        tasks, failed = summary["tasks"], summary["rollouts"]["failed"]
        lines.append(
            f"PARTIAL: {tasks['graded']} of {tasks['expected'] or '?'} tasks graded, {failed} rollouts failed "
            f"({_pairs(summary['errors']) or 'no errors'}); failed rollouts are not counted as wrong."
        )
    return lines


def new_console() -> Console:
    """A console that only records."""
    return Console(width=WIDTH, record=True, file=io.StringIO())


def text_of(console: Console) -> str:
    """What a recording console has printed, as plain text."""
    return console.export_text().rstrip()


def _count(found: Mapping[str, Any] | None) -> str:
    if not found:
        return "-"
    right = found["right"]
    return f"{right:.0f}/{found['n']}" if float(right).is_integer() else f"{right:.1f}/{found['n']}"


def span(found: Mapping[str, Any] | None) -> str:
    """An interval in percent."""
    if not found or "interval_95" not in found:
        return "-"
    low, high = found["interval_95"]
    return f"{100 * low:.1f}-{100 * high:.1f}"


def percent(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def number(value: float | None) -> str:
    """A number with three decimals, or a dash."""
    return "-" if value is None else f"{value:.3f}"


def _pairs(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in counts.items())

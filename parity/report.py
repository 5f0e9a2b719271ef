"""The report of a run: one JSON file for programs and one Markdown file for people, of the same content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REPORT_VERSION = 1
_LISTED = 50
"""Mismatches written out in the Markdown; the JSON holds all."""


def write(report: Mapping[str, Any], folder: Path) -> None:
    """Write `report.json` and `report.md`."""
    (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=True) + "\n")
    (folder / "report.md").write_text(markdown(report), errors="backslashreplace")


def summary(report: Mapping[str, Any]) -> list[str]:
    """What is printed at the end of a run: the counts, and the first mismatches."""
    return [*counts_table(report), "", *_agreement(report), *_mismatches(report), report["conclusion"]]


def markdown(report: Mapping[str, Any]) -> str:
    """The report as Markdown."""
    lines = [
        "# Parity with official BFCL",
        "",
        f"**{report['conclusion']}**",
        "",
        f"    {report['command']}",
        "",
        *counts_table(report),
        "",
        *_agreement(report),
        *_mismatches(report),
        "## What was compared",
        "",
        *_definitions(report),
        "",
        "## Versions",
        "",
        *_versions(report),
        "",
        "## Hashes",
        "",
        *(f"- {name}: `{value}`" for name, value in report["hashes"].items()),
        "",
    ]
    return "\n".join(lines)


def counts_table(report: Mapping[str, Any]) -> list[str]:
    """Rows of the table of counts: a category each, and their sum."""
    names = list(report["total"]["counts"])
    titles = " | ".join(names)
    rows = [
        f"| category | {titles} | passed (official / ours) | wall, s (official / ours) |",
        "|---|" + "--:|" * (len(names) + 2),
    ]
    for name, category in [*report["categories"].items(), ("all", report["total"])]:
        cells = [_count(category["counts"].get(each)) for each in names]
        passed = category["passed"]
        wall = category["wall_s"]
        rows.append(
            f"| {name} | {' | '.join(cells)} | {passed['official']} / {passed['ours']} "
            f"| {wall['official']:.0f} / {wall['ours']:.0f} |"
        )
    return rows


def _count(count: Mapping[str, int] | None) -> str:
    return "-" if count is None else f"{count['equal']:,} / {count['total']:,}"


def _agreement(report: Mapping[str, Any]) -> list[str]:
    if "agreement" not in report:
        return []
    rows = [f"| {pair} | {_count(count)} |" for pair, count in report["agreement"].items()]
    return ["## Agreement on verdicts", "", "| pair | verdicts agreed |", "|---|--:|", *rows, ""]


def _mismatches(report: Mapping[str, Any]) -> list[str]:
    found = [(name, each) for name, category in report["categories"].items() for each in category["mismatches"]]
    if not found:
        return []
    lines = [f"## Mismatches ({len(found)})", ""]
    for name, each in found[:_LISTED]:
        lines += [
            f"- **{each['test_id']}** ({name}): {each['what']} {each['where']}",
            f"  - official: `{each['official']}`",
            f"  - ours: `{each['ours']}`",
        ]
    if len(found) > _LISTED:
        lines.append(f"- and {len(found) - _LISTED} more, in the JSON report")
    return [*lines, ""]


_DEFINITIONS = {
    "rollouts": "rollouts of which everything below is equal",
    "requests": "model requests: every field of the body, every message and tool, order of keys included",
    "replies": "rollouts whose `result` is what BFCL stored",
    "calls": "rollouts with the same decoded calls, or the same decoding error, in every step",
    "results": "rollouts with the same tool results in every step",
    "forced": "rollouts that both, or neither, ended at the step limit",
    "snapshot": "memory snapshots equal byte for byte, after each session",
    "verdict": "verdicts with the same result, error type and error message",
}


def _definitions(report: Mapping[str, Any]) -> list[str]:
    return [f"- {name}: {_DEFINITIONS.get(name, name)}" for name in report["total"]["counts"]]


def _versions(report: Mapping[str, Any]) -> list[str]:
    official, ours = report["versions"]["official"], report["versions"]["ours"]
    rows = ["| package | official | ours |", "|---|---|---|"]
    rows += [f"| {name} | {official.get(name, '-')} | {ours.get(name, '-')} |" for name in {**official, **ours}]
    return rows

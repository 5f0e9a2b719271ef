"""`bfcl-rollout credit`: credit a finished run, or a ToolWeave trajectory file, offline."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from verifiers.v1.utils.trace_store import TRACES_FILE

from bfcl_multi_turn.credit import export, runs, trajectories
from bfcl_multi_turn.credit.boundary import boundary
from bfcl_multi_turn.credit.group import CreditError
from bfcl_multi_turn.credit.metrics import credit_metrics
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.table import (
    COLUMNS,
    KEY_COLUMNS,
    CreditedGroup,
    Row,
    step_records,
    table_rows,
    to_csv,
    write_parquet,
)

SUMMARY_VERSION = "bfcl_multi_turn.runtime_interaction_credit.v1"

WRITTEN = ["table.csv", "table.parquet", "steps.jsonl", "summary.json"]
"""What the command leaves in its folder."""

_PRINTED = {
    "group_uid": "task",
    "user_turn_id": "turn",
    "rollout_offset": "rollout",
    "runtime_depth": "j",
    "response_type": "type",
    "parsed_calls": "calls",
    "r_j": "r_j",
    "R_j": "R_j",
    "peer_support": "peers",
    "peer_mean_R": "mean R",
    "peer_sample_std_R": "std R",
    "A_local": "A_local",
    "R_P": "R_P",
    "A_RODS": "A_RODS",
    "A_TW": "A_TW",
}
"""Columns that are printed, and their heads."""


def main(argv: list[str]) -> int:
    """Run the command. 0: done. 1: a trajectory file contradicts its own raw texts. 2: it could not be credited."""
    arguments = _parser().parse_args(argv)
    try:
        return _run(arguments)
    except CreditError as error:
        print(f"bfcl-rollout credit: {error}", file=sys.stderr)
        return 2
    except SetupError as error:
        print(f"bfcl-rollout credit: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bfcl-rollout credit", description=__doc__)
    parser.add_argument("path", type=Path, help="a run directory, or a ToolWeave raw trajectory JSONL file")
    parser.add_argument("--out", type=Path, help="where to write (default: a folder `credit` beside the input's files)")
    parser.add_argument("--task", help="only this BFCL test id")
    parser.add_argument("--user-turn", type=int, help="only this user turn")
    parser.add_argument("--group-size", type=int, help="members that every group must have")
    parser.add_argument("--published", action="store_true", help="the options behind ToolWeave's published numbers")
    parser.add_argument("--weight", type=float, help="factor of the local advantage (default 1)")
    parser.add_argument("--gamma", type=float, help="discount per runtime interaction (default 0.9)")
    parser.add_argument("--positional-gold", choices=["bind", "drop"])
    parser.add_argument("--local-baseline", choices=["peers", "leave_one_out"])
    parser.add_argument("--outcome", choices=["progress", "reward"])
    parser.add_argument("--export", type=Path, metavar="FILE", help="also write the run as ToolWeave trajectories")
    parser.add_argument("--rows", type=int, default=40, help="rows of the table to print (default 40)")
    return parser


def _options(arguments: argparse.Namespace) -> CreditOptions:
    names = ("weight", "gamma", "positional_gold", "local_baseline", "outcome")
    given = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    base = CreditOptions.published() if arguments.published else CreditOptions()
    try:
        return CreditOptions.model_validate({**base.model_dump(), **given})
    except ValueError as error:
        raise CreditError(str(error)) from error


def _run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    path: Path = arguments.path
    disagreements: list[trajectories.Disagreement] = []
    left_out: list[str] = []
    if path.is_dir():
        source = path / TRACES_FILE
        run = runs.read_run(path, arguments.group_size, arguments.task)
        groups, left_out = runs.credit_run(run.groups, options), run.left_out
        if arguments.export:
            lines = list(export.trajectory_lines(run.groups))
            arguments.export.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    elif path.is_file():
        source = path
        if arguments.export or options.outcome == "reward":
            raise CreditError("--export and --outcome reward need a run directory")
        file = trajectories.read_trajectories(path)
        groups = trajectories.credit_trajectories(file, options, arguments.task, arguments.group_size)
        disagreements = file.disagreements
    else:
        raise CreditError(f"there is no {path}")
    out: Path = arguments.out or source.parent / "credit"
    one_turn = arguments.user_turn is not None and len(groups) == 1
    columns = COLUMNS if one_turn else KEY_COLUMNS + COLUMNS
    rows = table_rows(groups, arguments.user_turn)
    summary = _summary(groups, options, source, left_out, disagreements)
    _write(out, rows, columns, groups, summary)
    _print(rows, columns, groups, left_out, disagreements, arguments.rows)
    print(f"written: {', '.join(str(out / name) for name in WRITTEN)}")
    return 1 if disagreements else 0


def _write(
    out: Path, rows: Sequence[Row], columns: Sequence[str], groups: Sequence[CreditedGroup], summary: dict[str, Any]
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.csv").write_text(to_csv(rows, columns), encoding="utf-8")
    write_parquet(rows, columns, out / "table.parquet", summary["source"]["sha256"])
    records = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in step_records(groups))
    (out / "steps.jsonl").write_text(records, encoding="utf-8")
    (out / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _summary(
    groups: Sequence[CreditedGroup],
    options: CreditOptions,
    source: Path,
    left_out: Sequence[str],
    disagreements: Sequence[trajectories.Disagreement],
) -> dict[str, Any]:
    return {
        "schema_version": SUMMARY_VERSION,
        "source": {"file": source.name, "sha256": official.sha256(source)},
        "options": options.model_dump(),
        "groups": [_group_summary(group) for group in groups],
        "left_out": list(left_out),
        "parser_disagreements": [str(disagreement) for disagreement in disagreements],
        "production_metrics": credit_metrics(
            [(group.category, group.credit) for group in groups], span_failures=sum(map(_unplaced, groups))
        ),
    }


def _group_summary(group: CreditedGroup) -> dict[str, Any]:
    credit = group.credit
    return {
        "sample_id": group.sample_id,
        "group_uid": group.uid,
        "group_size": len(credit.rollouts),
        "rollout_ids": [rollout.id for rollout in credit.rollouts],
        "rollout_offsets": group.offsets,
        "progress_values": [rollout.outcome for rollout in credit.rollouts],
        "boundary": boundary([rollout.outcome for rollout in credit.rollouts])._asdict(),
        "global_advantages": credit.global_advantages,
        "local_steps": len(credit.steps),
        "active_steps": sum(step.local.active for step in credit.steps),
        "skipped": [
            {
                "rollout_id": credit.rollouts[skip.rollout].id,
                "user_turn_id": skip.user_turn,
                "reason": skip.reason,
                "detail": skip.detail,
            }
            for skip in credit.skips
        ],
    }


def _unplaced(group: CreditedGroup) -> int:
    spans = group.spans
    return sum(
        step.local.active and spans[step.rollout].get((step.interaction.user_turn, step.interaction.index)) is None
        for step in group.credit.steps
    )


def _print(
    rows: Sequence[Row],
    columns: Sequence[str],
    groups: Sequence[CreditedGroup],
    left_out: Sequence[str],
    disagreements: Sequence[trajectories.Disagreement],
    limit: int,
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False)
    shown = [name for name in _PRINTED if name in columns]
    table = Table(box=SIMPLE_HEAD)
    for name in shown:
        table.add_column(_PRINTED[name], no_wrap=True)
    for row in rows[:limit]:
        table.add_row(*(_cell(row[name]) for name in shown))
    console.print(table)
    if len(rows) > limit:
        console.print(f"{len(rows) - limit} more rows in the table's files")
    sizes = Counter(len(group.credit.rollouts) for group in groups)
    members = ", ".join(f"{count} of {size}" for size, count in sorted(sizes.items()))
    console.print(f"{len(groups)} groups ({members} rollouts), {sum(len(g.credit.steps) for g in groups)} local steps")
    for reason, count in sorted(Counter(skip.reason for group in groups for skip in group.credit.skips).items()):
        console.print(f"without local credit: {count} x {reason}")
    for line in [line for group in groups for line in _unusual_skips(group)][:limit]:
        console.print(line)
    for line in left_out:
        console.print(f"left out: {line}")
    for disagreement in disagreements:
        console.print(f"parser disagrees: {disagreement}")


def _unusual_skips(group: CreditedGroup) -> Iterator[str]:
    for skip in group.credit.skips:
        if skip.reason != "empty_gold":
            turn = "" if skip.user_turn is None else f", user turn {skip.user_turn}"
            yield f"  rollout {group.credit.rollouts[skip.rollout].id}{turn}: {skip.reason} ({skip.detail})"


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

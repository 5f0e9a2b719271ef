"""`bfcl-rollout routing`: make the pilot again, check the data, compare and plot runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from bfcl_rollout.errors import SetupError

from bfcl_routing import pilot
from bfcl_routing.cases import SUITES, load_cases
from bfcl_routing.checks import check
from bfcl_routing.hashing import sha256_text
from bfcl_routing.manifest import load_manifest
from bfcl_routing.wording import FROZEN_FILE_SHA256, load_wording


def main(argv: list[str]) -> int:
    """Run one of the commands; returns the process's exit status.

    Raises:
        SetupError: something the command needs is missing or wrong.
    """
    arguments = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = arguments.command
    return command(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bfcl-rollout routing", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    convert = commands.add_parser("convert", help="convert the 2,000 V1 rows of a Gorilla checkout")
    _add_source(convert)
    _add_wording(convert)
    convert.add_argument("--output", type=Path, help="file to write the converted records to (JSON lines)")
    convert.set_defaults(command=_convert)

    select = commands.add_parser("select", help="select the 250 cases of the V1 pilot by its rules")
    _add_source(select)
    _add_wording(select)
    select.add_argument("--output", type=Path, help="file to write the selected records to (JSON lines)")
    select.set_defaults(command=_select)

    verify = commands.add_parser("check", help="verify every suite and split against the installed package")
    verify.set_defaults(command=_check)

    manifest = commands.add_parser("manifest", help="make a committed manifest again (for maintainers)")
    manifest.add_argument("name", choices=("v1", "v4_live", "pool"))
    manifest.add_argument("--frozen-file", type=Path, help="original cases of the pilot (not needed for pool)")
    manifest.add_argument("--output", type=Path, help="file to write; without it the result is compared")
    manifest.set_defaults(command=_manifest)

    compare = commands.add_parser("compare", help="compare runs case by case: McNemar, Holm, intervals, latency")
    compare.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    compare.add_argument("--output", type=Path, help="file to write the comparison to (JSON)")
    compare.set_defaults(command=_compare)

    plot = commands.add_parser("plot", help="draw accuracy by stratum and accuracy against latency (PNG and SVG)")
    plot.add_argument("run_dirs", nargs="+", type=Path, metavar="RUN_DIR")
    plot.add_argument("--output", type=Path, default=Path(), help="folder to write to (default: here)")
    plot.set_defaults(command=_plot)

    bench = commands.add_parser("bench", help="time the offline path: read, decide and score every case in every form")
    bench.add_argument("--passes", type=int, default=3, help="default: %(default)s")
    bench.set_defaults(command=_bench)
    return parser


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--source-dir",
        type=Path,
        help="data folder of a Gorilla checkout at the pinned V1 commit; without it the installed package is used, "
        "which holds the five categories that the pilot is selected from",
    )


def _add_wording(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wording", choices=("neutral", "frozen"), default="neutral", help="default: %(default)s")
    parser.add_argument("--frozen-file", type=Path, help="local copy of the original cases, for --wording frozen")


def _records(arguments: argparse.Namespace) -> list[pilot.Record]:
    wording = load_wording(arguments.wording, "v1", arguments.frozen_file)
    rows = pilot.package_rows() if arguments.source_dir is None else pilot.checkout_rows(arguments.source_dir)
    return [pilot.convert_row(row, wording) for row in rows]


def _write(records: list[pilot.Record], output: Path | None) -> str:
    text = pilot.to_jsonl(records)
    if output is not None:
        output.write_text(text, encoding="utf-8")
    return sha256_text(text)


def _convert(arguments: argparse.Namespace) -> int:
    records = _records(arguments)
    digest = _write(records, arguments.output)
    eligible = sum(record["score_eligible"] for record in records)
    print(f"{len(records)} rows converted, {eligible} with one usable first action, sha256 {digest}")
    for record in records:
        for warning in record["warnings"]:
            print(f"  {record['id']}: {warning}")
    return 0


def _select(arguments: argparse.Namespace) -> int:
    """Exit status 1 if the selection is not the committed one."""
    selected = pilot.select(_records(arguments))
    digest = _write(selected, arguments.output)
    expected = [entry.id for entry in load_manifest("v1").cases]
    same = [record["id"] for record in selected] == expected
    print(f"{len(selected)} cases selected, {'the same' if same else 'NOT the same'} ids as the pilot, sha256 {digest}")
    if arguments.source_dir is not None and arguments.wording == "frozen":
        original = digest == FROZEN_FILE_SHA256
        print(f"the file is {'byte for byte' if original else 'NOT'} the original")
        same = same and original
    return 0 if same else 1


def _check(arguments: argparse.Namespace) -> int:
    print("\n".join(check()))
    return 0


def _manifest(arguments: argparse.Namespace) -> int:
    from bfcl_routing.build import build_pilot, build_pool

    if arguments.name == "pool":
        made = build_pool()
    elif arguments.frozen_file is None:
        raise SetupError("give the pilot's original cases with --frozen-file")
    else:
        made = build_pilot(arguments.name, arguments.frozen_file)
    if arguments.output is not None:
        arguments.output.write_text(made.dump(), encoding="utf-8")
        return 0
    same = made == load_manifest(arguments.name)
    print(f"{arguments.name}: {len(made.cases)} cases, {'as' if same else 'NOT as'} committed")
    return 0 if same else 1


def _compare(arguments: argparse.Namespace) -> int:
    from bfcl_routing.report.compare import compare, render_comparison
    from bfcl_routing.report.runs import read_run

    result = compare([read_run(path) for path in arguments.run_dirs])
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(render_comparison(result))
    return 0


def _plot(arguments: argparse.Namespace) -> int:
    from bfcl_routing.report.plots import plot
    from bfcl_routing.report.runs import read_run

    for path in plot([read_run(p) for p in arguments.run_dirs], arguments.output):
        print(path)
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from time import perf_counter
    from typing import get_args

    from bfcl_routing.answers import write_answer
    from bfcl_routing.decision import decide
    from bfcl_routing.scoring import metrics
    from bfcl_routing.taskset import RoutingData, plays
    from bfcl_routing.view import FormName, View
    from bfcl_routing.wording import NEUTRAL

    for form in get_args(FormName):
        started = perf_counter()
        tasks: list[RoutingData] = []
        for suite in SUITES:
            view = View(suite=suite, form=form)
            digest = view.sha256(NEUTRAL)
            tasks += [data for case in load_cases(suite) for data in plays(case, view, NEUTRAL, digest)]
        built = perf_counter() - started
        replies = [write_answer(form, data.codes, 0).choice() for data in tasks]
        started = perf_counter()
        for _ in range(arguments.passes):
            for data, reply in zip(tasks, replies, strict=True):
                metrics(decide(form, data.codes, data.actions, reply), data.gold)
        scored = (perf_counter() - started) / arguments.passes
        print(f"{form:<16} {len(tasks) / built:8.0f} prompts/s built  {len(tasks) / scored:8.0f} cases/s scored")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m parity`: the command line. Exit status 0: identical; 1: not; 2: could not run."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bfcl_rollout.errors import SetupError

from parity import report, runs
from parity.answers import Answerer, Upstream, from_policy
from parity.categories import CATEGORIES, GROUPS
from parity.recording import read_recording
from parity.runs import Plan, plan_from_json

_CONCURRENCY = 8
_OUTPUT = Path("outputs") / "parity"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options, f"python -m parity {shlex.join(arguments)}"))
    except SetupError as error:
        print(f"parity: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("parity: interrupted; run the same command with --resume to keep what was finished", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m parity", description=__doc__)
    commands = parser.add_subparsers(required=True)

    scripted = commands.add_parser("scripted", help="both sides against a policy of the embedded model")
    scripted.add_argument("policy", help="e.g. recall, misbehave, or parity's own: cases")
    _add_selection(scripted)
    scripted.set_defaults(run=_scripted)

    record = commands.add_parser("record", help="the official side once, its model's replies stored")
    record.add_argument("recording", type=Path, help="file to write; an interrupted one is taken up")
    _add_model(record, required=False)
    _add_selection(record)
    record.set_defaults(run=_record)

    replay = commands.add_parser("replay", help="both sides against a recording")
    replay.add_argument("recording", type=Path)
    replay.add_argument(
        "--only-ours",
        action="store_true",
        help="compare with the digests that the recording holds of the official side, instead of running it",
    )
    _add_output(replay)
    replay.set_defaults(run=_replay)

    live = commands.add_parser("live", help="official twice and ours once against a real endpoint")
    _add_model(live, required=True)
    _add_selection(live)
    live.set_defaults(run=_live)

    again = commands.add_parser("compare", help="compare what an earlier run left, without playing")
    again.add_argument("folder", type=Path)
    again.set_defaults(run=_compare)
    return parser


def _add_model(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--model", required=True, help="model name on the wire; without --url, a policy")
    parser.add_argument("--url", required=required, help="OpenAI-compatible base URL, ending in /v1")
    parser.add_argument(
        "--key-var", default="OPENAI_API_KEY", help="environment variable with its key (default: %(default)s)"
    )


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--categories",
        nargs="+",
        choices=[*GROUPS, *CATEGORIES],
        default=["memory"],
        help="categories, or groups of them (default: memory)",
    )
    parser.add_argument("--scenarios", nargs="+", help="memory scenarios (default: all five)")
    parser.add_argument("--ids", nargs="+", help="test ids, for categories whose entries are independent")
    parser.add_argument("--mode", choices=["fc", "prompting"], default="fc", help="BFCL's loop (default: %(default)s)")
    _add_output(parser)


def _add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, help=f"folder of the run (default: one in {_OUTPUT}, named by its settings)"
    )
    parser.add_argument("--resume", action="store_true", help="keep what an interrupted run of the same kind finished")
    parser.add_argument(
        "--concurrency", type=int, default=_CONCURRENCY, help="rollouts in flight on a side (default: %(default)s)"
    )


def _scripted(options: argparse.Namespace, command: str) -> int:
    plan = _plan(options, options.policy, "scripted")
    return _report(asyncio.run(runs.scripted(plan)), plan.folder, command)


def _record(options: argparse.Namespace, command: str) -> int:
    plan = _plan(options, options.model, "record")
    count = asyncio.run(_closing(options, lambda source: runs.record(plan, options.recording, source)))
    print(f"{options.recording}: {count:,} replies")
    return 0


def _live(options: argparse.Namespace, command: str) -> int:
    plan = _plan(options, options.model, "live")
    found = asyncio.run(_closing(options, lambda source: runs.live(plan, source)))
    return _report(found, plan.folder, command)


async def _closing(options: argparse.Namespace, use: Any) -> Any:
    """`use` a source of replies: the policy, or the endpoint and its connections."""
    if options.url is None:
        source: Answerer = from_policy(options.model)
        return await use(source)
    upstream = Upstream(options.url, options.key_var)
    try:
        return await use(upstream)
    finally:
        await upstream.close()


def _replay(options: argparse.Namespace, command: str) -> int:
    recording = read_recording(options.recording)
    folder = options.out or _OUTPUT / f"replay-{recording.sha256[:12]}"
    plan = plan_from_json(recording.settings, folder.resolve(), concurrency=options.concurrency, resume=options.resume)
    return _report(asyncio.run(runs.replay(plan, recording, only_ours=options.only_ours)), folder, command)


def _compare(options: argparse.Namespace, command: str) -> int:
    plan, found = runs.compare_again(options.folder.resolve())
    return _report(found, plan.folder, command)


def _plan(options: argparse.Namespace, model: str, kind: str) -> Plan:
    stored = {
        "categories": list(dict.fromkeys(each for name in options.categories for each in GROUPS.get(name, (name,)))),
        "model": model,
        "mode": options.mode,
        "scenarios": options.scenarios,
        "ids": options.ids,
    }
    key = hashlib.sha256(json.dumps(stored).encode()).hexdigest()[:8]
    name = "".join(char if char.isalnum() else "-" for char in model)
    folder = options.out or _OUTPUT / f"{kind}-{name}-{options.mode}-{key}"
    return plan_from_json(stored, folder.resolve(), concurrency=options.concurrency, resume=options.resume)


def _report(found: dict[str, Any], folder: Path, command: str) -> int:
    content = {"version": report.REPORT_VERSION, "command": command, **found}
    report.write(content, folder)
    print("\n".join(report.summary(content)))
    print(f"report: {folder / 'report.md'}")
    return 0 if content["equal"] else 1


if __name__ == "__main__":
    sys.exit(main())

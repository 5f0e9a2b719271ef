"""`bfcl-rollout`: the suite's own commands. An environment adds more through the entry points it declares."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from pathlib import Path

from bfcl_rollout.errors import SetupError

COMMANDS_GROUP = "bfcl_rollout.commands"
"""Entry points `name = "module:main"` of further commands, `main(argv: list[str]) -> int`."""

Command = Callable[[list[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; 2 means that it was called wrongly or cannot run here."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    commands = {**_own_commands(), **_installed_commands()}
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage(commands))
        return 0 if arguments else 2
    name, rest = arguments[0], arguments[1:]
    command = commands.get(name)
    if command is None:
        print(f"bfcl-rollout: unknown command {name!r}; known: {', '.join(sorted(commands))}", file=sys.stderr)
        return 2
    try:
        return command(rest)
    except SetupError as error:
        print(f"bfcl-rollout {name}: {error}", file=sys.stderr)
        return 2


def _own_commands() -> dict[str, Command]:
    return {"doctor": _doctor, "same": _same, "scripted": _scripted, "summary": _summary}


def _installed_commands() -> dict[str, Command]:
    return {point.name: _Installed(point.name) for point in entry_points(group=COMMANDS_GROUP)}


class _Installed:
    """A command of an environment, imported when it is called."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, argv: list[str]) -> int:
        (point,) = entry_points(group=COMMANDS_GROUP, name=self.name)
        return int(point.load()(argv))


def _usage(commands: dict[str, Command]) -> str:
    own = {
        "doctor": "what is installed here, what confines a rollout, and whether each environment could run",
        "same": "compare two runs, rollout by rollout",
        "scripted": "serve the embedded model",
        "summary": "print a run's table again from its traces",
    }
    lines = [f"  {name:<10} {own.get(name, 'see --help')}" for name in sorted(commands)]
    return "\n".join(["usage: bfcl-rollout COMMAND [ARGUMENT ...]", "", *lines])


def _doctor(argv: list[str]) -> int:
    from bfcl_rollout.cli.doctor import main as doctor

    return doctor(argv)


def _same(argv: list[str]) -> int:
    from bfcl_rollout.cli.same import main as same

    return same(argv)


def _scripted(argv: list[str]) -> int:
    from bfcl_rollout.scripted.__main__ import main as scripted

    return scripted(argv)


def _summary(argv: list[str]) -> int:
    from bfcl_rollout.cli.summary import summarize

    parser = argparse.ArgumentParser(
        prog="bfcl-rollout summary",
        description="Print a run's table from its traces.jsonl alone, and store it as summary.json beside it.",
    )
    parser.add_argument("run_dir", type=Path, help="a run directory, the folder that holds traces.jsonl")
    print(summarize(parser.parse_args(argv).run_dir))
    return 0

"""A process that forks one confined process per request, as a zygote does, and says what became of its code.

The code is handed over as text and executed with no call guard in between: it stands for model output that got
past the first wall.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Outcome:
    """What one piece of code did. `value` is its variable `got`; `error` is what it raised, as `Type: text`."""

    value: Any = None
    error: str | None = None
    signal: int = 0
    applied: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


class Cell:
    """Runs code in confined forks. `pid` is the process they are forked from."""

    def __init__(self, root: Path) -> None:
        environment = {**os.environ, "BFCL_PROJECT_ROOT": str(root), "SECRET_TOKEN": "tell nobody"}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def start(self, code: str, folder: Path, **options: Any) -> None:
        """Begin a run whose outcome nobody waits for (see `run` for the options)."""
        request = {"code": code, "folder": str(folder), **options}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def run(self, code: str, folder: Path, **options: Any) -> Outcome:
        """Execute `code` in a fork confined to `folder`.

        Options: `confine` (default true), `limits`, `endpoint`, `hidden`, `readable` (beside the code), `before`
        (code to run ahead of the confinement), `variables` (names for the code), `seconds` until it is killed.
        """
        self.start(code, folder, **options)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process that forks has died"
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """End it and everything it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self._process.wait()


@contextlib.contextmanager
def cell(root: Path) -> Iterator[Cell]:
    """A `Cell` that is closed at the end."""
    opened = Cell(root)
    try:
        yield opened
    finally:
        opened.close()


def gone(pid: int) -> bool:
    """Whether the process is no longer running (a zombie counts as gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _serve() -> None:
    from bfcl_rollout.worker import limits

    limits.prepare(limits.code_paths())
    for line in sys.stdin:
        request = json.loads(line)
        reading, writing = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            _fork(request, writing, parent)
        os.close(writing)
        text, seconds = b"", request.get("seconds", 60.0)
        while select.select([reading], [], [], seconds)[0] and (chunk := os.read(reading, 65536)):
            text += chunk
        os.close(reading)
        if not text.endswith(b"}"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        outcome = json.loads(text.splitlines()[-1]) if text.endswith(b"}") else {}
        outcome["signal"] = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        print(json.dumps(outcome), flush=True)


def _fork(request: Mapping[str, Any], writing: int, parent: int) -> None:
    from bfcl_rollout.records import Limits
    from bfcl_rollout.worker import limits

    outcome = Outcome()
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(writing, 1)
        os.chdir(request["folder"])
        exec(request.get("before", ""), {})
        if request.get("confine", True):
            done = limits.apply(
                Limits.model_validate(request.get("limits", {})),
                folder=Path(request["folder"]),
                readable=[*limits.code_paths(), *map(Path, request.get("readable", []))],
                endpoint=request.get("endpoint"),
                hidden=[Path(path) for path in request.get("hidden", [])],
                parent=parent,
                keep=(),
            )
            outcome.applied, outcome.missing = done.applied, done.missing
        names = {"folder": request["folder"], **request.get("variables", {})}
        try:
            exec(request["code"], names)
            outcome.value = names.get("got")
        except BaseException as error:
            outcome.error = f"{type(error).__name__}: {error}"
        os.write(1, b"\n" + json.dumps(vars(outcome)).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    _serve()

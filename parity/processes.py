"""Running a side's command: output to a file, the whole process tree gone when parity is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from bfcl_rollout.errors import SetupError

_GRACE_S = 10.0
_TAIL_LINES = 15


class SideFailedError(SetupError):
    """A side's command ended with an error. The message holds the end of its output."""


async def run(command: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
    """Run a command to its end, with its output in `log`.

    Raises:
        SideFailedError: its exit status is not 0.
    """
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=dict(env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
    if status != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])
        raise SideFailedError(f"{' '.join(command[:4])} ... ended with status {status}; see {log}\n{tail}")


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(process.wait(), _GRACE_S)
            return


def clean_environment() -> dict[str, str]:
    """This process's environment without what would redirect a side: endpoints, keys, BFCL's and the hub's settings."""
    dropped = ("OPENAI_", "BFCL_PROJECT_ROOT", "HF_", "SENTENCE_TRANSFORMERS_", "PYTHONPATH")
    return {name: value for name, value in os.environ.items() if not name.startswith(dropped)}

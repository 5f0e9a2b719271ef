"""The embedded model in a process of its own, for as long as a `with` block lasts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from types import TracebackType

_CLOSE_S = 5.0


class ScriptedServer:
    """Runs `python -m bfcl_rollout.scripted` as a child process.

    The child ends when its standard input is closed, so it goes with its parent even if that is killed. It
    has a session of its own: Ctrl-C reaches the parent only, which may still need the endpoint while it winds
    down.

    Args:
        default: Policy for model names that are none of ours; without it they get a 404.
        port: Port to listen on; 0 picks a free one.
    """

    def __init__(self, default: str | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._arguments = [*([default] if default else []), "--host", host, "--port", str(port), "--lifeline"]
        self._process: subprocess.Popen[str] | None = None
        self._url = ""

    @property
    def url(self) -> str:
        """Base URL, ending in `/v1`.

        Raises:
            RuntimeError: The server is not running.
        """
        if self._process is None:
            raise RuntimeError("the scripted server is not running")
        return self._url

    @property
    def pid(self) -> int:
        """Process id of the running server.

        Raises:
            RuntimeError: The server is not running.
        """
        if self._process is None:
            raise RuntimeError("the scripted server is not running")
        return self._process.pid

    def start(self) -> ScriptedServer:
        """Start the process and wait until it listens.

        Raises:
            RuntimeError: It ended instead; the message is what it said.
        """
        # Complaints go to a file: nobody would read a pipe, and a full one would block the server.
        with tempfile.TemporaryFile("w+") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-m", "bfcl_rollout.scripted", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                start_new_session=True,
            )
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                process.communicate()
                complaints.seek(0)
                raise RuntimeError(f"the scripted server did not start: {complaints.read().strip()}")
        self._process, self._url = process, url
        return self

    def close(self) -> None:
        """End the process; a second call does nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.communicate(timeout=_CLOSE_S)  # closes its standard input first
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> ScriptedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

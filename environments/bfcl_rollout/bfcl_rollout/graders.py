"""Grading processes that stay: a conversation is graded in a few milliseconds, a process takes ten to start.

Only conversations are graded this way. Their calls have been executed elsewhere, so a grading process executes
nothing that a model wrote and carries nothing over from one grading to the next but the answer key. It ends when its
connection is closed, and is replaced after a while.

Connections are plain sockets, since one outlives the event loop that opened it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bfcl_rollout.worker import frames

_KEPT = 4
"""Idle processes of a category."""
_GRADINGS = 500
"""Gradings after which a process is replaced."""

Open = Callable[[str], Awaitable[socket.socket]]
"""Start a grading process for a category and return the connection to it."""


class GraderDiedError(Exception):
    """The process ended. The argument is the payload of its exit frame, None if there was none."""


@dataclass
class _Grader:
    connection: socket.socket
    gradings: int = 0


class Graders:
    """The idle grading processes of a pool."""

    def __init__(self, open_: Open) -> None:
        self._open = open_
        self._idle: dict[str, list[_Grader]] = defaultdict(list)

    async def grade(self, category: str, spec: bytes) -> bytes:
        """One verdict, as JSON. Cancelling ends the process.

        Raises:
            GraderDiedError: the process ended before it had graded this.
        """
        while idle := self._idle[category]:
            grader = idle.pop()
            # It may have ended while it was idle. If it is this spec that ends it, a fresh one says so.
            with contextlib.suppress(GraderDiedError):
                return await self._ask(category, grader, spec)
        connection = await self._open(category)
        connection.setblocking(False)
        return await self._ask(category, _Grader(connection), spec)

    async def _ask(self, category: str, grader: _Grader, spec: bytes) -> bytes:
        try:
            answer = await _exchange(grader.connection, spec)
        except BaseException:
            grader.connection.close()
            raise
        grader.gradings += 1
        if grader.gradings < _GRADINGS and len(self._idle[category]) < _KEPT:
            self._idle[category].append(grader)
        else:
            grader.connection.close()
        return answer

    def close(self) -> None:
        """End the idle processes."""
        for graders in self._idle.values():
            for grader in graders:
                grader.connection.close()
        self._idle.clear()


async def _exchange(connection: socket.socket, spec: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_sendall(connection, frames.pack(frames.SPEC, spec))
        kind, size = frames.parse_header(await _exactly(connection, frames.HEADER_SIZE))
        payload = await _exactly(connection, size)
    except OSError:
        raise GraderDiedError(None) from None
    if kind != frames.RECORD:
        raise GraderDiedError(payload)
    return payload


async def _exactly(connection: socket.socket, size: int) -> bytes:
    loop = asyncio.get_running_loop()
    parts = []
    while size:
        part = await loop.sock_recv(connection, min(size, 1 << 20))
        if not part:
            raise GraderDiedError(None)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

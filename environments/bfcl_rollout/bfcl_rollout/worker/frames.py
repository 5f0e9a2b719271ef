"""Length-prefixed frames between the main process and a worker."""

from __future__ import annotations

import asyncio
import socket
import struct

SPEC, RECORD, FAILURE, EXIT = b"S", b"R", b"F", b"X"
"""A spec on its way in; a record, or why there is none, on its way out; the worker's exit status, from the zygote."""

MAX_FRAME = 1 << 30
_HEADER = struct.Struct("!cI")
HEADER_SIZE = _HEADER.size


class FrameError(Exception):
    """The other side sent something that is not a frame."""


def pack(kind: bytes, payload: bytes) -> bytes:
    """One frame: a kind, the payload's length, the payload."""
    return _HEADER.pack(kind, len(payload)) + payload


def read_blocking(connection: socket.socket) -> tuple[bytes, bytes]:
    """The next frame from a blocking socket.

    Raises:
        EOFError: the other side closed first.
    """
    kind, size = parse_header(_exactly(connection, _HEADER.size))
    return kind, _exactly(connection, size)


async def read(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """The next frame from a stream, or None at its end (also where it ends inside a frame).

    Raises:
        FrameError: the header makes no sense.
    """
    try:
        kind, size = parse_header(await reader.readexactly(_HEADER.size))
        return kind, await reader.readexactly(size)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


def parse_header(header: bytes) -> tuple[bytes, int]:
    """Kind and payload size of a frame.

    Raises:
        FrameError: the header makes no sense.
    """
    kind, size = _HEADER.unpack(header)
    if kind not in (SPEC, RECORD, FAILURE, EXIT) or size > MAX_FRAME:
        raise FrameError(f"not a frame: {header!r}")
    return kind, size


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

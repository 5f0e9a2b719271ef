"""Finished memories, kept so that many questions can be asked of one.

A memory is identified by everything that decides it: backend, scenario, the prefill role's model and sampling, the
loop's mode, and the official package's version and data. Asking for a missing one builds it, once, however many
episodes and processes ask at the same time; a file appears whole or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from bfcl_rollout.errors import SetupError
from filelock import FileLock, Timeout

FORMAT = 1
_LOCK_POLL_SECONDS = 0.2


class SnapshotError(SetupError):
    """A snapshot folder or file cannot be used."""


def check_folder(folder: Path) -> None:
    """Make sure snapshots can be written here.

    Raises:
        SnapshotError: the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SnapshotError(f"--env.snapshots: cannot write to {folder}: {error.strerror}") from None


class Snapshots:
    """Memories by identity: in a folder, or for this run only when there is none."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._building: dict[str, asyncio.Task[str]] = {}

    async def get(self, identity: Mapping[str, Any], build: Callable[[], Awaitable[str]]) -> str:
        """The memory with this identity, building it if it is missing.

        Callers that ask while it is being built wait for that build. A build that fails is an error for all who
        waited for it, and the next caller starts another.

        Raises:
            SnapshotError: a stored file is not a snapshot of this identity.
        """
        key = identity_key(identity)
        task = self._building.get(key)
        if task is None:
            task = asyncio.ensure_future(self._get(key, identity, build))
            self._building[key] = task
            task.add_done_callback(lambda done: self._forget_failure(key, done))
        # One waiter that is cancelled must not take the build away from the others.
        return await asyncio.shield(task)

    def _forget_failure(self, key: str, task: asyncio.Task[str]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._building.pop(key, None)

    async def _get(self, key: str, identity: Mapping[str, Any], build: Callable[[], Awaitable[str]]) -> str:
        if self.folder is None:
            return await build()
        path = self.folder / f"{key}.json"
        if (memory := _read(path, identity)) is not None:
            return memory
        lock = FileLock(self.folder / f"{key}.lock", thread_local=False)
        while True:
            try:
                lock.acquire(blocking=False)
                break
            except Timeout:
                await asyncio.sleep(_LOCK_POLL_SECONDS)
        try:
            if (memory := _read(path, identity)) is None:
                memory = await build()
                _write(path, identity, memory)
            return memory
        finally:
            lock.release()


def identity_key(identity: Mapping[str, Any]) -> str:
    """A file name for an identity: readable in front, a digest of all of it behind."""
    text = json.dumps(identity, sort_keys=True)
    readable = "-".join(str(identity.get(name, "")) for name in ("backend", "scenario", "model"))
    return f"{re.sub(r'[^A-Za-z0-9]+', '-', readable).strip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read(path: Path, identity: Mapping[str, Any]) -> str | None:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return None
    try:
        stored = json.loads(text)
        if stored["format"] != FORMAT or stored["identity"] != json.loads(json.dumps(identity)):
            raise ValueError("another format or identity")
        memory = str(stored["memory"])
        if hashlib.sha256(memory.encode()).hexdigest() != stored["sha256"]:
            raise ValueError("its checksum does not match")
    except (ValueError, KeyError, TypeError) as error:
        raise SnapshotError(f"{path} is not a usable snapshot ({error}); remove it to build it again") from error
    return memory


def _write(path: Path, identity: Mapping[str, Any], memory: str) -> None:
    stored = {
        "format": FORMAT,
        "identity": identity,
        "memory": memory,
        "sha256": hashlib.sha256(memory.encode()).hexdigest(),
    }
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            json.dump(stored, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise

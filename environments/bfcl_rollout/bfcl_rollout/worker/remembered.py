"""Remembered embeddings: one SQLite file per machine and encoder, shared by all encoder processes.

A row holds the vectors of one exact batch of texts under the SHA-256 of the batch, with a checksum over key and
content. Whatever is wrong with the file (locked, corrupt, read-only, disk full, a row half-written by something else),
the answer is "not remembered" and the vectors are computed; never an error, never a vector that was not stored so.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy.typing as npt

from bfcl_rollout.worker.embeddings import pack_vectors, unpack_vectors

MAX_BYTES = 1 << 30
"""Default bound of the file. A full archive of 50 texts takes 77 kB."""
_BUSY_SECONDS = 0.5
_SCHEMA = "CREATE TABLE IF NOT EXISTS batches (age INTEGER PRIMARY KEY, key BLOB UNIQUE, sum BLOB, vectors BLOB)"


class EmbeddingStore:
    """Vectors by batch. Safe for many processes at once; not for threads.

    Args:
        folder: Where the file lies. It is created if need be.
        fingerprint: Hexadecimal digest of all that decides the bits of a vector. Each has a file of its own.
        max_bytes: Bound of the file; the oldest batches make room.
    """

    def __init__(self, folder: Path, fingerprint: str, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / f"embeddings-{fingerprint[:16]}.sqlite"
        self._fingerprint = fingerprint
        self._max_bytes = max_bytes
        self._connection = self._open() or self._open_anew()

    def get(self, texts: Sequence[str]) -> npt.NDArray[Any] | None:
        """The vectors of exactly this batch, or None if they are not remembered."""
        if self._connection is None:
            return None
        key = self._key(texts)
        try:
            row = self._connection.execute("SELECT sum, vectors FROM batches WHERE key = ?", (key,)).fetchone()
            if row is None or row[0] != _checksum(key, row[1]):
                return None
            return unpack_vectors(row[1])
        except (sqlite3.Error, TypeError, ValueError):
            return None

    def put(self, texts: Sequence[str], vectors: npt.NDArray[Any]) -> None:
        """Remember the vectors of a batch, if that is possible."""
        if self._connection is None:
            return
        key, packed = self._key(texts), pack_vectors(vectors)
        row = (key, _checksum(key, packed), packed)
        with suppress(sqlite3.Error):
            try:
                self._insert(row)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_FULL:
                    raise
                self._evict()
                self._insert(row)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _key(self, texts: Sequence[str]) -> bytes:
        return hashlib.sha256(json.dumps([self._fingerprint, *texts]).encode()).digest()

    def _insert(self, row: tuple[bytes, bytes, bytes]) -> None:
        assert self._connection is not None
        with self._connection:
            # Replaces a row whose checksum was wrong.
            self._connection.execute("INSERT OR REPLACE INTO batches (key, sum, vectors) VALUES (?, ?, ?)", row)

    def _evict(self) -> None:
        """Delete the oldest tenth, at least one batch. SQLite uses the freed pages again."""
        assert self._connection is not None
        with self._connection:
            (count,) = self._connection.execute("SELECT count(*) FROM batches").fetchone()
            oldest = "SELECT age FROM batches ORDER BY age LIMIT ?"
            self._connection.execute(f"DELETE FROM batches WHERE age IN ({oldest})", (count // 10 + 1,))

    def _open(self) -> sqlite3.Connection | None:
        connection = None
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS)
            # A reader never waits for a writer. Where the file system cannot do it SQLite stays with its default.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            (page,) = connection.execute("PRAGMA page_size").fetchone()
            connection.execute(f"PRAGMA max_page_count = {max(self._max_bytes // page, 8)}")
            connection.execute(_SCHEMA)
            connection.execute("SELECT sum, vectors FROM batches LIMIT 1").fetchone()
        except (OSError, sqlite3.Error):
            if connection is not None:
                connection.close()
            return None
        return connection

    def _open_anew(self) -> sqlite3.Connection | None:
        """Start over where the file is no database, as after a crash of the machine. Not where it is only locked."""
        try:
            with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=_BUSY_SECONDS)) as connection:
                connection.execute("SELECT sum, vectors FROM batches LIMIT 1").fetchone()
            return None
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
                return None
        with suppress(OSError):
            for suffix in ("-wal", "-shm", ""):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)
            return self._open()
        return None


def _checksum(key: bytes, packed: bytes) -> bytes:
    return hashlib.sha256(key + packed).digest()

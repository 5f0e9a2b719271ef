"""The recording format: replies by request digest, and what the official side made of them.

A JSON-lines file:

    {"format": "bfcl-parity-recording", "version": 1, "settings": {...}}
    {"request": SHA-256 of the request, "reply": the reply's JSON}            one for each distinct request
    {"observed": {category: {test id: {"requests": [...], "facts": {...}}}}, "versions": {...}}   digests only
    {"end": number of replies, "sha256": digest of everything before this line}

Requests are stored as digests, so a recording holds nothing of the benchmark's texts but what the model repeated.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from bfcl_rollout.errors import SetupError

FORMAT = "bfcl-parity-recording"
VERSION = 1


class RecordingError(SetupError):
    """A file is not a recording that this program can use."""


@dataclass(frozen=True)
class Recording:
    """A complete recording."""

    settings: dict[str, Any]
    """What was run: categories, scenarios, mode, model."""
    replies: dict[str, Any]
    """Reply by request digest."""
    observed: dict[str, Any]
    """What the official side did, as digests, by category and test id."""
    versions: dict[str, str]
    """What was installed on the official side."""
    sha256: str
    """Digest that stands in the file's last line."""


def read_recording(path: Path) -> Recording:
    """Read a complete recording.

    Raises:
        RecordingError: it is missing, of another format or version, truncated or damaged.
    """
    lines = _read_lines(path)
    settings = _settings(path, lines)
    last = _parse(lines[-1])
    if last is None or "end" not in last:
        found = sum(1 for line in lines if "request" in (_parse(line) or {}))
        raise RecordingError(
            f"{path} is truncated: it has {found} replies and no end line; finish it with the `record` command that "
            "made it, or get the whole file"
        )
    sha256 = _checksum(lines[:-1])
    if last.get("sha256") != sha256:
        raise RecordingError(f"{path} is damaged: its checksum does not match its content")
    replies: dict[str, Any] = {}
    observed: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for line in map(json.loads, lines[1:-1]):
        if "observed" in line:
            observed, versions = line["observed"], line["versions"]
        else:
            replies[line["request"]] = line["reply"]
    return Recording(settings, replies, observed, versions, sha256)


@dataclass
class RecordingWriter:
    """Writes a recording, and takes up one that was interrupted.

    Raises:
        RecordingError: the file is complete already, or an interrupted recording of something else.
    """

    path: Path
    settings: dict[str, Any]
    replies: dict[str, Any] = field(default_factory=dict)
    _file: TextIO | None = None

    def __enter__(self) -> RecordingWriter:
        lines = self._resumed() if self.path.exists() else []
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"format": FORMAT, "version": VERSION, "settings": self.settings}) + "\n"]
        # Without the line that an interruption cut off.
        self.path.write_text("".join(lines))
        self._file = self.path.open("a")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _resumed(self) -> list[str]:
        lines = _read_lines(self.path)
        if _settings(self.path, lines) != self.settings:
            raise RecordingError(f"{self.path} was begun with other settings; remove it or name another file")
        kept = [lines[0]]
        for line in lines[1:]:
            parsed = _parse(line)
            if parsed is not None and "end" in parsed:
                raise RecordingError(f"{self.path} is complete; remove it or name another file")
            if parsed is not None and "request" in parsed:
                self.replies[parsed["request"]] = parsed["reply"]
                kept.append(line)
        return kept

    def add(self, key: str, reply: Any) -> Any:
        """Store a reply unless the request has one; return the stored one."""
        if key not in self.replies:
            self.replies[key] = reply
            self._write({"request": key, "reply": reply})
        return self.replies[key]

    def finish(self, observed: dict[str, Any], versions: dict[str, str]) -> None:
        """Store what the official side did, and close the recording for good."""
        self._write({"observed": observed, "versions": versions})
        lines = _read_lines(self.path)
        self._write({"end": len(self.replies), "sha256": _checksum(lines)})

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None, "the recording is not open"
        self._file.write(json.dumps(line, ensure_ascii=True) + "\n")
        self._file.flush()


def _read_lines(path: Path) -> list[str]:
    try:
        with path.open() as file:
            return file.readlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from None


def _settings(path: Path, lines: list[str]) -> dict[str, Any]:
    header = _parse(lines[0]) if lines else None
    if header is None or header.get("format") != FORMAT:
        raise RecordingError(f"{path} is not a parity recording: it does not begin with a header line")
    if header.get("version") != VERSION:
        raise RecordingError(f"{path} has format version {header.get('version')}; this program reads version {VERSION}")
    settings: dict[str, Any] = header["settings"]
    return settings


def _parse(line: str) -> dict[str, Any] | None:
    """One whole line, or None if it is cut off or not an object."""
    if not line.endswith("\n"):
        return None
    try:
        parsed = json.loads(line)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _checksum(lines: list[str]) -> str:
    return hashlib.sha256("".join(lines).encode()).hexdigest()

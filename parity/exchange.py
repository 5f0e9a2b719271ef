"""One model request and its reply, and the file that holds a run's exchanges.

A conversation grows by a message or two a request, so the file stores each message and each tool list once, under
its digest, and a request as a list of digests. The same digests say where two requests differ without their texts.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

Body = dict[str, Any]
"""The JSON body of a chat completions request."""


@dataclass(frozen=True)
class Exchange:
    """One request as it arrived, and what it was answered with."""

    number: int
    """Position in the order of arrival."""
    session: str | None
    """The rollout's session header. The official client sends none."""
    body: Body
    status: int
    reply: Any
    """The reply's JSON."""


def canonical(body: Body) -> Body:
    """A body with its fields in alphabetical order.

    Order inside messages and tool schemas is kept: chat templates show it to the model.
    """
    return {name: body[name] for name in sorted(body)}


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, key order included, as 64 hexadecimal digits."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def request_key(body: Body) -> str:
    """The digest under which a request is known: of its method and canonical body."""
    return digest(["POST", canonical(body)])


def short_digest(value: Any) -> str:
    """What stands for a value where its text is not stored: `#` and the first 16 digits of its digest."""
    return f"#{digest(value)[:16]}"


def is_short_digest(text: str) -> bool:
    """Whether a text is what `short_digest` makes."""
    return re.fullmatch(r"#[0-9a-f]{16}", text) is not None


def body_digests(body: Body) -> dict[str, Any]:
    """A body with each message and each field's value replaced by its short digest."""
    return {
        name: [short_digest(each) for each in value]
        if name == "messages" and isinstance(value, list)
        else short_digest(value)
        for name, value in canonical(body).items()
    }


class ExchangeWriter:
    """Appends exchanges to a file, line by line, so that a killed run leaves what it had."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: TextIO | None = None
        self._stored: set[str] = set()

    def __enter__(self) -> ExchangeWriter:
        self._file = self._path.open("w")
        self._stored.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def add(self, exchange: Exchange) -> None:
        """Store one exchange.

        Raises:
            RuntimeError: the file is not open.
        """
        body = dict(exchange.body)
        messages = body.pop("messages", None)
        tools = body.pop("tools", None)
        line: dict[str, Any] = {
            "number": exchange.number,
            "session": exchange.session,
            "status": exchange.status,
            "fields": body,
            "reply": exchange.reply,
        }
        if isinstance(messages, list):
            line["messages"] = [self._store(each) for each in messages]
        elif messages is not None:
            line["fields"]["messages"] = messages
        if tools is not None:
            line["tools"] = self._store(tools)
        self._write(line)

    def _store(self, value: Any) -> str:
        key = digest(value)
        if key not in self._stored:
            self._stored.add(key)
            self._write({"blob": key, "value": value})
        return key

    def _write(self, line: dict[str, Any]) -> None:
        if self._file is None:
            raise RuntimeError("the file is not open")
        # ASCII: half of a surrogate pair cannot be written as UTF-8.
        self._file.write(json.dumps(line, ensure_ascii=True) + "\n")


def read_exchanges(path: Path) -> Iterator[Exchange]:
    """The exchanges of a file in the order of arrival."""
    blobs: dict[str, Any] = {}
    found = []
    with path.open() as file:
        for text in file:
            line = json.loads(text)
            if "blob" in line:
                blobs[line["blob"]] = line["value"]
                continue
            body = dict(line["fields"])
            if "messages" in line:
                body["messages"] = [blobs[key] for key in line["messages"]]
            if "tools" in line:
                body["tools"] = blobs[line["tools"]]
            found.append(Exchange(line["number"], line["session"], body, line["status"], line["reply"]))
    yield from sorted(found, key=lambda each: each.number)

"""Rows of the installed official package, read as JSON lines and checked by hash.

Every file here holds one JSON object a line. A question row has an id, a conversation (`question`, a list of turns
of messages) and the offered functions; the references stand in a sibling file, in the same order, under the same
id. Nothing of `bfcl_eval` is imported: importing it creates folders and loads vendor SDKs.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError

Row = dict[str, Any]


class SourceMismatchError(SetupError):
    """The installed package's data is not what the manifest was made from."""


def data_dir() -> Path:
    """The official package's data folder."""
    return official.package_dir() / "data"


def verify_files(expected: Mapping[str, str], root: Path | None = None) -> None:
    """Check files against their SHA-256.

    Args:
        expected: SHA-256 by path, relative to `root`.
        root: folder of the files; the official package's data folder if not given.

    Raises:
        SourceMismatchError: a file is missing or differs; the message names it.
    """
    root = root or data_dir()
    for name, digest in expected.items():
        path = root / name
        if not path.is_file():
            raise SourceMismatchError(f"{name} is missing from {root} (bfcl-eval {official.VERSION} has it)")
        found = official.sha256(path)
        if found != digest:
            raise SourceMismatchError(f"{name} has SHA-256 {found}, expected {digest}: its content has changed")


def read_rows(path: Path) -> list[Row]:
    """The JSON objects of a JSON-lines file. A missing final newline is fine."""
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


@functools.cache
def package_rows(name: str) -> tuple[Row, ...]:
    """Rows of one file of the official data folder, by its relative path. Callers must not change them."""
    return tuple(read_rows(data_dir() / name))


def question_file(category: str) -> str:
    """Relative path of a category's questions (`multiple`, `exec_simple`, `live_multiple`, ...)."""
    folder = "unused_datasets/question/" if category.startswith("exec_") else ""
    return f"{folder}BFCL_v4_{category}.json"


def answer_file(category: str) -> str | None:
    """Relative path of a category's references; None where the category itself is the label."""
    if category.endswith(("irrelevance", "relevance")):
        return None
    folder = "unused_datasets/possible_answer/" if category.startswith("exec_") else "possible_answer/"
    return f"{folder}BFCL_v4_{category}.json"


def answers(category: str) -> dict[str, Any]:
    """Reference of each row of a category, by row id. Empty where the category itself is the label."""
    name = answer_file(category)
    return {} if name is None else {row["id"]: row["ground_truth"] for row in package_rows(name)}


def messages(row: Row) -> list[dict[str, Any]]:
    """All messages of a question row, turns joined."""
    return [message for turn in row["question"] for message in turn]


def request_text(row: Row) -> str:
    """The user's request of a one-turn row with exactly one user message.

    Raises:
        ValueError: the row has none or several.
    """
    users = [m["content"] for m in messages(row) if m["role"] == "user"]
    if len(users) != 1:
        raise ValueError(f"{row['id']}: {len(users)} user messages, expected one")
    return str(users[0])

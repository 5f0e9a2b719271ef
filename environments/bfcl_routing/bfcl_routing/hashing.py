"""Canonical text and hashes of what a case or a view holds."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from typing import Any


def compact_json(value: Any) -> str:
    """JSON without spaces and without ASCII escapes, keys in the order given."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def sha256_text(text: str) -> str:
    """SHA-256 of UTF-8 text, 64 hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_json(value: Any) -> str:
    """SHA-256 of a value's compact JSON."""
    return sha256_text(compact_json(value))


def collapse(text: str) -> str:
    """Text with whitespace runs made single spaces and its ends trimmed."""
    return " ".join(text.split())


def request_key(text: str) -> str:
    """What makes two requests the same one in the pilots: NFKC, whitespace collapsed, casefolded."""
    return collapse(unicodedata.normalize("NFKC", text)).casefold()


def word_key(text: str) -> str:
    """A coarser identity for held-out data: NFKC, casefolded, word tokens only."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def rank_key(seed: str, case_id: str) -> str:
    """The pilots' ranking: hex SHA-256 of seed, a NUL byte, and the case id."""
    return sha256_text(f"{seed}\0{case_id}")

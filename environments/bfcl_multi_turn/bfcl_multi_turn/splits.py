"""Splits that cannot leak: by family, and families that share a world together.

The four categories hold variants of the same 200 conversations: entry 17 of each plays in the same world and wants the
same calls. A *family* is an index, with its four entries. Some families share their world too (the same initial state
under another index), and one pair shares a request; they are kept on one side of every split.

Rule: families come in four blocks of 50, one a domain (files, vehicles, trading, travel). In each block, groups of
families that belong together are ordered by the SHA-256 of `bfcl-multi-turn/<lowest index>`; they go to `test` until it
has at least 10 families, then to `dev` until that has 10, and the rest to `train`. `splits.json` is the result, fixed,
with a hash of every family's official entries. `split_of` reads the file; `derive` makes it again.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple

SplitName = Literal["all", "train", "dev", "test"]
Split = Literal["train", "dev", "test"]

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")
FAMILIES = 200
_BLOCK = 50
_SIZES: dict[Split, int] = {"test": 10, "dev": 10}


class Manifest(NamedTuple):
    """The fixed split."""

    families: dict[Split, list[int]]
    family_sha256: list[str]
    """By index: SHA-256 of the family's four official entries."""

    @property
    def sha256(self) -> str:
        """Hash of the whole split: which families are where, and what they hold."""
        return _digest([self.families, self.family_sha256])

    def split_of(self, family: int) -> Split:
        """The split a family belongs to."""
        return next(split for split, members in self.families.items() if family in members)


@functools.cache
def manifest() -> Manifest:
    """The shipped split."""
    stored = json.loads((files(__package__) / "splits.json").read_text())
    return Manifest(stored["families"], stored["family_sha256"])


def derive(entries: Mapping[str, list[dict[str, Any]]]) -> Manifest:
    """Apply the rule to the official entries.

    Args:
        entries: the 200 raw entries of each category, as in the data files.
    """
    together = _groups(entries)
    families: dict[Split, list[int]] = {"train": [], "dev": [], "test": []}
    for start in range(0, FAMILIES, _BLOCK):
        groups = [group for group in together if start <= group[0] < start + _BLOCK]
        room = dict(_SIZES)
        for group in sorted(groups, key=lambda group: _digest_text(f"bfcl-multi-turn/{group[0]}")):
            split: Split = next((name for name, left in room.items() if left > 0), "train")
            families[split] += group
            if split in room:
                room[split] -= len(group)
    hashes = [_digest([entries[category][index] for category in CATEGORIES]) for index in range(FAMILIES)]
    return Manifest({name: sorted(members) for name, members in families.items()}, hashes)


def _groups(entries: Mapping[str, list[dict[str, Any]]]) -> list[list[int]]:
    """Families joined wherever two entries have the same initial state or the same request, lowest index first."""
    owner = list(range(FAMILIES))

    def root(family: int) -> int:
        while owner[family] != family:
            family = owner[family]
        return family

    seen: dict[str, int] = {}
    for rows in entries.values():
        for family, row in enumerate(rows):
            for mark in _marks(row):
                first, second = sorted((root(family), root(seen.setdefault(mark, family))))
                owner[second] = first
    groups: dict[int, list[int]] = {}
    for family in range(FAMILIES):
        groups.setdefault(root(family), []).append(family)
    return list(groups.values())


def _marks(row: Mapping[str, Any]) -> Iterable[str]:
    yield _digest(["state", row["initial_config"]])
    for turn in row["question"]:
        for message in turn:
            yield _digest(["request", message["content"].strip().lower()])


def _digest(value: Any) -> str:
    return _digest_text(json.dumps(value, sort_keys=True, ensure_ascii=False))


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

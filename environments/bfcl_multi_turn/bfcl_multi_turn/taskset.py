"""The tasks: 800 conversations in four variants, split by family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import verifiers.v1 as vf
from bfcl_rollout.options import known_names
from pydantic import field_validator

from bfcl_multi_turn import source
from bfcl_multi_turn.splits import CATEGORIES, SplitName, manifest
from bfcl_multi_turn.tasks import MultiTurnData, MultiTurnTask, MultiTurnTaskConfig


@cache
def unsolvable() -> dict[str, str]:
    """Entries whose accepted calls cannot be played or found, and why. See `unsolvable.py` for the rules."""
    entries: dict[str, str] = json.loads((files(__package__) / "unsolvable.json").read_text())["entries"]
    return entries


class MultiTurnTasksetConfig(vf.TasksetConfig):
    categories: list[str] = list(CATEGORIES)
    """Variants to play: base, miss_func, miss_param, long_context (200 conversations each)."""
    split: SplitName = "all"
    """Families to play: `all`, or `train` (120), `dev` (40) or `test` (40). The variants of a conversation are always
    on the same side."""
    exclude_unsolvable: bool = False
    """Leave out the entries whose accepted calls cannot be found with what the conversation offers."""
    task: MultiTurnTaskConfig = MultiTurnTaskConfig()

    @field_validator("categories")
    @classmethod
    def _known_categories(cls, value: list[str]) -> list[str]:
        return known_names("category", value, CATEGORIES)


class Row(NamedTuple):
    """One entry of the benchmark, before it becomes a task."""

    variant: str
    family: int
    split: str
    entry: dict[str, Any]
    unsolvable: str | None


def rows(categories: Iterable[str], split: SplitName, exclude_unsolvable: bool) -> Iterator[Row]:
    """The selected entries, variant by variant, in BFCL's order."""
    for variant in categories:
        for family, entry in enumerate(source.raw_entries(variant)):
            row = Row(variant, family, manifest().split_of(family), entry, unsolvable().get(entry["id"]))
            if split in ("all", row.split) and not (exclude_unsolvable and row.unsolvable):
                yield row


class MultiTurnTaskset(vf.Taskset[MultiTurnTask, MultiTurnTasksetConfig]):  # type: ignore[type-var]  # invariant state
    """Conversations by variant and split."""

    def load(self) -> Iterable[MultiTurnTask]:
        """Yield the selected tasks."""
        config = self.config
        for row in rows(config.categories, config.split, config.exclude_unsolvable):
            entry_id = row.entry["id"]
            yield MultiTurnTask(
                MultiTurnData(
                    id=entry_id,
                    name=entry_id,
                    entry_id=entry_id,
                    category=f"multi_turn_{row.variant}",
                    variant=row.variant,
                    family=row.family,
                    split=row.split,
                    no_call_turns=tuple(source.no_call_turns(row.variant)[row.family]),
                    unsolvable=row.unsolvable,
                    prompt=row.entry["question"][0][0]["content"],
                ),
                config.task,
            )

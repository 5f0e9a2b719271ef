"""The tasks: 800 conversations in four variants, split by family."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

import verifiers.v1 as vf
from pydantic import field_validator

from bfcl_multi_turn import source
from bfcl_multi_turn.splits import CATEGORIES, SplitName, manifest
from bfcl_multi_turn.tasks import MultiTurnData, MultiTurnTask, MultiTurnTaskConfig


@cache
def unsolvable() -> dict[str, str]:
    """Entries whose accepted calls cannot be played or found, and why. Made by `bfcl-rollout unsolvable`."""
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
        return _known("category", value, CATEGORIES)


def _known(what: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    if not names:
        raise ValueError(f"no {what} selected; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return [name for name in known if name in names]


class MultiTurnTaskset(vf.Taskset[MultiTurnTask, MultiTurnTasksetConfig]):
    """Conversations by variant and split."""

    def load(self) -> Iterable[MultiTurnTask]:
        """Yield the selected tasks, variant by variant, in BFCL's order."""
        for variant in self.config.categories:
            for family, entry in enumerate(source.raw_entries(variant)):
                split = manifest().split_of(family)
                reason = unsolvable().get(entry["id"])
                if self.config.split not in ("all", split) or (self.config.exclude_unsolvable and reason):
                    continue
                yield MultiTurnTask(
                    MultiTurnData(
                        id=entry["id"],
                        name=entry["id"],
                        entry_id=entry["id"],
                        category=f"multi_turn_{variant}",
                        variant=variant,
                        family=family,
                        split=split,
                        no_call_turns=tuple(source.no_call_turns(variant)[family]),
                        unsolvable=reason,
                        prompt=entry["question"][0][0]["content"],
                    ),
                    self.config.task,
                )

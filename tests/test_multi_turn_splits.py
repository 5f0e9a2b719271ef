"""Splits, the list of unsolvable entries, and the tasks made from them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bfcl_multi_turn import lists, source, splits
from bfcl_multi_turn.taskset import MultiTurnTaskset, MultiTurnTasksetConfig, unsolvable
from pydantic import ValidationError


def tasks(**config: Any) -> list[Any]:
    fields = {"id": "bfcl-multi-turn"} | config
    return list(MultiTurnTaskset(MultiTurnTasksetConfig.model_validate(fields)).load())


@pytest.mark.slow
def test_the_shipped_lists_are_what_the_rules_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert lists.main([]) == 0
    assert "DIFFERENT" not in capsys.readouterr().out


def test_the_split_is_what_the_rule_gives() -> None:
    assert splits.derive(source.all_entries()) == splits.manifest()
    assert {name: len(members) for name, members in splits.manifest().families.items()} == {
        "train": 120,
        "dev": 40,
        "test": 40,
    }


def test_no_family_world_or_request_crosses_the_split() -> None:
    side: dict[str, str] = {}
    for entries in source.all_entries().values():
        for family, entry in enumerate(entries):
            split = splits.manifest().split_of(family)
            marks = [f"family {family}", json.dumps(entry["initial_config"], sort_keys=True)]
            marks += [message["content"].strip().lower() for turn in entry["question"] for message in turn]
            for mark in marks:
                assert side.setdefault(mark, split) == split, (family, mark[:80])


def test_a_changed_entry_changes_the_hash() -> None:
    entries = source.all_entries()
    entries["base"][17]["question"][0][0]["content"] += "!"
    changed = splits.derive(entries)
    assert changed.sha256 != splits.manifest().sha256
    different = [one != two for one, two in zip(changed.family_sha256, splits.manifest().family_sha256, strict=True)]
    assert [family for family, is_different in enumerate(different) if is_different] == [17]


def test_tasks_are_selected_by_category_and_split() -> None:
    assert len(tasks()) == 800
    assert len({task.key for task in tasks()}) == 800
    parts = {name: {task.key for task in tasks(split=name)} for name in ("train", "dev", "test")}
    assert {name: len(keys) for name, keys in parts.items()} == {"train": 480, "dev": 160, "test": 160}
    assert not parts["train"] & parts["dev"]
    assert not parts["test"] & (parts["train"] | parts["dev"])
    assert {task.data.variant for task in tasks(categories=["long_context", "base"])} == {"base", "long_context"}
    assert len(tasks(exclude_unsolvable=True)) == 800 - len(unsolvable())
    with pytest.raises(ValidationError, match="unknown category"):
        tasks(categories=["bse"])


def test_a_task_knows_where_no_call_is_right() -> None:
    (task,) = [task for task in tasks(categories=["miss_func"]) if task.data.family == 3]
    assert task.data.no_call_turns == (True, False, False)
    assert sum(map(sum, source.no_call_turns("base"))) == 3
    assert sum(map(sum, source.no_call_turns("miss_param"))) == 203

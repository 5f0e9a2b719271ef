"""Where gold calls and parameter names come from: the official package's data files, read and never executed."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bfcl_rollout import official

from bfcl_multi_turn.credit.gold import ParameterNames


class TaskGold(NamedTuple):
    """What credit needs to know about a task."""

    turns: list[list[str]]
    """Gold call strings by user turn."""
    parameters: ParameterNames


GoldSource = Callable[[str], TaskGold]
"""From a BFCL test id to its gold calls."""


def category_of(entry_id: str) -> str:
    """`multi_turn_base_12` is of category `multi_turn_base`."""
    return entry_id.rpartition("_")[0]


def official_gold(entry_id: str) -> TaskGold:
    """Gold calls of an official multi-turn entry.

    Raises:
        LookupError: there is no such entry.
    """
    return TaskGold(_answers(category_of(entry_id))[entry_id], parameter_names(official_entry(entry_id)["function"]))


def official_entry(entry_id: str) -> dict[str, Any]:
    """The official entry, restored functions among its functions. Shared: do not change it.

    Raises:
        LookupError: there is no such entry.
    """
    return _entries(category_of(entry_id))[entry_id]


def parameter_names(functions: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Parameter names, in order, from BFCL function documents."""
    return {document["name"]: list(document["parameters"].get("properties", {})) for document in functions}


@functools.cache
def _entries(category: str) -> dict[str, dict[str, Any]]:
    if not category.startswith("multi_turn_"):
        raise LookupError(f"{category!r} is not a multi-turn category")
    entries = {entry["id"]: entry for entry in official.load_entries(category)}
    for entry in entries.values():
        entry["offered"] = list(entry["function"])
        for restored in entry.get("missed_function", {}).values():
            entry["function"] = [*entry["function"], *restored]
    return entries


@functools.cache
def _answers(category: str) -> dict[str, list[list[str]]]:
    path = official.package_dir() / "data" / "possible_answer" / f"BFCL_v4_{category}.json"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row["ground_truth"] for row in rows}

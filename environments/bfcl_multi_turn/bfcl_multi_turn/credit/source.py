"""Where gold calls and parameter names come from: the official package's data files, read and never executed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from bfcl_rollout import official

from bfcl_multi_turn import source
from bfcl_multi_turn.credit.gold import ParameterNames
from bfcl_multi_turn.splits import CATEGORIES

_PREFIX = "multi_turn_"


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
    return TaskGold(_answers(category_of(entry_id))[entry_id], _parameters())


def official_entry(entry_id: str) -> dict[str, Any]:
    """The official entry with its function documents. Shared: do not change it.

    Raises:
        LookupError: there is no such entry.
    """
    return _entries(category_of(entry_id))[entry_id]


def parameter_names(functions: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Parameter names, in order, from BFCL function documents."""
    return {document["name"]: list(document["parameters"].get("properties", {})) for document in functions}


@functools.cache
def _entries(category: str) -> dict[str, dict[str, Any]]:
    _short(category)
    return {entry["id"]: entry for entry in official.load_entries(category)}


@functools.cache
def _answers(category: str) -> dict[str, list[list[str]]]:
    short = _short(category)
    ids = [entry["id"] for entry in source.raw_entries(short)]
    return dict(zip(ids, source.gold_calls(short), strict=True))


@functools.cache
def _parameters() -> ParameterNames:
    return source.parameter_names()


def _short(category: str) -> str:
    short = category.removeprefix(_PREFIX)
    if short not in CATEGORIES or short == category:
        raise LookupError(f"{category!r} is not a multi-turn category")
    return short

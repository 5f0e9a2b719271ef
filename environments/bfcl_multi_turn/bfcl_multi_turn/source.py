"""The official data files of the multi-turn categories, read as they are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from bfcl_rollout import jsonl, official

from bfcl_multi_turn.splits import CATEGORIES


def raw_entries(category: str) -> list[dict[str, Any]]:
    """Entries of a category in the file's order, without tools."""
    return _rows(f"data/BFCL_v4_multi_turn_{category}.json")


def gold_calls(category: str) -> list[list[list[str]]]:
    """The accepted calls, `[entry][turn][call]`, in the order of the entries.

    The answer key. It is read where nothing that a model writes is executed.
    """
    return [row["ground_truth"] for row in _rows(f"data/possible_answer/BFCL_v4_multi_turn_{category}.json")]


@functools.cache
def no_call_turns(category: str) -> Sequence[Sequence[bool]]:
    """Per entry and user turn, whether no call is right in it."""
    return [[not calls for calls in turns] for turns in gold_calls(category)]


def all_entries() -> dict[str, list[dict[str, Any]]]:
    """The raw entries of all four categories."""
    return {category: raw_entries(category) for category in CATEGORIES}


def function_docs(class_name: str) -> list[dict[str, Any]]:
    """The function documents of a tool class."""
    return _rows(f"data/multi_turn_func_doc/{_DOC_FILES[class_name]}.json")


@functools.cache
def parameter_names() -> dict[str, list[str]]:
    """Parameter names in order, by function name, of all tool classes."""
    docs = [doc for class_name in _DOC_FILES for doc in function_docs(class_name)]
    return {doc["name"]: list(doc["parameters"]["properties"]) for doc in docs}


_DOC_FILES = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "TwitterAPI": "posting_api",
    "VehicleControlAPI": "vehicle_control",
}
"""`MULTI_TURN_FUNC_DOC_FILE_MAPPING` of the official package, for the classes of these categories."""


CLASSES = tuple(_DOC_FILES)
"""The tool classes of these categories."""


def _rows(path: str) -> list[dict[str, Any]]:
    return list(jsonl.read(official.package_dir() / path))

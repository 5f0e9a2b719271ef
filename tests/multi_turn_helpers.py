"""Builders for the multi-turn tests: grade specs, gold results, and canned conversations."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bfcl_multi_turn import scripted, source
from bfcl_multi_turn.scripted import Script
from bfcl_rollout import official, pool
from bfcl_rollout.records import GradeSpec, RolloutSpec, Verdict


def official_entry(entry_id: str) -> dict[str, Any]:
    category = entry_id.rsplit("_", 1)[0]
    return next(entry for entry in official.load_entries(category) if entry["id"] == entry_id)


def golds(entry_id: str) -> list[list[str]]:
    variant, index = entry_id.removeprefix("multi_turn_").rsplit("_", 1)
    return source.gold_calls(variant)[int(index)]


def script(entry_id: str) -> Script:
    variant, index = entry_id.removeprefix("multi_turn_").rsplit("_", 1)
    return [each for each in scripted.scripts() if each.variant == variant][int(index)]


Result = list[list[Any]]


def gold_result(entry_id: str) -> Result:
    """The accepted calls as native results: one call a step, and a text at the end of each turn."""
    return [[*([{call.name: call.arguments}] for call in calls), "That is done."] for calls in script(entry_id).calls]


def grade_spec(entry_id: str, result: Result | str, **changes: Any) -> GradeSpec:
    fields = {
        "entry_id": entry_id,
        "category": entry_id.rsplit("_", 1)[0],
        "mode": "fc",
        "model": "m",
        "result": result,
    }
    return GradeSpec.model_validate(fields | changes)


def grade(workers: pool.WorkerPool, entry_id: str, result: Result | str, **changes: Any) -> Verdict:
    return asyncio.run(workers.grade(grade_spec(entry_id, result, **changes)))


def play_spec(entry_id: str, url: str, **changes: Any) -> RolloutSpec:
    fields = {
        "entry_id": entry_id,
        "category": entry_id.rsplit("_", 1)[0],
        "model": "canned",
        "endpoint": url,
        "secret": "s",
    }
    return RolloutSpec.model_validate(fields | changes)


def interactive(entry_id: str, **options: Any) -> dict[str, Any]:
    """Fields of a spec for the interactive protocol."""
    no_call_turns = [not calls for calls in golds(entry_id)]
    return {"protocol": "interactive", "options": {"no_call_turns": no_call_turns, **options}}


def arguments(text: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text)
    return loaded

"""Builders for the credit tests: published numbers, records, and real verifiers episodes."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bfcl_multi_turn.interactive.records import Interaction, ParsedCall

ORACLES = Path(__file__).parents[2] / "shared/data/credit/runtime_interaction_credit_oracles.json"
"""Published and derived numbers. They quote benchmark data, so they lie beside the repository, not in it."""


def oracles() -> dict[str, Any]:
    """The oracle file, or a skip that says what was not checked."""
    if not ORACLES.is_file():
        pytest.skip(f"published numbers not checked: no {ORACLES.name} beside the repository")
    return _load()


@functools.cache
def _load() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(ORACLES.read_text())
    return loaded


def vectors(kind: str) -> list[dict[str, Any]]:
    """All oracle vectors of one kind; fails if there is none."""
    found = [vector for vector in oracles()["vectors"] if vector["kind"] == kind]
    assert found, f"no oracle of kind {kind}"
    return found


def think(action: str, thought: str = "plan") -> str:
    return f"<think>{thought}</think>\n{action}"


def tool_text(*calls: tuple[str, dict[str, Any]]) -> str:
    """A well-formed action: one object for one call, an array for several."""
    objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return think(f"<tool_call>{json.dumps(objects[0] if len(objects) == 1 else objects)}</tool_call>")


def answer_text(text: str = "done") -> str:
    return think(f"<answer>{text}</answer>")


def near(actual: Sequence[float], expected: Sequence[float], tolerance: float) -> bool:
    return len(actual) == len(expected) and all(abs(a - e) <= tolerance for a, e in zip(actual, expected, strict=True))


def call(name: str, *, idx: int = 0, valid: bool = True, **arguments: Any) -> ParsedCall:
    return ParsedCall(call_idx=idx, name=name, arguments=arguments, valid=valid)


def tool_step(user_turn: int, index: int, *calls: ParsedCall, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn,
        index=index,
        response_type="tool_call",
        attempted_type="tool_call",
        calls=list(calls),
        call_parse_reliable=True,
        **{"code": -1, **more},
    )


def error_step(user_turn: int, index: int, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn,
        index=index,
        response_type="parse_error",
        parser_error="missing_think",
        **{"code": -3, **more},
    )


def answer_step(user_turn: int, index: int, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn, index=index, response_type="answer", attempted_type="answer", **{"code": 1, **more}
    )

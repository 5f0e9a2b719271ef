"""Builders for tests of the parity comparison."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from parity.exchange import Body, Exchange

RECORDING = Path(__file__).parent.parent / "parity" / "recordings" / "cases-fc.jsonl"


def user(text: str) -> dict[str, Any]:
    """A user message."""
    return {"role": "user", "content": text}


def tool(text: str) -> dict[str, Any]:
    """A tool result."""
    return {"role": "tool", "content": text, "tool_call_id": "1"}


def reply(content: str | None, call: str | None = None) -> dict[str, Any]:
    """A chat completion with one choice."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if call is not None:
        message["tool_calls"] = [{"id": "1", "type": "function", "function": {"name": call, "arguments": "{}"}}]
    return {"choices": [{"index": 0, "message": message}]}


def echoed(completion: dict[str, Any]) -> dict[str, Any]:
    """The reply's message as a client sends it back: without nulls, fields in another order."""
    message = completion["choices"][0]["message"]
    calls = [{**call, "function": dict(sorted(call["function"].items()))} for call in message.get("tool_calls", [])]
    found = {"tool_calls": calls, "content": message["content"], "role": message["role"]}
    return {name: value for name, value in found.items() if value}


def body(*messages: dict[str, Any], **fields: Any) -> Body:
    """A request."""
    return {"model": "m", "temperature": 0.001, "messages": list(messages), **fields}


def exchanges(*pairs: tuple[Body, dict[str, Any]], session: str | None = None) -> list[Exchange]:
    """Requests and their replies, in this order."""
    return [Exchange(number, session, one, 200, answer) for number, (one, answer) in enumerate(pairs)]


def numbered(found: Iterable[Exchange]) -> list[Exchange]:
    """The same exchanges as if they had arrived in this order."""
    return [Exchange(number, one.session, one.body, one.status, one.reply) for number, one in enumerate(found)]

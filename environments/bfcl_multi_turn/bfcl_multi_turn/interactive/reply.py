"""The action text of one chat completion message.

The protocol reads actions from text. Servers with a reasoning or tool-call parser take the blocks out of the text and
put them into fields of their own; here they are put back, so that the same model is judged the same way behind either
kind of server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def action_text(message: Any) -> str:
    """The text of an assistant message, with reasoning and tool calls written as the protocol's blocks.

    Args:
        message: an object with `content` and, as servers send them, `reasoning_content` or `reasoning`, and
            `tool_calls`.
    """
    parts = []
    content = message.content or ""
    reasoning = getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None)
    if isinstance(reasoning, str) and reasoning.strip() and "<think>" not in content:
        parts.append(f"<think>{reasoning}</think>")
    if content:
        parts.append(content)
    calls = getattr(message, "tool_calls", None)
    if calls and "<tool_call>" not in content:
        parts.append(f"<tool_call>{_written(calls)}</tool_call>")
    return "\n".join(parts)


def _written(calls: Iterable[Any]) -> str:
    # Arguments stay as the server sent them: if they are no JSON, neither is the action.
    objects = [
        f'{{"name": {json.dumps(call.function.name)}, "arguments": {call.function.arguments or "{}"}}}'
        for call in calls
    ]
    return objects[0] if len(objects) == 1 else f"[{', '.join(objects)}]"

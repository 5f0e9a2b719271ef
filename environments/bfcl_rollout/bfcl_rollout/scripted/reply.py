"""What a policy says, and how it looks as an OpenAI chat completion.

A `Reply` holds the raw text of tool-call arguments, so a policy can say things that no well-formed model
would. The wire forms are the `chat.completion` object and, streamed, a list of `chat.completion.chunk`
objects that add up to the same message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Body = Mapping[str, Any]
"""The JSON body of a chat completions request."""

_CHARS_PER_TOKEN = 4
_STREAM_PIECE = 48
"""Characters per streamed piece of text or arguments."""


@dataclass(frozen=True)
class Call:
    """One tool call. `arguments` is sent as it is, valid JSON or not."""

    name: str
    arguments: str

    @classmethod
    def of(cls, name: str, /, **arguments: object) -> Call:
        """A well-formed call."""
        return cls(name, json.dumps(arguments, ensure_ascii=False))


@dataclass(frozen=True)
class Reply:
    """One reply of the model.

    `calls=None` leaves the field `tool_calls` out, `calls=()` sends an empty list. `extra` adds fields to the
    message, `alternatives` adds further choices after the first, `logprobs` is the choice's field of that name (sent
    unstreamed only).
    """

    content: str | None = None
    calls: tuple[Call, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    alternatives: tuple[Reply, ...] = ()
    cut: bool = False
    """Whether the reply claims to have hit the token limit."""
    logprobs: Mapping[str, Any] | None = None

    @property
    def choices(self) -> tuple[Reply, ...]:
        return (self, *self.alternatives)

    @property
    def finish_reason(self) -> str:
        if self.cut:
            return "length"
        return "tool_calls" if self.calls else "stop"


def fingerprint(body: Body) -> str:
    """Hex digest of what the request says, independent of how its JSON was written."""
    said = [
        [message.get("role"), message.get("content"), message.get("tool_calls"), message.get("tool_call_id")]
        for message in body["messages"]
    ]
    text = json.dumps([body.get("model"), said], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def completion(reply: Reply, body: Body) -> dict[str, Any]:
    """`reply` as a `chat.completion` object, with ids and token counts made from the request."""
    digest = fingerprint(body)
    return {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {
                "index": index,
                "message": _message(choice, f"{digest[:16]}_{index}"),
                "finish_reason": choice.finish_reason,
                "logprobs": choice.logprobs,
            }
            for index, choice in enumerate(reply.choices)
        ],
        "usage": usage(reply, body),
    }


def chunks(reply: Reply, body: Body, *, include_usage: bool) -> Iterator[dict[str, Any]]:
    """`reply` as `chat.completion.chunk` objects; with `include_usage` the last one carries the usage."""
    digest = fingerprint(body)
    frame: dict[str, Any] = {
        "id": f"chatcmpl-{digest[:24]}",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": body["model"],
    }
    for index, choice in enumerate(reply.choices):
        for delta in _deltas(choice, f"{digest[:16]}_{index}"):
            yield frame | {"choices": [{"index": index, "delta": delta, "finish_reason": None}]}
        yield frame | {"choices": [{"index": index, "delta": {}, "finish_reason": choice.finish_reason}]}
    if include_usage:
        yield frame | {"choices": [], "usage": usage(reply, body)}


def usage(reply: Reply, body: Body) -> dict[str, int]:
    """Token counts, four characters a token: two clients that say the same get the same counts."""
    asked = sum(_message_length(message) for message in body["messages"])
    if tools := body.get("tools"):
        asked += len(json.dumps(tools))
    said = sum(
        len(choice.content or "") + sum(len(call.name) + len(call.arguments) for call in choice.calls or ())
        for choice in reply.choices
    )
    prompt, answer = 1 + asked // _CHARS_PER_TOKEN, 1 + said // _CHARS_PER_TOKEN
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _message_length(message: Mapping[str, Any]) -> int:
    content = message.get("content")
    length = len(content if isinstance(content, str) else json.dumps(content or ""))
    if calls := message.get("tool_calls"):
        length += len(json.dumps(calls))
    return length


def _message(reply: Reply, prefix: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.calls is not None:
        message["tool_calls"] = [_tool_call(call, prefix, index) for index, call in enumerate(reply.calls)]
    return message | dict(reply.extra)


def _tool_call(call: Call, prefix: str, index: int) -> dict[str, Any]:
    return {
        "id": f"call_{prefix}_{index}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _deltas(reply: Reply, prefix: str) -> Iterator[dict[str, Any]]:
    # The first delta fixes what is null or empty; pieces of text and arguments follow.
    first: dict[str, Any] = {"role": "assistant", "content": None if reply.content is None else ""}
    if reply.calls == ():
        first["tool_calls"] = []
    yield first | dict(reply.extra)
    for piece in _pieces(reply.content or ""):
        yield {"content": piece}
    for index, call in enumerate(reply.calls or ()):
        opening = _tool_call(Call(call.name, ""), prefix, index)
        yield {"tool_calls": [{"index": index, **opening}]}
        for piece in _pieces(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _STREAM_PIECE):
        yield text[start : start + _STREAM_PIECE]

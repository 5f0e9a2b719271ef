"""Requests made by hand, in the two forms in which BFCL sends them, and a loop that makes results up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from bfcl_rollout.scripted import Body, Reply
from bfcl_rollout.scripted.reply import completion

Backend = Literal["kv", "vector", "rec_sum"]

TOOLS: dict[Backend, tuple[str, ...]] = {
    "kv": (
        "archival_memory_add",
        "archival_memory_key_search",
        "archival_memory_list_keys",
        "archival_memory_remove",
        "archival_memory_retrieve",
        "core_memory_add",
        "core_memory_list_keys",
    ),
    "vector": ("archival_memory_add", "archival_memory_retrieve", "archival_memory_update", "core_memory_add"),
    "rec_sum": ("memory_append", "memory_clear", "memory_replace", "memory_retrieve", "memory_update"),
}
ANSWER_FORMAT = (
    "\n\nFor your final answer to the user, you must respond in this format: {'answer': A short and precise answer "
    "to the question, 'context': ...}. If you do not know the answer, respond with {'answer': 'I do not know'}."
)
MESSAGES = (
    "My name is Alice and I live in Dresden. The blue bicycle cost 340 euros.",
    "Last Tuesday I went to the dentist. She found two cavities in my upper teeth!",
    "The meeting with Bob moved to Thursday. Bring the green folder and seven copies.",
    "We adopted a tortoise called Sheldon. He eats dandelions and sleeps in the pantry.",
    "My allergy tablets ran out; the pharmacist suggested loratadine instead.",
)


def tools(backend: Backend) -> list[dict[str, Any]]:
    """Tool declarations with nothing but their names."""
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS[backend]]


def system_prompt(backend: Backend, memory: str = "", *, question: bool = False, prompting: bool = False) -> str:
    """A system prompt with the parts that the real one has."""
    described = ""
    if prompting:
        functions = [
            {"name": name, "parameters": {"properties": {"name": {"type": "string"}}}} for name in TOOLS[backend]
        ]
        described = f"Here is a list of functions in json format that you can invoke.\n{json.dumps(functions)}\n\n"
    store = "memory system" if backend == "rec_sum" else "Core Memory"
    return (
        f"{described}You are an assistant.\n\nHere is the content of your {store} from previous interactions:\n"
        f"{memory or '{}'}\n{ANSWER_FORMAT if question else ''}"
    )


def request(
    backend: Backend,
    *texts: str,
    memory: str = "",
    question: bool = False,
    prompting: bool = False,
    model: str = "scripted/recall",
) -> dict[str, Any]:
    """A request whose user messages are `texts`, with a short reply after each but the last."""
    messages = [
        {
            "role": "system",
            "content": system_prompt(backend, memory, question=question, prompting=prompting),
        }
    ]
    for index, text in enumerate(texts):
        if index:
            messages.append({"role": "assistant", "content": "Noted."})
        messages.append({"role": "user", "content": text})
    body: dict[str, Any] = {"model": model, "messages": messages, "temperature": 0.001, "store": False}
    return body if prompting else body | {"tools": tools(backend)}


def message_of(reply: Reply, body: Body) -> dict[str, Any]:
    """The assistant message that a client would put into its history."""
    message: dict[str, Any] = completion(reply, body)["choices"][0]["message"]
    return message


def answered(body: Body, reply: Reply, outputs: Sequence[str]) -> dict[str, Any]:
    """The request that follows `reply`, with one output a call."""
    message = message_of(reply, body)
    calls = message.get("tool_calls") or []
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": output}
        for call, output in zip(calls, outputs, strict=True)
    ]
    return {**body, "messages": [*body["messages"], message, *results]}


def play_turn(
    policy: Callable[[Body], Reply], body: dict[str, Any], output: str = '{"status": "ok"}', most: int = 60
) -> tuple[list[Reply], dict[str, Any]]:
    """Let a policy play a turn with native calls until its calls do not decode or end, as BFCL's loop would.

    Returns:
        The replies, and the last request.
    """
    replies = []
    for _ in range(most):
        reply = policy(body)
        replies.append(reply)
        if not reply.calls or not all(is_object(call.arguments) for call in reply.calls):
            break
        body = answered(body, reply, [output] * len(reply.calls))
    return replies, body


def is_object(text: str) -> bool:
    """Whether a text is a JSON object, in which case BFCL executes the call."""
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False

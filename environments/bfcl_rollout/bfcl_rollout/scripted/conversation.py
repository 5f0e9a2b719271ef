"""A chat completions request read as BFCL's loop wrote it: user turns, and the steps of tool calls inside
them.

BFCL has two forms. With native function calling, calls and results are fields of the messages. In prompting
mode the tools are described in the system prompt, calls are written as text like `[f(a='x')]`, and their
results come back as a user message that holds the `repr` of a list. Both become the same `Conversation` here,
and `say` writes calls in the form that the request uses.
"""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from bfcl_rollout.scripted.reply import Body, Call, Reply

_RESULTS = "[{'role': 'tool'"
_NAME = re.compile(r"""["']name["']:\s*["'](\w+)["']""")


@dataclass(frozen=True)
class Result:
    """One executed call. `arguments` is empty where they were not a JSON object."""

    name: str
    arguments: dict[str, Any]
    output: str

    @property
    def data(self) -> dict[str, Any]:
        """The output as a JSON object; empty if it is something else."""
        try:
            parsed = json.loads(self.output)
        except ValueError:
            return {}
        return parsed if isinstance(parsed, dict) else {}

    @property
    def failed(self) -> bool:
        return "error" in self.data or self.output.startswith("Error during execution")


@dataclass
class Turn:
    """One user message and the steps taken since: per step, the results of its calls."""

    text: str
    steps: list[list[Result]] = field(default_factory=list)

    @property
    def results(self) -> list[Result]:
        return [result for step in self.steps for result in step]


@dataclass(frozen=True)
class Conversation:
    """A request, read."""

    system: str
    turns: list[Turn]
    tools: frozenset[str]
    mode: Literal["fc", "prompting"]

    @property
    def turn(self) -> Turn:
        """The current user turn."""
        return self.turns[-1]

    @property
    def results(self) -> list[Result]:
        """Every result so far, in order."""
        return [result for turn in self.turns for result in turn.results]


def read(body: Body) -> Conversation:
    """Read a request. A request without a user message has one empty turn."""
    system: list[str] = []
    turns: list[Turn] = []
    pending: dict[str, Call] = {}
    for message in body["messages"]:
        role, content = message.get("role"), _text(message.get("content"))
        if role == "system":
            system.append(content)
        elif role == "user" and content.startswith(_RESULTS) and turns:
            turns[-1].steps.append(_written_results(content))
        elif role == "user":
            turns.append(Turn(content))
        elif role == "assistant":
            pending = {call["id"]: _call(call) for call in message.get("tool_calls") or ()}
            if pending and turns:
                turns[-1].steps.append([])
        elif role == "tool" and (call := pending.get(message.get("tool_call_id", ""))) and turns:
            turns[-1].steps[-1].append(Result(call.name, _object(call.arguments), content))
    prompt = "\n".join(system)
    offered = [tool.get("function", {}).get("name", "") for tool in body.get("tools") or ()]
    described = [] if offered else _NAME.findall(prompt)
    return Conversation(
        prompt,
        turns or [Turn("")],
        frozenset(offered or described),
        "prompting" if described else "fc",
    )


def say(conversation: Conversation, calls: list[Call], text: str | None = None) -> Reply:
    """Calls in the form the request uses; `text` accompanies them where the form has room for it."""
    if conversation.mode == "fc":
        return Reply(text, tuple(calls))
    return Reply("[" + ", ".join(map(written, calls)) + "]")


def written(call: Call) -> str:
    """A call as BFCL's prompting mode wants it: `name(key='value')`."""
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in _object(call.arguments).items())})"


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return ""


def _call(call: dict[str, Any]) -> Call:
    return Call(call["function"]["name"], call["function"]["arguments"])


def _object(arguments: str) -> dict[str, Any]:
    try:
        parsed = json.loads(arguments)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _written_results(content: str) -> list[Result]:
    try:
        entries = ast.literal_eval(content)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [_written_result(str(entry["name"]), str(entry["content"])) for entry in entries]


def _written_result(call: str, output: str) -> Result:
    try:
        node = ast.parse(call, mode="eval").body
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return Result(call, {}, output)
    if not isinstance(node, ast.Call):
        return Result(call, {}, output)
    arguments = {
        keyword.arg: keyword.value.value
        for keyword in node.keywords
        if keyword.arg is not None and isinstance(keyword.value, ast.Constant)
    }
    return Result(ast.unparse(node.func), arguments, output)

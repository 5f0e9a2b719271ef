"""What the misbehaving and the hostile policy know about a request, and how they draw from its hash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bfcl_rollout.scripted.conversation import Conversation, read, say
from bfcl_rollout.scripted.recall import is_question
from bfcl_rollout.scripted.reply import Body, Call, Reply
from bfcl_rollout.scripted.retrieval import keywords

Backend = Literal["kv", "vector", "rec_sum"]

_BY_TOOL: Mapping[str, Backend] = {
    "archival_memory_key_search": "kv",
    "archival_memory_update": "vector",
    "memory_append": "rec_sum",
}


@dataclass(frozen=True)
class Scene:
    """A request, and numbers drawn from it. The same request always gives the same numbers."""

    body: Body
    conversation: Conversation
    backend: Backend | None
    """None if the tools are not those of a memory backend."""
    question: bool
    _seed: str
    _turn_seed: str

    @classmethod
    def of(cls, body: Body) -> Scene:
        conversation = read(body)
        tools = conversation.tools
        backend = next((name for tool, name in _BY_TOOL.items() if tool in tools), None)
        # Tool results stay out of the hash: a last digit of a similarity score must not change what follows.
        said = [
            (message.get("role"), message.get("content"))
            for message in body["messages"]
            if message.get("role") in ("user", "assistant")
        ]
        turns = [turn.text for turn in conversation.turns]
        question = is_question(conversation)
        return cls(
            body,
            conversation,
            backend,
            question,
            _digest([backend, question, said if conversation.mode == "fc" else turns, _calls(conversation)]),
            _digest([backend, question, turns]),
        )

    @property
    def prompting(self) -> bool:
        return self.conversation.mode == "prompting"

    @property
    def text(self) -> str:
        """The current user message."""
        return self.conversation.turn.text

    def draw(self, purpose: str, below: int) -> int:
        """A number from 0 to `below` - 1 for this request."""
        return int(_digest([self._seed, purpose]), 16) % below

    def turn_draw(self, purpose: str, below: int) -> int:
        """A number from 0 to `below` - 1 that stays the same for the whole user turn."""
        return int(_digest([self._turn_seed, purpose]), 16) % below

    def pick(self, purpose: str, choices: Sequence[Any]) -> Any:
        """One of `choices`."""
        return choices[self.draw(purpose, len(choices))]

    def shuffle(self, weights: Mapping[str, float]) -> list[str]:
        """All names in a drawn order, in which greater weights tend to come first.

        Weighted sampling without replacement after Efraimidis and Spirakis (2006).
        """
        keys = {name: ((self.draw(name, 2**32) + 1) / 2**32) ** (1 / weight) for name, weight in weights.items()}
        return sorted(keys, key=lambda name: (-keys[name], name))

    def word(self) -> str:
        """A word of the current message that may serve as a key."""
        found = [word for word in keywords(self.text) if re.fullmatch(r"[a-z]+", word)]
        return str(self.pick("word", found or ["nothing"]))

    def say(self, calls: Sequence[Call], text: str | None = None) -> Reply:
        """Calls in the form that the request uses."""
        return say(self.conversation, list(calls), text)

    def write(self, text: str) -> Call:
        """A well-formed call that stores `text`, or some other well-formed call without a memory."""
        if self.backend == "kv":
            return Call.of("archival_memory_add", key=f"{self.word()}_{self.draw('key', 1000)}", value=text)
        if self.backend == "vector":
            return Call.of("archival_memory_add", text=text)
        if self.backend == "rec_sum":
            return Call.of("memory_append", text=text)
        return self.any_call()

    def read(self) -> Call:
        """A well-formed call that changes nothing, where there is a memory."""
        if self.backend == "kv":
            return Call.of("core_memory_list_keys")
        if self.backend == "vector":
            return Call.of("core_memory_retrieve_all")
        if self.backend == "rec_sum":
            return Call.of("memory_retrieve")
        return self.any_call()

    def any_call(self) -> Call:
        """A call of one of the tools on offer with arguments of the declared types."""
        functions = [tool["function"] for tool in self.body.get("tools") or () if "function" in tool]
        if not functions:
            names = sorted(self.conversation.tools)
            return Call(str(self.pick("tool", names)) if names else "do_nothing", "{}")
        function = self.pick("tool", functions)
        parameters = function.get("parameters") or {}
        properties = parameters.get("properties") or {}
        wanted = [name for name in parameters.get("required") or () if name in properties]
        arguments = {name: self._value(properties[name]) for name in wanted}
        return Call(function["name"], json.dumps(arguments))

    def _value(self, schema: Mapping[str, Any]) -> Any:
        if schema.get("enum"):
            return schema["enum"][0]
        plain = {"integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}
        return plain.get(str(schema.get("type")), self.word())


class Kind(NamedTuple):
    """One kind of reply: how it is made, or None where it does not fit, and how often it is drawn."""

    act: Callable[[Scene], Reply | None]
    weight: float = 1.0


def kinds(*acts: Callable[[Scene], Reply | None], weight: float = 1.0) -> dict[str, Kind]:
    """A table of kinds by the names of their functions."""
    return {act.__name__: Kind(act, weight) for act in acts}


def _calls(conversation: Conversation) -> list[list[str]]:
    return [[result.name for result in step] for turn in conversation.turns for step in turn.steps]


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()

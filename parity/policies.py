"""Policies made for parity alone.

`cases` goes through replies at which a port of BFCL's loop is likely to differ from it: what servers send besides the
fields that matter, texts that BFCL's call rewriting touches, calls that do not exist. All its words are its own, so a
recording of it holds nothing of the benchmark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bfcl_rollout.scripted import Policy
from bfcl_rollout.scripted.conversation import Conversation, read, written
from bfcl_rollout.scripted.reply import Body, Call, Reply

_CALLS_PER_TURN = 3
_WORDS = "yes no tax monday friday two three four five seven ten"


@dataclass(frozen=True)
class Scene:
    """Where a reply is wanted: which backend's tools there are, and the form of calls."""

    conversation: Conversation
    number: int
    """Replies given so far; makes keys distinct."""

    @property
    def native(self) -> bool:
        """Whether calls are fields of the message."""
        return self.conversation.mode == "fc"

    def tool(self) -> str:
        """The tool that stores a text."""
        known = self.conversation.tools
        return "memory_append" if "memory_append" in known else "core_memory_add"

    def arguments(self, text: str) -> dict[str, str]:
        """Arguments that make it store `text`."""
        if "core_memory_update" in self.conversation.tools or self.tool() == "memory_append":
            return {"text": text}
        return {"key": f"note_{self.number}", "value": text}

    def reading(self) -> str:
        """A tool without arguments."""
        return "memory_retrieve" if self.tool() == "memory_append" else "core_memory_retrieve_all"

    def store(self, text: str) -> Reply:
        """A reply that stores `text`."""
        return self.calls(Call.of(self.tool(), **self.arguments(text)))

    def calls(self, *calls: Call) -> Reply:
        """A reply of calls, in the form that the request uses."""
        if self.native:
            return Reply(None, calls)
        return Reply("[" + ", ".join(map(written, calls)) + "]")

    def raw(self, arguments: str, text: str) -> Reply:
        """A call whose arguments are written as they stand; `text` is the same call where it is written in text."""
        return Reply(None, (Call(self.tool(), arguments),)) if self.native else Reply(text)


Case = Callable[[Scene], Reply]


def _tool_name_and_bracket(scene: Scene) -> Reply:
    return scene.store(f"call {scene.tool()}(now), then {scene.tool()} (later) and other (words) in brackets")


def _unknown_tool(scene: Scene) -> Reply:
    return scene.calls(Call.of("send_email", to="someone"))


def _known_and_unknown(scene: Scene) -> Reply:
    return scene.calls(
        Call.of(scene.reading()), Call.of("nothing_like_it"), Call.of(scene.tool(), **scene.arguments("after"))
    )


def _refused_name(scene: Scene) -> Reply:
    return scene.calls(Call.of("exit"))


def _unknown_argument(scene: Scene) -> Reply:
    return scene.calls(Call.of(scene.tool(), nonsense=1, **scene.arguments("more than it takes")))


def _odd_spacing(scene: Scene) -> Reply:
    pairs = [*scene.arguments("odd   spacing").items()][::-1]
    text = " ,\n".join(f"{json.dumps(key)}  :\t{json.dumps(value)}" for key, value in pairs)
    named = " ,  ".join(f"{key} = {value!r}" for key, value in pairs)
    return scene.raw(f" {{ {text} }} ", f"[ {scene.tool()}( {named} ) ]")


def _key_twice(scene: Scene) -> Reply:
    once = json.dumps(scene.arguments("the last of two wins"))
    name = next(iter(scene.arguments("")))
    return scene.raw(f'{{"{name}": "first", {once[1:]}', f"[{scene.tool()}({name}='a', {name}='b')]")


def _not_an_object(scene: Scene) -> Reply:
    return scene.raw('["a", "b"]', f"[{scene.tool()}]")


def _broken_arguments(scene: Scene) -> Reply:
    return scene.raw('{"text": "never closed', f"[{scene.tool()}(text='never closed")


def _special_numbers(scene: Scene) -> Reply:
    names = list(scene.arguments(""))
    values = dict(zip(names, ("NaN", "-1.50e+3", "true"), strict=False))
    text = ", ".join(f'"{name}": {value}' for name, value in values.items())
    return scene.raw(f"{{{text}}}", f"[{scene.tool()}({', '.join(f'{name}=-1.5e3' for name in names)})]")


def _empty_call_list(scene: Scene) -> Reply:
    return Reply("A text that comes with an empty list of calls.", ())


def _text_and_calls(scene: Scene) -> Reply:
    given = scene.store("stored beside a text")
    return Reply("Let me note that.", given.calls) if scene.native else Reply(f"Let me note that. {given.content}")


def _reasoning(scene: Scene) -> Reply:
    given = scene.store("thought about first")
    extra = {"reasoning_content": "Hm: a note, perhaps?", "reasoning": {"steps": [1, 2.50, None]}, "vendor_field": True}
    return Reply(given.content, given.calls, extra)


def _usual_empty_fields(scene: Scene) -> Reply:
    given = scene.store("with all the fields that servers leave empty")
    extra: dict[str, Any] = {"refusal": None, "annotations": [], "audio": None, "function_call": None}
    return Reply(given.content, given.calls, extra)


def _empty_content_beside_calls(scene: Scene) -> Reply:
    given = scene.store("an empty text beside the call")
    return Reply("" if scene.native else given.content, given.calls)


def _non_ascii(scene: Scene) -> Reply:
    return scene.store("Grüße aus Köln, 東京 и Москва — 🧾 “quoted” \u2028 e\u0301 \U0001f469\u200d\U0001f52c")


def _quotes_and_escapes(scene: Scene) -> Reply:
    return scene.store('it\'s a "quote", a \\ backslash, a\ttab\nand a line; {braces} [brackets] %s \x07')


def _several_choices(scene: Scene) -> Reply:
    given = scene.store("the first choice counts")
    other = Reply("the second choice does not")
    return Reply(given.content, given.calls, alternatives=(other, scene.store("nor does the third")))


def _cut(scene: Scene) -> Reply:
    given = scene.store("cut at the token limit")
    return Reply(given.content, given.calls, cut=True)


CALLING: Sequence[Case] = (
    _tool_name_and_bracket,
    _unknown_tool,
    _known_and_unknown,
    _refused_name,
    _unknown_argument,
    _odd_spacing,
    _key_twice,
    _special_numbers,
    _text_and_calls,
    _reasoning,
    _usual_empty_fields,
    _empty_content_beside_calls,
    _non_ascii,
    _quotes_and_escapes,
    _several_choices,
    _cut,
)
"""Replies that call tools."""

ENDING: Sequence[Case] = (
    _empty_call_list,
    _not_an_object,
    _broken_arguments,
    lambda scene: Reply(""),
    lambda scene: Reply(None),
    lambda scene: Reply("An answer, and another choice.", alternatives=(Reply("The other choice."),)),
    lambda scene: Reply("An answer.", extra={"reasoning_content": "Whatever.", "vendor": {"id": 1}}),
    lambda scene: Reply(f"{' '.join(map(str, range(200)))} {_WORDS}"),
    lambda scene: Reply("Ich weiß es nicht: 東京 — “vielleicht”."),
)
"""Replies that end a user turn."""


def cases(body: Body) -> Reply:
    """The next case: three calling replies a turn, then one that ends it. Each rollout begins at another one."""
    conversation = read(body)
    number = sum(message.get("role") == "assistant" for message in body["messages"])
    scene = Scene(conversation, number)
    first = int.from_bytes(hashlib.sha256(conversation.turns[0].text.encode()).digest()[:4])
    step = len(conversation.turn.steps)
    among = CALLING if step < _CALLS_PER_TURN else ENDING
    case: Case = among[(first + number) % len(among)]
    return case(scene)


POLICIES: dict[str, Policy] = {"cases": cases}

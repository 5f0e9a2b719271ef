"""Embedded models that know the accepted calls of the multi-turn conversations, and some that misuse them.

A request is recognised by its user messages and the functions it offers; what has been done in the current user turn
is counted in its assistant messages. The policies speak all three forms: native calls, calls as text, and the blocks
of the interactive protocol. They read the answer key in the embedded model's own process.

`base` and `long_context` ask the same questions and offer the same functions, and three conversations of `miss_param`
begin as in `base` though nothing is right there, so a policy has to be told which one it plays: `multi-turn-gold` is
for `base` and `miss_func`, `multi-turn-gold-param` for `miss_param`, `multi-turn-gold-long` for `long_context`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from bfcl_rollout.scripted.conversation import written
from bfcl_rollout.scripted.misbehave import misbehave
from bfcl_rollout.scripted.reply import Body, Call, Reply

from bfcl_multi_turn import source
from bfcl_multi_turn.interactive.prompt import FUNCTIONS_MARKER
from bfcl_multi_turn.splits import CATEGORIES

RESTORED = "I have updated some more functions you can choose from. What about now?"
"""How BFCL announces restored functions (`default_prompts.py`); the embedded model does not import BFCL."""

DONE = "That is done."
IMPOSSIBLE = "I cannot do this with the functions and the information that I have."
_NAME = re.compile(r"""["']name["']:\s*["'](\w+)["']""")
_BATCH_ABOVE = 20
"""A turn of more calls than this is played in one batch: BFCL's step limit would end it."""

Form = Literal["fc", "prompting", "interactive"]


@dataclass(frozen=True)
class Script:
    """One official conversation with its accepted calls."""

    variant: str
    questions: tuple[str | None, ...]
    """Per user turn, its text; None for a turn that only restores functions."""
    calls: tuple[tuple[Call, ...], ...]
    offered: tuple[frozenset[str], ...]
    """Names of the functions on offer, per user turn."""

    def opens(self, turn: int, text: str) -> bool:
        """Whether a user message opens a user turn of this conversation."""
        if turn >= len(self.questions):
            return False
        return text.rstrip().endswith(self.questions[turn] or RESTORED)


@dataclass(frozen=True)
class Scene:
    """A request, recognised."""

    form: Form
    script: Script
    turn: int
    done: int
    """Replies of the model in this user turn."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The accepted calls of this user turn."""
        return self.script.calls[self.turn]

    @property
    def first(self) -> bool:
        """Whether this is the first user turn that has accepted calls."""
        return bool(self.calls) and not any(self.script.calls[: self.turn])

    def draw(self, count: int) -> int:
        """A number below `count` that is the same for every request of this user turn."""
        text = json.dumps([self.script.variant, self.script.questions, self.turn])
        return int(hashlib.sha256(text.encode()).hexdigest(), 16) % count

    def say(self, calls: Sequence[Call]) -> Reply:
        """Calls in the request's form."""
        if self.form == "fc":
            return Reply(None, tuple(calls))
        if self.form == "prompting":
            return Reply(f"[{', '.join(map(written, calls))}]")
        objects = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in calls]
        body = json.dumps(objects[0] if len(objects) == 1 else objects, ensure_ascii=False)
        return Reply(f"<think>This is what was asked for.</think>\n<tool_call>{body}</tool_call>")

    def end(self) -> Reply:
        """A text that ends the user turn."""
        text = DONE if self.calls else IMPOSSIBLE
        return Reply(
            f"<think>Nothing is left to do.</think>\n<answer>{text}</answer>" if self.form == "interactive" else text
        )

    def proper(self, done: int, calls: Sequence[Call] | None = None) -> Reply:
        """The accepted calls: one a reply, or all at once where attempts or steps are short."""
        calls = self.calls if calls is None else calls
        size = len(calls) if self.form == "interactive" or len(calls) > _BATCH_ABOVE else 1
        left = calls[done * size :][:size] if size else ()
        return self.say(left) if left else self.end()


def gold(body: Body) -> Reply:
    """The accepted calls of `base` and `miss_func`."""
    return _play(body, lambda scene: scene.proper(scene.done))


def gold_param(body: Body) -> Reply:
    """The accepted calls of `miss_param`."""
    return _play(body, lambda scene: scene.proper(scene.done), prefer="miss_param")


def gold_long(body: Body) -> Reply:
    """The accepted calls of `long_context`."""
    return _play(body, lambda scene: scene.proper(scene.done), prefer="long_context")


def mistake(body: Body) -> Reply:
    """The accepted calls, but the first one of all has an argument that does not exist."""

    def act(scene: Scene) -> Reply:
        if not scene.first:
            return scene.proper(scene.done)
        return scene.proper(scene.done, [Call.of(scene.calls[0].name, no_such_argument=1), *scene.calls[1:]])

    return _play(body, act)


def skip(body: Body) -> Reply:
    """Answers the first user turn that has accepted calls at once, and plays the others."""
    return _play(body, lambda scene: scene.end() if scene.first else scene.proper(scene.done))


def runaway(body: Body) -> Reply:
    """Repeats the first accepted call of a user turn without end."""
    return _play(body, lambda scene: scene.say(scene.calls[:1]) if scene.calls else scene.end())


def parse_errors(body: Body) -> Reply:
    """Begins every user turn with a reply that does not parse, a different one each turn, then plays it."""

    def act(scene: Scene) -> Reply:
        if scene.done:
            return scene.proper(scene.done - 1)
        if scene.form == "interactive":
            return Reply(_MALFORMED[scene.turn % len(_MALFORMED)])
        if scene.form == "prompting":
            return Reply("[ls(a=True")
        return Reply(None, (Call("ls", '{"a": tru'),))

    return _play(body, act)


def mixed(body: Body) -> Reply:
    """Plays most user turns properly, and each of the others wrong in one of several ways, drawn from its words."""

    def act(scene: Scene) -> Reply:
        draw = scene.draw(_MIXED_OF)
        if draw == 0:
            return scene.end()
        if draw == 1 and scene.calls:
            return scene.proper(scene.done, scene.calls[:-1])
        if draw == 2 and scene.calls:
            return scene.proper(scene.done, [*scene.calls, scene.calls[-1]])
        if draw == 3 and scene.calls:
            return scene.proper(scene.done, [Call.of(scene.calls[0].name, no_such_argument=1), *scene.calls])
        if draw == 4:
            return misbehave(body)
        return scene.proper(scene.done)

    return _play(body, act)


_MIXED_OF = 25
_MALFORMED = (
    "I will look at the files first.",
    "<think>one</think><think>two</think><answer>done</answer>",
    "<think>two blocks</think><tool_call>{}</tool_call><tool_call>{}</tool_call>",
    "<think>no JSON</think><tool_call>ls(a=True)</tool_call>",
    "<think>both</think><tool_call>{}</tool_call><answer>done</answer>",
    "<think>and a remark</think><answer>done</answer> Anything else?",
    "<think>nothing follows</think>",
)


def _play(body: Body, act: Callable[[Scene], Reply], prefer: str = "base") -> Reply:
    scene = recognise(body, prefer)
    return Reply("I do not know this conversation.") if scene is None else act(scene)


def recognise(body: Body, prefer: str = "base") -> Scene | None:
    """The conversation a request belongs to, or None.

    Args:
        body: the request.
        prefer: the variant to take where several fit.
    """
    messages = body["messages"]
    system = "\n".join(str(message["content"]) for message in messages if message["role"] == "system")
    tools = frozenset(tool["function"]["name"] for tool in body.get("tools") or ())
    form: Form = "fc" if tools else "interactive" if FUNCTIONS_MARKER in system else "prompting"
    if form == "interactive":
        system = system.partition(FUNCTIONS_MARKER)[2]
    candidates = list(scripts())
    turn, done = -1, 0
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant":
            done += 1
        elif message["role"] == "user" and isinstance(content, str):
            opened = [script for script in candidates if script.opens(turn + 1, content)]
            if opened:
                candidates, turn, done = opened, turn + 1, 0
    if turn < 0:
        return None
    # Only native calls show the functions that have been restored since.
    shown, moment = (tools, turn) if form == "fc" else (frozenset(_NAME.findall(system)), 0)
    candidates = [script for script in candidates if script.offered[moment] == shown]
    candidates.sort(key=lambda script: script.variant != prefer)
    return Scene(form, candidates[0], turn, done) if candidates else None


@functools.cache
def scripts() -> tuple[Script, ...]:
    """All 800 conversations, variant by variant."""
    parameters = source.parameter_names()
    names = {name: [doc["name"] for doc in source.function_docs(name)] for name in source.CLASSES}
    found = []
    for variant in CATEGORIES:
        for entry, golds in zip(source.raw_entries(variant), source.gold_calls(variant), strict=True):
            everything = {name for class_name in entry["involved_classes"] for name in names[class_name]}
            found.append(
                Script(
                    variant,
                    tuple(turn[0]["content"].rstrip() if turn else None for turn in entry["question"]),
                    tuple(tuple(_call(text, parameters) for text in turn) for turn in golds),
                    tuple(frozenset(_offered(entry, everything, turn)) for turn in range(len(golds))),
                )
            )
    return tuple(found)


def _offered(entry: dict[str, Any], everything: set[str], turn: int) -> set[str]:
    held_out = {name for when, names in entry.get("missed_function", {}).items() if int(when) > turn for name in names}
    return everything - held_out


def _call(text: str, parameters: dict[str, list[str]]) -> Call:
    """An accepted call with all its arguments by name, as native calling wants them."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call), text
    name = ast.unparse(node.func)
    arguments = dict(zip(parameters[name], map(ast.literal_eval, node.args), strict=False)) if node.args else {}
    arguments |= {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    return Call.of(name, **arguments)

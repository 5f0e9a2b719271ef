"""Replies that go wrong as a whole: empty ones, odd message fields, and answers that are none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from bfcl_rollout.scripted.conversation import written
from bfcl_rollout.scripted.recall import recall
from bfcl_rollout.scripted.reply import Call, Reply
from bfcl_rollout.scripted.scene import Scene, kinds


def empty_text(scene: Scene) -> Reply | None:
    return Reply("")


def null_text(scene: Scene) -> Reply | None:
    return Reply(None)


def blank_text(scene: Scene) -> Reply | None:
    return Reply(scene.pick("blank", (" ", "\n\n", "```\n```")))


def empty_tool_calls(scene: Scene) -> Reply | None:
    """An empty list of calls with a text, as some servers send it: BFCL loses the text."""
    return Reply(recall(scene.body).content or "Nothing to call.", ())


def null_tool_calls(scene: Scene) -> Reply | None:
    return Reply(recall(scene.body).content or "Nothing to call.", extra={"tool_calls": None})


def abstain(scene: Scene) -> Reply | None:
    answer = scene.pick("abstain", ("I do not know", "I cannot answer this question"))
    return Reply(str({"answer": answer, "context": answer}) if scene.question else answer)


def echo(scene: Scene) -> Reply | None:
    return Reply(scene.text)


def bare_word(scene: Scene) -> Reply | None:
    """A text that is a Python expression without being a call."""
    return Reply(scene.pick("bare", (scene.word(), "42", "[]", "None", "['a', 'b']", "{'answer': 1}")))


def malformed_call_as_answer(scene: Scene) -> Reply | None:
    """The answer inside a call that does not decode: BFCL grades the text of that call."""
    answer = recall(scene.body).content
    if not scene.question or answer is None:
        return None
    if scene.prompting:
        return Reply(f"[{scene.read().name}(answer: {answer})]")
    return Reply(calls=(Call(scene.read().name, f"answer: {answer}"),))


def call_as_text(scene: Scene) -> Reply | None:
    """A call written into the text of a reply: just a text for native calling."""
    call = scene.write(scene.word())
    forms = (
        f"[{written(call)}]",
        f"<tool_call>{call.name} {call.arguments}</tool_call>",
        f"```\n[{written(call)}]\n```",
    )
    return Reply(scene.pick("form", forms))


def cut_off(scene: Scene) -> Reply | None:
    """A reply that ran into the token limit in the middle of a call or a sentence."""
    call = scene.write(scene.text[:100])
    if scene.prompting or scene.draw("cut", 2):
        return Reply("The answer is that", cut=True)
    return Reply(calls=(replace(call, arguments=call.arguments[: len(call.arguments) // 2]),), cut=True)


def extra_fields(scene: Scene) -> Reply | None:
    """A proper reply with fields in the message that only some servers send."""
    extra: dict[str, Any] = {
        "reasoning_content": f"The user mentions {scene.word()}.",
        "refusal": None,
        "annotations": [],
        "x_vendor": {"nested": [1, None, "é"]},
    }
    return replace(recall(scene.body), extra=extra)


def several_choices(scene: Scene) -> Reply | None:
    """A proper reply with two others behind it, which BFCL ignores."""
    others = (Reply("Another opinion."), Reply(calls=(scene.read(),)))
    return replace(recall(scene.body), alternatives=others)


def several_answers(scene: Scene) -> Reply | None:
    """All that was found, as JSON and at length."""
    if not scene.question:
        return None
    found = [result.output[:300] for result in scene.conversation.results]
    return Reply(json.dumps({"answer": found, "context": scene.text}, ensure_ascii=False))


KINDS = kinds(
    empty_text,
    null_text,
    blank_text,
    empty_tool_calls,
    null_tool_calls,
    abstain,
    echo,
    bare_word,
    call_as_text,
    cut_off,
    extra_fields,
    several_choices,
    several_answers,
) | kinds(malformed_call_as_answer, weight=8)

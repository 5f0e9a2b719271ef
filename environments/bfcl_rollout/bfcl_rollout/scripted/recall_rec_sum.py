"""How `recall` uses the single-text backend: append, and when the text is full, keep its most telling
sentences."""

from __future__ import annotations

from bfcl_rollout.scripted.conversation import Conversation
from bfcl_rollout.scripted.notes import SUMMARY_LENGTH, condense, memory_in_prompt
from bfcl_rollout.scripted.reply import Call

_ROOM = 1500
"""Characters that a rewrite leaves free, so that not every message needs one."""


def store(conversation: Conversation) -> list[Call]:
    """The next calls that write the current message down; none when that is done."""
    text, results = conversation.turn.text, conversation.turn.results
    appended = [each for each in results if each.name == "memory_append"]
    if not appended:
        return [Call.of("memory_append", text=text.strip() + "\n")]
    if not appended[-1].failed or any(each.name == "memory_update" for each in results):
        return []
    retrieved = [each.data["memory_content"] for each in results if "memory_content" in each.data]
    if not retrieved:
        return [Call.of("memory_retrieve")]
    memory = f"{retrieved[-1].strip()}\n{text.strip()}"
    return [Call.of("memory_update", text=condense(memory, SUMMARY_LENGTH - _ROOM) + "\n")]


def search(conversation: Conversation) -> list[Call]:
    """The next calls that look for the answer; none when there is nothing more to look for."""
    if any(each.name == "memory_retrieve" for each in conversation.turn.results):
        return []
    return [Call.of("memory_retrieve")]


def found(conversation: Conversation) -> list[str]:
    """The texts that the answer may come from."""
    texts = [
        str(each.data["memory_content"])
        for each in conversation.turn.results
        if "memory_content" in each.data
    ]
    return texts or [memory_in_prompt(conversation)]

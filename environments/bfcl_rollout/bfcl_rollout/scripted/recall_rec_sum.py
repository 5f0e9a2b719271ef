"""How `recall` uses the single-text backend: append; when the text is full, keep its most telling
sentences."""

from __future__ import annotations

from bfcl_rollout.scripted.conversation import Conversation
from bfcl_rollout.scripted.notes import SUMMARY_LENGTH, condense, memory_in_prompt
from bfcl_rollout.scripted.reply import Call

_ROOM = 1500
"""Characters that a rewrite leaves free, so that not every message needs one."""
_LONG = 2000
"""Characters of a new message that a rewrite keeps."""


def store(conversation: Conversation) -> list[Call]:
    """The next calls that write the current message down; none when that is done."""
    text, results = conversation.turn.text.strip() + "\n", conversation.turn.results
    tried = [each for each in results if each.name in ("memory_append", "memory_update")]
    if any(not each.failed or each.name == "memory_update" for each in tried):
        return []
    # Appending is tried unless it is known to fail; a failure that could not be foreseen ends up here as well.
    if not tried and _length(conversation) + len(text) <= SUMMARY_LENGTH:
        return [Call.of("memory_append", text=text)]
    retrieved = [str(each.data["memory_content"]) for each in results if "memory_content" in each.data]
    if not retrieved:
        return [] if any(each.name == "memory_retrieve" for each in results) else [Call.of("memory_retrieve")]
    # What was just said is kept whole (unless it is very long) and competes with the rest from the next time on.
    new = text if len(text) <= _LONG else condense(text, _LONG - 1) + "\n"
    old = condense(retrieved[-1], SUMMARY_LENGTH - _ROOM - len(new))
    return [Call.of("memory_update", text=f"{old}\n{new}")]


def search(conversation: Conversation) -> list[Call]:
    """The next calls that look for the answer; none when there is nothing more to look for."""
    if any(each.name == "memory_retrieve" for each in conversation.turn.results):
        return []
    return [Call.of("memory_retrieve")]


def found(conversation: Conversation) -> list[str]:
    """The texts that the answer may come from."""
    texts = [str(each.data["memory_content"]) for each in conversation.turn.results if "memory_content" in each.data]
    return texts or [memory_in_prompt(conversation)]


def _length(conversation: Conversation) -> int:
    """Characters in the memory now, as far as the conversation tells."""
    length = len(memory_in_prompt(conversation)) + 1  # its last line break was stripped
    for result in conversation.results:
        if result.name == "memory_append" and not result.failed:
            length += len(str(result.arguments.get("text", "")))
        elif result.name == "memory_update" and not result.failed:
            length = len(str(result.arguments.get("text", "")))
        elif result.name == "memory_clear":
            length = 0
    return length

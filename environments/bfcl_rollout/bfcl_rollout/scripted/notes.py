"""What BFCL's memory backends hold, and how a message is cut to fit."""

from __future__ import annotations

import json
import re
from typing import Any

from bfcl_rollout.scripted.conversation import Conversation
from bfcl_rollout.scripted.retrieval import informativeness, sentences

CORE_SIZE, CORE_LENGTH = 7, 300
ARCHIVAL_SIZE, ARCHIVAL_LENGTH = 50, 2000
SUMMARY_LENGTH = 10_000

_MEMORY = re.compile(r"Here is the content of your [^\n]* from previous interactions:\n(.*)", re.DOTALL)
_AFTER = "\nFor your final answer to the user"


def memory_in_prompt(conversation: Conversation) -> str:
    """The memory text that BFCL put into the system prompt at the start of the session or question."""
    match = _MEMORY.search(conversation.system)
    return match[1].partition(_AFTER)[0].strip() if match else ""


def core_in_prompt(conversation: Conversation) -> dict[str, str]:
    """Core memory at the start, by key or id; empty if there is none."""
    try:
        memory: Any = json.loads(memory_in_prompt(conversation))
    except ValueError:
        return {}
    return {key: str(value) for key, value in memory.items()} if isinstance(memory, dict) else {}


def split(text: str, length: int) -> list[str]:
    """Cut a text into pieces of at most `length` characters, between sentences where possible."""
    pieces: list[str] = []
    for sentence in sentences(text):
        while len(sentence) > length:
            cut = sentence.rfind(" ", 0, length)
            cut = cut if cut > 0 else length
            pieces.append(sentence[:cut])
            sentence = sentence[cut:].strip()
        if pieces and len(pieces[-1]) + 1 + len(sentence) <= length:
            pieces[-1] += " " + sentence
        elif sentence:
            pieces.append(sentence)
    return pieces


def condense(text: str, length: int) -> str:
    """The most telling sentences of a text, in their order, one to a line, in at most `length` characters."""
    lines = [piece for sentence in sentences(text) for piece in split(sentence, 400)]
    room, kept = length, set()
    for index in sorted(range(len(lines)), key=lambda index: (-informativeness(lines[index]), index)):
        if len(lines[index]) + 1 <= room:
            kept.add(index)
            room -= len(lines[index]) + 1
    return "\n".join(lines[index] for index in sorted(kept))


def core_entry(conversation: Conversation) -> str | None:
    """What the first message of a session puts into core memory; None later on, or when there is no room."""
    tried = any(result.name == "core_memory_add" for result in conversation.results)
    if tried or len(conversation.turns) > 1 or len(core_in_prompt(conversation)) >= CORE_SIZE:
        return None
    return condense(conversation.turn.text, CORE_LENGTH).replace("\n", " ") or None

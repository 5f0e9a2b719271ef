"""How `recall` uses the vector backend: notes filled up to the size limit, found again by similarity."""

from __future__ import annotations

from bfcl_rollout.scripted.conversation import Conversation, Result
from bfcl_rollout.scripted.notes import ARCHIVAL_LENGTH, core_entry, core_in_prompt, split
from bfcl_rollout.scripted.reply import Call

_SEARCH_HITS = 10
_WRITES = ("archival_memory_add", "archival_memory_update")


def store(conversation: Conversation) -> list[Call]:
    """The next calls that write the current message down; none when that is done."""
    if any(result.name in _WRITES for result in conversation.turn.results):
        return []
    calls = []
    if (entry := core_entry(conversation)) is not None:
        calls.append(Call.of("core_memory_add", text=entry))
    text = conversation.turn.text.strip()
    if not text:
        return []
    last = _last_note(conversation.results)
    if last is None:
        return calls + [Call.of("archival_memory_add", text=piece) for piece in split(text, ARCHIVAL_LENGTH)]
    number, note = last
    first, *rest = split(f"{note} {text}", ARCHIVAL_LENGTH)
    if first != note:
        calls.append(Call.of("archival_memory_update", vec_id=number, new_text=first))
    return calls + [Call.of("archival_memory_add", text=piece) for piece in rest]


def search(conversation: Conversation) -> list[Call]:
    """The next calls that look for the answer; none when there is nothing more to look for."""
    if any(each.name == "archival_memory_retrieve" for each in conversation.turn.results):
        return []
    return [Call.of("archival_memory_retrieve", query=conversation.turn.text, top_k=_SEARCH_HITS)]


def found(conversation: Conversation) -> list[str]:
    """The texts that the answer may come from."""
    hits = [hit for each in conversation.turn.results for hit in each.data.get("result") or ()]
    texts = [str(hit["text"]) for hit in hits if isinstance(hit, dict) and "text" in hit]
    return texts + list(core_in_prompt(conversation).values())


def _last_note(results: list[Result]) -> tuple[int, str] | None:
    """Id and text of the note this session wrote last, if it is still there."""
    last: tuple[int, str] | None = None
    for result in results:
        if result.failed:
            continue
        if result.name == "archival_memory_add" and isinstance(result.data.get("id"), int):
            last = result.data["id"], str(result.arguments.get("text", ""))
        elif result.name == "archival_memory_clear":
            last = None
        elif last is not None and result.arguments.get("vec_id") == last[0]:
            if result.name == "archival_memory_update":
                last = last[0], str(result.arguments.get("new_text", ""))
            elif result.name == "archival_memory_remove":
                last = None
    return last

"""How `recall` uses the key-value backend.

Keys are all that this backend searches, so a key holds the telling words of its note. Notes are filled up to
the size limit, because the number of entries is what runs out first: a growing note is removed and added
again under a key that covers the new text.
"""

from __future__ import annotations

import re
from collections import Counter

from bfcl_rollout.scripted.conversation import Conversation, Result
from bfcl_rollout.scripted.notes import ARCHIVAL_LENGTH, core_entry, core_in_prompt, split
from bfcl_rollout.scripted.reply import Call
from bfcl_rollout.scripted.retrieval import keywords, stem, words

_KEY_WORDS = 40
_SEARCH_HITS = 10
_WRITES = ("archival_memory_add", "archival_memory_replace")
_NOTE = re.compile(r"note_(\d+)(?:_|$)")


def store(conversation: Conversation) -> list[Call]:
    """The next calls that write the current message down; none when that is done."""
    done = conversation.results
    keys = _keys(done)
    if keys is None:
        return [Call.of("archival_memory_list_keys")] if not conversation.turn.steps else []
    last = max((key for key in keys if _NOTE.match(key)), key=_number, default=None)
    note = _value(done, last) if last else ""
    if last and note is None:
        if not any(result.arguments.get("key") == last for result in conversation.turn.results):
            return [Call.of("archival_memory_retrieve", key=last)]
        note = ""
    written = [result for result in conversation.turn.results if result.name in _WRITES]
    if not written:
        return [*_core(conversation), *_write(conversation.turn.text, last, note or "")]
    return []


def search(conversation: Conversation) -> list[Call]:
    """The next calls that look for the answer; none when there is nothing more to look for."""
    results = conversation.turn.results
    searched = [each for each in results if each.name == "archival_memory_key_search"]
    if not searched:
        query = " ".join(_variants(conversation.turn.text))
        return [Call.of("archival_memory_key_search", query=query, k=_SEARCH_HITS)]
    if any(each.name == "archival_memory_retrieve" for each in results):
        return []
    hits = searched[-1].data.get("ranked_results") or []
    return [Call.of("archival_memory_retrieve", key=key) for score, key in hits if score > 0]


def found(conversation: Conversation) -> list[str]:
    """The texts that the answer may come from."""
    values = [str(each.data["value"]) for each in conversation.turn.results if "value" in each.data]
    return values + list(core_in_prompt(conversation).values())


def make_key(number: int, text: str) -> str:
    """A key in the format that the backend demands, holding the words that tell most about `text`."""
    count = Counter(words(text))
    names = set(re.findall(r"[A-Z][a-z]+", text))
    telling = sorted(
        keywords(text),
        key=lambda word: (-(count[word] + 2 * (word.capitalize() in names) + len(word) / 6), word),
    )
    parts = [part for word in telling[:_KEY_WORDS] if (part := re.sub(r"[^a-z0-9]", "", word))]
    return "_".join([f"note_{number:02d}", *parts])


def _write(text: str, last: str | None, note: str) -> list[Call]:
    number = _number(last) if last else 0
    pieces = split(f"{note} {text}" if last and note else text, ARCHIVAL_LENGTH)
    calls = []
    if last and note:
        if len(note) + 80 > ARCHIVAL_LENGTH or not pieces:
            pieces, number = split(text, ARCHIVAL_LENGTH), number + 1
        else:
            calls.append(Call.of("archival_memory_remove", key=last))
    else:
        number += 1
    adds = [
        Call.of("archival_memory_add", key=make_key(number + index, piece), value=piece)
        for index, piece in enumerate(pieces)
    ]
    return calls + adds


def _core(conversation: Conversation) -> list[Call]:
    """In the first turn of a session, keep one telling passage in core memory while there is room."""
    entry = core_entry(conversation)
    if entry is None:
        return []
    number = 1 + len(core_in_prompt(conversation))
    return [Call.of("core_memory_add", key=f"profile_{number}", value=entry)]


def _keys(results: list[Result]) -> list[str] | None:
    """Keys of the archival memory now; None if they were never listed."""
    keys: list[str] | None = None
    for result in results:
        key = result.arguments.get("key")
        if result.failed:
            continue
        if result.name == "archival_memory_list_keys":
            keys = [str(each) for each in result.data.get("keys") or ()]
        elif keys is None:
            continue
        elif result.name == "archival_memory_add":
            keys.append(str(key))
        elif result.name == "archival_memory_remove" and key in keys:
            keys.remove(str(key))
        elif result.name == "archival_memory_clear":
            keys.clear()
    return keys


def _value(results: list[Result], key: str) -> str | None:
    """What is stored under `key`, as far as this session has seen it."""
    for result in reversed(results):
        if result.arguments.get("key") == key and not result.failed:
            if result.name in _WRITES:
                return str(result.arguments.get("value", ""))
            if result.name == "archival_memory_retrieve":
                return str(result.data.get("value", ""))
    return None


def _number(key: str) -> int:
    match = _NOTE.match(key)
    return int(match[1]) if match else 0


def _variants(question: str) -> list[str]:
    """The question's keywords and their commonest other forms: the search compares whole words."""
    forms: list[str] = []
    for word in keywords(question):
        root = stem(word)
        forms += [word, root, root + "s", root + "e", root + "ed", root + "ing"]
    return list(dict.fromkeys(forms))

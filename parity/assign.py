"""Which rollout a request belongs to, told by the request alone.

The official client sends nothing that names the test id. A request carries its whole conversation, though, so the
requests of one rollout form a chain in which each one extends the one before, and the user's words at the end of the
chain say which entry was played. No two entries of a run have the same words in all turns; entries that share their
first ones are told apart by later ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from parity.exchange import Body, Exchange, canonical, digest

_RETRIED = frozenset({408, 409, 429})


class Entry(NamedTuple):
    """What the user says in one entry of a category."""

    test_id: str
    user_texts: tuple[str, ...]


class Assignment(NamedTuple):
    """Requests by test id, in order, and those that belong to none."""

    by_id: dict[str, list[Body]]
    stray: list[Body]


def assign(exchanges: Iterable[Exchange], entries: Sequence[Entry]) -> Assignment:
    """Sort requests into rollouts. A request repeated because its answer was a retryable error counts once."""
    by_id: dict[str, list[Body]] = {}
    stray: list[Body] = []
    free = list(entries)
    chains, lost = _chains(exchanges)
    stray.extend(lost)
    # Longest first: the fewer words a chain has, the more entries it fits.
    for chain in sorted(chains, key=len, reverse=True):
        entry = _entry_of(chain[-1], free)
        if entry is None:
            stray.extend(chain)
        else:
            free.remove(entry)
            by_id[entry.test_id] = chain
    return Assignment(by_id, stray)


def _chains(exchanges: Iterable[Exchange]) -> tuple[list[list[Body]], list[Body]]:
    chains: list[list[Body]] = []
    lost: list[Body] = []
    # Chains whose next request is awaited, by the digest of their last request's messages and its reply.
    open_chains: dict[str, list[list[Body]]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.status in _RETRIED or exchange.status >= 500:
            continue
        body = canonical(exchange.body)
        messages = body.get("messages")
        if not isinstance(messages, list):
            lost.append(body)
            continue
        last = max((i for i, message in enumerate(messages) if message.get("role") == "assistant"), default=None)
        if last is None:
            chain: list[Body] = []
            chains.append(chain)
        else:
            waiting = open_chains[digest([messages[:last], _said(messages[last])])]
            if not waiting:
                lost.append(body)
                continue
            chain = waiting.pop(0)
        chain.append(body)
        open_chains[digest([messages, _said(_reply_message(exchange.reply))])].append(chain)
    return chains, lost


def _said(message: Any) -> list[Any]:
    """Content and calls of an assistant message, in a form that a client's round trip does not change."""
    if not isinstance(message, dict):
        return []
    calls = [
        [call.get("id"), call["function"].get("name"), call["function"].get("arguments")]
        for call in message.get("tool_calls") or []
    ]
    return [message.get("content") or "", calls]


def _reply_message(reply: Any) -> Any:
    try:
        return reply["choices"][0]["message"]
    except (LookupError, TypeError):
        return None


def _entry_of(body: Body, entries: Sequence[Entry]) -> Entry | None:
    said = [message["content"] for message in body["messages"] if message.get("role") == "user"]
    if not said:
        return None
    candidates = [entry for entry in entries if entry.user_texts[0] == said[0]]
    if len(candidates) > 1:
        # Other user messages are not the user's: tool results in prompting mode, added functions.
        known = {text for entry in candidates for text in entry.user_texts}
        words = tuple(text for text in said if text in known)
        candidates = [entry for entry in candidates if entry.user_texts[: len(words)] == words]
    return candidates[0] if candidates else None

"""The policy `recall`: plays BFCL's memory benchmark sensibly.

In a session it writes down what each user message says; on a question it searches the memory, picks the
sentences that match best and answers with them. It knows a question by its system prompt, which asks for an
answer in a fixed format, and the backend by the tools on offer. It decides anew at each request, from nothing
but the request.
"""

from __future__ import annotations

from bfcl_rollout.scripted import recall_kv, recall_rec_sum, recall_vector
from bfcl_rollout.scripted.conversation import Conversation, read, say
from bfcl_rollout.scripted.reply import Body, Reply
from bfcl_rollout.scripted.retrieval import best_sentences

_ANSWER_LIMIT = 250
"""Characters of memory that may go into an answer."""
_UNKNOWN = "{'answer': 'I do not know', 'context': 'I do not know'}"
_BACKENDS = {
    "archival_memory_key_search": recall_kv,
    "archival_memory_update": recall_vector,
    "memory_append": recall_rec_sum,
}


def recall(body: Body) -> Reply:
    """Store in sessions, search and answer in questions; a plain text where there is no memory tool."""
    conversation = read(body)
    backend = next((module for tool, module in _BACKENDS.items() if tool in conversation.tools), None)
    if backend is None:
        return Reply("I have no memory to work with.")
    question = is_question(conversation)
    # A backend never asks for the same thing twice in a turn, so every turn ends, whatever the tools answer.
    calls = backend.search(conversation) if question else backend.store(conversation)
    if calls:
        return say(conversation, calls)
    if question:
        return Reply(answer(conversation.turn.text, backend.found(conversation)))
    return Reply("Noted, thank you.")


def is_question(conversation: Conversation) -> bool:
    """Whether the request is one of the benchmark's questions rather than a session."""
    return "'answer':" in conversation.system


def answer(question: str, texts: list[str]) -> str:
    """The final answer in BFCL's format, made of the best-matching sentences."""
    best = best_sentences(question, texts, _ANSWER_LIMIT)
    if not best:
        return _UNKNOWN
    return str({"answer": best[0], "context": " ".join(best[1:]) or "This is what my memory says."})

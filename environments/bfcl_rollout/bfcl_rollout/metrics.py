"""Numbers read off a rollout's record. Pure functions; none needs the answer key."""

from __future__ import annotations

import json
import re
from typing import Any

from bfcl_rollout.records import RolloutRecord

_ERROR_PREFIX = "Error during execution:"
# BFCL's answer-format instruction asks for one of these two sentences when the model has no answer.
_ABSTENTIONS = re.compile(r"\bI do not know\b|\bI cannot answer this question\b", re.IGNORECASE)


def is_tool_error(result: str) -> bool:
    """Whether a tool result reports an error: raised by the executor, or returned by a backend as `{"error": ...}`."""
    if result.startswith(_ERROR_PREFIX):
        return True
    if not result.startswith("{"):
        return False
    try:
        value = json.loads(result)
    except ValueError:
        return False
    return isinstance(value, dict) and "error" in value


def tool_results(record: RolloutRecord) -> list[str]:
    """All tool results in order."""
    return [text for turn in record.turns for step in turn.steps for text in step.results]


def n_decode_failures(record: RolloutRecord) -> int:
    """Replies that were meant as calls but did not decode: lists of calls, not plain texts."""
    return sum(is_malformed_call(step.raw) and step.error is not None for turn in record.turns for step in turn.steps)


def is_malformed_call(message: Any) -> bool:
    """Whether a reply that BFCL takes for a final message is really a batch of calls that did not decode."""
    return isinstance(message, list) and bool(message)


def answer_text(record: RolloutRecord) -> str:
    """The graded message as a text; empty if there is none or it is a malformed call."""
    return record.graded_message if isinstance(record.graded_message, str) else ""


def abstained(record: RolloutRecord) -> bool:
    """Whether the graded message holds one of BFCL's two abstention sentences."""
    return bool(_ABSTENTIONS.search(answer_text(record)))

"""What the interactive protocol tells the model: the rules of the conversation and its functions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

FUNCTIONS_MARKER = "Here is the list of functions, in JSON format:"
"""Introduces the function list. It occurs once in a system prompt, so that tools can find the list behind it."""

_RULES = """\
You help a user by calling functions. The user makes one request after another; each may take several steps.

Every reply consists of exactly two blocks and no other text:

1. <think> ... </think>: your reasoning. Do not write any tag inside it.
2. One action, which is one of these:
   - <tool_call> ... </tool_call>: call functions. The body is valid JSON: one object {{"name": "...", "arguments": \
{{...}}}}, or an array of such objects for several calls, which are executed in order. Never write \
more than one <tool_call> block.
   - <answer> ... </answer>: finish the current request with a short message to the user. Use it only when no further \
call is needed, or none is possible.

After a <tool_call> you are shown the results as a JSON list, one text for each call. Read them to decide whether to \
go on or to answer. A reply that breaks the format is not executed; you are told why and may correct it.

A request allows at most {limit} attempts, malformed replies and failed calls included; one more ends it, whether or \
not it is done.

Call only functions from the list, with arguments that the user or earlier results gave you. If the list has no \
function for the request, or a required value is missing, do not guess: say so in an <answer>.

{marker}
"""


def system_prompt(functions: Sequence[dict[str, Any]], attempt_limit: int) -> str:
    """The system message: rules, the marker, and the function documents as a JSON array."""
    rules = _RULES.format(limit=attempt_limit, marker=FUNCTIONS_MARKER)
    return rules + json.dumps(list(functions), ensure_ascii=False)


def restored_functions(functions: Sequence[dict[str, Any]], sentence: str) -> str:
    """The user message of a turn that hands out functions: their documents, and BFCL's own sentence."""
    return f"{json.dumps(list(functions), ensure_ascii=False)}\n{sentence}"

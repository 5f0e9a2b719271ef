"""A well-formed answer that chooses a given option, for each prompt form. What a perfectly obedient model would say."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from bfcl_routing.view import FormName

_SURE = 0.9


class Answer(NamedTuple):
    """An answer, independent of how an endpoint wraps it."""

    text: str | None
    call: str | None
    """Name of the function called."""
    logprobs: dict[str, Any] | None

    def choice(self) -> dict[str, Any]:
        """As the choice of a chat completion."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.call is not None:
            function = {"name": self.call, "arguments": "{}"}
            message["tool_calls"] = [{"id": "call_0", "type": "function", "function": function}]
        return {"index": 0, "message": message, "logprobs": self.logprobs}


def write_answer(form: FormName, codes: Sequence[str], chosen: int | None) -> Answer:
    """The answer that chooses one option.

    Args:
        form: prompt form of the request.
        codes: what stands for each option.
        chosen: its position; None to choose none of them, which only a tool-call reply can express.
    """
    if chosen is None:
        return Answer("No function is needed here.", None, None)
    code = codes[chosen]
    if form == "tool_call":
        return Answer(None, code, None)
    if form == "json_choice":
        return Answer(json.dumps({"choice": code}, ensure_ascii=False), None, None)
    rest = (1 - _SURE) / (len(codes) - 1) if len(codes) > 1 else 0.0
    probabilities = {c: (_SURE if c == code else rest) if len(codes) > 1 else 1.0 for c in codes}
    if form == "distribution":
        return Answer(json.dumps(probabilities, ensure_ascii=False), None, None)
    if form == "typed_question":
        value = {"next": {"choice": code, "probabilities": probabilities}}
        return Answer(json.dumps(value, ensure_ascii=False), None, None)
    if form == "letters_logprob":
        top = [{"token": c, "logprob": math.log(p)} for c, p in probabilities.items()]
        token = {"token": code, "logprob": math.log(probabilities[code]), "top_logprobs": top}
        return Answer(code, None, {"content": [token]})
    return Answer(code, None, None)

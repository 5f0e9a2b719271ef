"""From one assistant text to an action, in the grammar of the interactive protocol.

An action is one `<think>` block and one `<tool_call>` or `<answer>` block, and nothing else (EnvTuning's
parser as ToolWeave trains with it). The first rule that fails names the error. Two texts that upstream
accepts are refused here, as invalid JSON: numbers without a finite value, and strings that no UTF-8 file can
hold.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, NoReturn

from bfcl_multi_turn.interactive.records import AttemptedType, ParsedCall, ResponseType

ParserError = Literal[
    "invalid_message_format",
    "missing_raw_response",
    "missing_think",
    "multiple_think_blocks",
    "multiple_tool_call_blocks",
    "multiple_answer_blocks",
    "mixed_action_blocks",
    "missing_action_block",
    "outside_required_tags",
    "invalid_tool_json",
    "unexpected_parser_exception",
]

REASONS: dict[ParserError, str] = {
    "invalid_message_format": "The last message is not an assistant message.",
    "missing_raw_response": "The reply has no text.",
    "missing_think": "The reply has no <think>...</think> block.",
    "multiple_think_blocks": "The reply has more than one <think> block.",
    "multiple_tool_call_blocks": (
        "The reply has more than one <tool_call> block. Put several calls into one block, as a JSON array."
    ),
    "multiple_answer_blocks": "The reply has more than one <answer> block.",
    "mixed_action_blocks": "The reply has both a <tool_call> and an <answer> block. Use exactly one of them.",
    "missing_action_block": "The reply has neither a <tool_call> nor an <answer> block.",
    "outside_required_tags": "The reply has text outside its <think> block and its action block.",
    "invalid_tool_json": "The body of the <tool_call> block is not valid JSON.",
    "unexpected_parser_exception": "The reply could not be parsed.",
}
"""What the model is told about each error."""


class ParsedResponse(NamedTuple):
    """One assistant text, parsed."""

    response_type: ResponseType
    attempted_type: AttemptedType
    """From the blocks present, before any rule is checked."""
    error: ParserError | None
    body: str
    """The action: re-serialised JSON of a tool call, the stripped text of an answer, empty for an error."""
    calls: tuple[ParsedCall, ...]
    """Elements of a tool call, invalid ones included; empty otherwise."""


class UndecodableCallsError(ValueError):
    """The calls cannot be written as Python calls of named functions."""


def parse_message(role: str, content: str | None) -> ParsedResponse:
    """Parse the last message of a conversation."""
    if role != "assistant":
        return _refused("invalid_message_format", "unknown")
    if not content:
        return _refused("missing_raw_response", "unknown")
    return parse_response(content)


def parse_response(text: str) -> ParsedResponse:
    """Parse one assistant text. Never raises: every failure is a `parse_error`."""
    text = text.strip()
    thinks, tools, answers = (_blocks(text, tag) for tag in ("think", "tool_call", "answer"))
    attempted: AttemptedType = "unknown"
    if tools and not answers:
        attempted = "tool_call"
    elif answers and not tools:
        attempted = "answer"
    if error := _format_error(text, thinks, tools, answers):
        return _refused(error, attempted)
    if answers:
        return ParsedResponse("answer", attempted, None, answers[0].strip(), ())
    try:
        value = _strict_json(tools[0])
        body = json.dumps(value, ensure_ascii=False)
        body.encode()
    except (json.JSONDecodeError, UnicodeEncodeError, _NotFiniteError):
        return _refused("invalid_tool_json", attempted)
    except (ValueError, RecursionError):
        # An integer of more than 4,300 digits, or nesting deeper than the interpreter's stack.
        return _refused("unexpected_parser_exception", attempted)
    return ParsedResponse("tool_call", attempted, None, body, calls_from_json(value))


def calls_from_json(value: Any) -> tuple[ParsedCall, ...]:
    """The elements of a tool-call body, positions kept. Anything but an array counts as its only element."""
    elements = value if isinstance(value, list) else [value]
    return tuple(_call(index, element) for index, element in enumerate(elements))


def answer_calls(body: str) -> tuple[ParsedCall, ...]:
    """The valid calls in an answer's text, if it happens to be JSON of calls; empty otherwise.

    Upstream decodes both kinds of action by the same route, so such an answer is executed.
    """
    try:
        value = _strict_json(body)
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return ()
    return tuple(call for call in calls_from_json(value) if call.valid)


def call_strings(calls: Iterable[ParsedCall]) -> list[str]:
    """The valid calls as Python text, one string per call, ready for BFCL's executor.

    Raises:
        UndecodableCallsError: a name or an argument name is no identifier, or an argument is an empty object
            (upstream's way through text loses the whole action there, and the user turn closes).
    """
    texts = []
    for call in calls:
        if not call.valid:
            continue
        if not all(map(_is_name, call.name.split("."))):
            raise UndecodableCallsError(f"{call.name!r} is not a function name")
        for name, value in call.arguments.items():
            if not _is_name(name):
                raise UndecodableCallsError(f"{name!r} is not an argument name")
            if value == {}:
                raise UndecodableCallsError(f"argument {name!r} is an empty object")
        text = f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        try:
            ast.parse(text, mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise UndecodableCallsError(f"{call.name}: {error}") from error
        texts.append(text)
    return texts


def _format_error(text: str, thinks: list[str], tools: list[str], answers: list[str]) -> ParserError | None:
    if not thinks:
        return "missing_think"
    if len(thinks) > 1:
        return "multiple_think_blocks"
    if len(tools) > 1:
        return "multiple_tool_call_blocks"
    if len(answers) > 1:
        return "multiple_answer_blocks"
    if tools and answers:
        return "mixed_action_blocks"
    if not tools and not answers:
        return "missing_action_block"
    rest = _without(_without(text, "think"), "tool_call" if tools else "answer")
    return "outside_required_tags" if rest.strip() else None


def _spans(text: str, tag: str) -> list[tuple[int, int]]:
    # What a non-greedy multi-line pattern finds, in linear time: model text may hold thousands of openers.
    opener, closer = f"<{tag}>", f"</{tag}>"
    spans = []
    start = text.find(opener)
    while start >= 0:
        end = text.find(closer, start + len(opener))
        if end < 0:
            break
        end += len(closer)
        spans.append((start, end))
        start = text.find(opener, end)
    return spans


def _blocks(text: str, tag: str) -> list[str]:
    return [text[start + len(tag) + 2 : end - len(tag) - 3] for start, end in _spans(text, tag)]


def _without(text: str, tag: str) -> str:
    kept, position = [], 0
    for start, end in _spans(text, tag):
        kept.append(text[position:start])
        position = end
    return "".join([*kept, text[position:]])


def _call(index: int, element: Any) -> ParsedCall:
    if not isinstance(element, dict):
        return ParsedCall(call_idx=index, name="", valid=False)
    name = element.get("name")
    name = name.strip() if isinstance(name, str) else ""
    arguments = element.get("arguments")
    return ParsedCall(
        call_idx=index,
        name=name,
        arguments=arguments if isinstance(arguments, dict) else {},
        valid=bool(name),
    )


def _refused(error: ParserError, attempted: AttemptedType) -> ParsedResponse:
    return ParsedResponse("parse_error", attempted, error, "", ())


class _NotFiniteError(ValueError):
    pass


def _strict_json(text: str) -> Any:
    return json.loads(text, parse_constant=_not_finite, parse_float=_finite_float)


def _finite_float(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _not_finite(text)


def _not_finite(text: str) -> NoReturn:
    raise _NotFiniteError(text)


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)

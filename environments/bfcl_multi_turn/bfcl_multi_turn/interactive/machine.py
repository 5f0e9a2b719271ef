"""The turn machine: five attempts per user turn, and a sixth that closes it.

`plan` says what the environment has to do with a parsed reply, `settle` what the results of executed calls
lead to. A closing score of None asks the environment to run the state and response checks. Between them the
state machine never touches a tool, so every transition can be tested from a table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NamedTuple

from bfcl_multi_turn.interactive import parser
from bfcl_multi_turn.interactive.parser import ParsedResponse, UndecodableCallsError
from bfcl_multi_turn.interactive.records import Code, Interaction, ParsedCall
from bfcl_multi_turn.interactive.rewards import (
    CALL_RAISED,
    CALLS_RAN,
    FORMAT_FAILURE,
    TURN_FAILED,
    TURN_SUCCEEDED,
)

ATTEMPT_LIMIT = 5
"""Failed or executed actions that a user turn allows; one more closes it."""

EXECUTION_ERROR_PREFIX = "Error during execution:"
"""How BFCL's executor starts the result of a call that raised."""


class TurnState(NamedTuple):
    """Where a rollout stands. Everything but `user_turn` starts again when a turn closes."""

    user_turn: int = 0
    attempts: int = 0
    generations: int = 0
    """Generations so far: the runtime interaction index of the next one."""
    tool_attempts: int = 0


class Plan(NamedTuple):
    """What to do with one reply."""

    kind: Literal["reject", "execute", "close"]
    """Tell the model its format error and let it try again; execute `calls`; or close the user turn."""
    state: TurnState
    """The state after this reply (for `execute`: before its results are settled)."""
    code: Code | None
    """The step's code, or None where results or checks decide it."""
    calls: tuple[ParsedCall, ...] = ()
    """The calls to execute, in order."""
    call_texts: tuple[str, ...] = ()
    """The same calls as Python text."""
    refused_calls: bool = False
    """The turn closes because calls came where none was possible: the model is told so."""


class Settled(NamedTuple):
    """What executed calls led to."""

    closes: bool
    """The attempt limit is passed: the results are not shown, and the turn is scored."""
    state: TurnState
    code: Code | None
    """None if the turn closes: the checks decide."""


def plan(
    state: TurnState,
    reply: ParsedResponse,
    *,
    gold_is_empty: bool,
    limit: int = ATTEMPT_LIMIT,
    execute_json_answers: bool = True,
) -> Plan:
    """Decide what happens to one reply.

    Args:
        state: before the reply.
        reply: what the parser made of it.
        gold_is_empty: the user turn is one where no call is right.
        limit: attempts a user turn allows.
        execute_json_answers: as upstream does, an answer whose text is JSON of calls is executed. Credit
            leaves such a turn alone, since its answer is not its last step.
    """
    after = state._replace(generations=state.generations + 1)
    closed = TurnState(user_turn=state.user_turn + 1)
    if reply.attempted_type == "tool_call":
        after = after._replace(tool_attempts=state.tool_attempts + 1)
    if reply.response_type == "parse_error":
        after = after._replace(attempts=state.attempts + 1)
        if after.attempts > limit:
            return Plan("close", closed, TURN_FAILED if gold_is_empty else None)
        return Plan("reject", after, FORMAT_FAILURE)
    if gold_is_empty:
        called = reply.response_type == "tool_call"
        return Plan("close", closed, TURN_FAILED if called else TURN_SUCCEEDED, refused_calls=called)
    calls = tuple(call for call in reply.calls if call.valid)
    if reply.response_type == "answer" and execute_json_answers:
        calls = parser.answer_calls(reply.body)
    try:
        texts = tuple(parser.call_strings(calls))
    except UndecodableCallsError:
        calls, texts = (), ()
    if not calls:
        return Plan("close", closed, None)
    return Plan("execute", after._replace(attempts=state.attempts + 1), None, calls, texts)


def settle(state: TurnState, results: Sequence[str], *, limit: int = ATTEMPT_LIMIT) -> Settled:
    """Decide what the results of a plan's calls lead to.

    Args:
        state: the plan's state.
        results: one result text per call.
        limit: attempts a user turn allows.
    """
    if state.attempts > limit:
        return Settled(True, TurnState(user_turn=state.user_turn + 1), None)
    raised = any(result.startswith(EXECUTION_ERROR_PREFIX) for result in results)
    return Settled(False, state, CALL_RAISED if raised else CALLS_RAN)


def record(
    state: TurnState,
    reply: ParsedResponse,
    *,
    code: Code,
    node: int | None,
    results: Sequence[str] = (),
) -> Interaction:
    """The record of one reply, given the state *before* it."""
    return Interaction(
        user_turn=state.user_turn,
        index=state.generations,
        response_type=reply.response_type,
        attempted_type=reply.attempted_type,
        parser_error=reply.error,
        calls=list(reply.calls),
        results=list(results),
        code=code,
        tool_attempt_index=state.tool_attempts if reply.attempted_type == "tool_call" else None,
        node=node,
        call_parse_reliable=reply.response_type == "tool_call",
    )


def rejection_feedback(reply: ParsedResponse) -> str:
    """What the model is told about a format error it may correct."""
    reason = parser.REASONS[reply.error or "unexpected_parser_exception"]
    form = "one <think> block followed by one <tool_call> or one <answer> block, and nothing else"
    return f"{reason} Reply with {form}."


def results_feedback(results: Sequence[str]) -> str:
    """What the model is shown of its results: a JSON list of texts, and how to go on."""
    return (
        f"{json.dumps(list(results), ensure_ascii=False)}\n"
        "If the request is done, reply with an <answer> block; otherwise go on calling functions."
    )


REFUSED_CALLS_FEEDBACK = "No function call was possible in that turn, so nothing was executed."
"""Shown before the next question when calls came in a turn without a right call."""

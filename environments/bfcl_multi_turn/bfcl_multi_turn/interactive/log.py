"""The interaction log of a rollout, derived from its record and the verdict on it.

The record holds what happened, in BFCL's terms; the turn machine and the parser are pure, so running them again over
the recorded replies gives the log: types, calls, codes. Nothing is decided here that was not decided during play.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from bfcl_rollout.records import OFFICIAL, RolloutRecord, Step

from bfcl_multi_turn.interactive import machine
from bfcl_multi_turn.interactive.options import InteractiveOptions
from bfcl_multi_turn.interactive.parser import parse_message
from bfcl_multi_turn.interactive.records import Code, Interaction, InteractionLog, ParsedCall, ResponseType

TurnScore = Literal[0, 1] | None


class LogError(RuntimeError):
    """A record that the turn machine would not have produced."""


def interaction_log(record: RolloutRecord, turn_pass: Sequence[bool | None], nodes: Sequence[int]) -> InteractionLog:
    """The log of one rollout.

    Args:
        record: what happened.
        turn_pass: the grader's verdict per user turn of the task.
        nodes: indices in `trace.nodes` of the model's messages, in order. Shorter than the record's replies, or
            empty, where there is no trace.

    Raises:
        LogError: the record contradicts the turn machine.
    """
    if record.protocol == OFFICIAL:
        scores: list[TurnScore] = [None if passed is None else int(passed) for passed in turn_pass]  # type: ignore[misc]
        interactions = list(_official(record, nodes))
    else:
        scores, interactions = _interactive(record, turn_pass, nodes)
    return InteractionLog(
        protocol="official" if record.protocol == OFFICIAL else "interactive",
        entry_id=record.test_id,
        turn_scores=scores,
        interactions=interactions,
    )


def unrecorded_log(entry_id: str, user_turns: int) -> InteractionLog:
    """The log of a rollout that a limit of the run ended while BFCL's own loop played it, which leaves no record.

    No user turn is known to have ended, and no interaction to have belonged to one.

    Args:
        entry_id: the BFCL test id.
        user_turns: the task's user turns.
    """
    return InteractionLog(protocol="official", entry_id=entry_id, turn_scores=[None] * user_turns, interactions=[])


def turn_rewards(record: RolloutRecord, log: InteractionLog, sampled: int) -> list[float | None]:
    """One entry per sampled message of the trace: the score of the user turn at its last message, else None."""
    last: dict[int, int] = {}
    position = 0
    for turn, played in enumerate(record.turns):
        position += len(played.steps)
        if played.steps:
            last[position - 1] = turn
    scores = log.turn_scores
    rewards = [None if place not in last else scores[last[place]] for place in range(sampled)]
    return [None if reward is None else float(reward) for reward in rewards]


def _node(nodes: Sequence[int], position: int) -> int | None:
    return nodes[position] if position < len(nodes) else None


def _interactive(
    record: RolloutRecord, turn_pass: Sequence[bool | None], nodes: Sequence[int]
) -> tuple[list[TurnScore], list[Interaction]]:
    options = InteractiveOptions.model_validate(record.options)
    scores: list[TurnScore] = [None] * len(options.no_call_turns)
    interactions = []
    state = machine.TurnState()
    for position, (turn, step) in enumerate(_steps(record)):
        if record.cut_off and step.error == "truncated":
            break
        if state.user_turn != turn:
            raise LogError(f"{record.test_id}: user turn {turn} of the record is {state.user_turn} of the machine")
        reply = parse_message("assistant", step.raw)
        plan = machine.plan(
            state,
            reply,
            gold_is_empty=options.no_call_turns[turn],
            limit=options.attempt_limit,
            execute_json_answers=options.execute_json_answers,
        )
        after, code, closes = plan.state, plan.code, plan.kind == "close"
        if plan.kind == "execute":
            settled = machine.settle(plan.state, step.results, limit=options.attempt_limit)
            after, code, closes = settled.state, settled.code, settled.closes
        if closes:
            code = code if code is not None else _closing_code(turn_pass[turn])
            scores[turn] = 1 if code == 1 else 0
        if code is None:
            raise LogError(f"{record.test_id}: a step of user turn {turn} has no code")
        interactions.append(machine.record(state, reply, code=code, node=_node(nodes, position), results=step.results))
        state = after
    return scores, interactions


def _closing_code(passed: bool | None) -> Code:
    return 1 if passed else 0


def _steps(record: RolloutRecord) -> Iterator[tuple[int, Step]]:
    for turn, played in enumerate(record.turns):
        for step in played.steps:
            yield turn, step


def _official(record: RolloutRecord, nodes: Sequence[int]) -> Iterator[Interaction]:
    index, current, attempts = 0, -1, 0
    for position, (turn, step) in enumerate(_steps(record)):
        if turn != current:
            index, current, attempts = 0, turn, 0
        kind = _official_type(step)
        tries = kind != "answer"
        yield Interaction(
            user_turn=turn,
            index=index,
            response_type=kind,
            attempted_type="answer" if kind == "answer" else "tool_call",
            parser_error=step.error or "undecodable" if kind == "parse_error" else None,
            calls=[read_call(place, call) for place, call in enumerate(step.decoded or ())] if step.results else [],
            results=step.results,
            tool_attempt_index=attempts if tries else None,
            node=_node(nodes, position),
            call_parse_reliable=kind == "tool_call",
        )
        index += 1
        attempts += tries


def _official_type(step: Step) -> ResponseType:
    if step.results:
        return "tool_call"
    if isinstance(step.raw, str):
        # Prompting mode: a list of calls that did not decode is an attempt, other text is an answer.
        return "parse_error" if step.raw.strip().startswith("[") and step.error else "answer"
    return "parse_error" if step.raw else "answer"


def read_call(place: int, text: str) -> ParsedCall:
    """A call that BFCL decoded, as name and arguments. One that is not a plain call is marked invalid.

    BFCL's decoder for calls written as text keeps named arguments alone: `sort('a.txt')` is executed, and read here,
    as `sort()`.
    """
    try:
        node = ast.parse(text, mode="eval").body
        if not isinstance(node, ast.Call) or node.args:
            raise ValueError(text)
        arguments = {keyword.arg or "": plain_json(ast.literal_eval(keyword.value)) for keyword in node.keywords}
        if "" in arguments:
            raise ValueError(text)
        return ParsedCall(call_idx=place, name=ast.unparse(node.func), arguments=arguments)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ParsedCall(call_idx=place, name="", valid=False)


def plain_json(value: Any) -> Any:
    """The value with what JSON lacks replaced: tuples and sets by lists, keys by texts, other things by their repr."""
    if isinstance(value, dict):
        return {str(key): plain_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain_json(inner) for inner in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)

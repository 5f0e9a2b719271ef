"""The turn machine: every transition from a table, and the published codes on the real tools."""

import pytest
from bfcl_multi_turn.interactive.machine import (
    REFUSED_CALLS_FEEDBACK,
    Plan,
    TurnState,
    plan,
    rejection_feedback,
    results_feedback,
    settle,
)
from bfcl_multi_turn.interactive.parser import parse_response
from credit_helpers import answer_text, think, tool_text, vectors
from credit_world_helpers import codes, gold_objects, play

BROKEN = "no tags at all"
CALL = tool_text(("f", {"a": 1}))
CALL_JSON = '{"name": "f", "arguments": {}}'


def step(text: str, attempts: int = 0, gold_is_empty: bool = False) -> Plan:
    return plan(TurnState(2, attempts, 3, 1), parse_response(text), gold_is_empty=gold_is_empty)


@pytest.mark.parametrize(
    ("text", "attempts", "gold_is_empty", "kind", "code", "turn", "attempts_after"),
    [
        (BROKEN, 0, False, "reject", -3, 2, 1),
        (BROKEN, 4, False, "reject", -3, 2, 5),
        (BROKEN, 5, False, "close", None, 3, 0),
        (BROKEN, 0, True, "reject", -3, 2, 1),
        (BROKEN, 5, True, "close", 0, 3, 0),
        (answer_text(), 0, True, "close", 1, 3, 0),
        (answer_text(), 5, True, "close", 1, 3, 0),
        (CALL, 0, True, "close", 0, 3, 0),
        (answer_text(), 0, False, "close", None, 3, 0),
        (answer_text(), 5, False, "close", None, 3, 0),
        (CALL, 0, False, "execute", None, 2, 1),
        (CALL, 5, False, "execute", None, 2, 6),
        (think("<tool_call>[]</tool_call>"), 0, False, "close", None, 3, 0),
        (think("<tool_call>42</tool_call>"), 0, False, "close", None, 3, 0),
        (tool_text(("not a name", {})), 0, False, "close", None, 3, 0),
        (tool_text(("f", {"a": {}})), 0, False, "close", None, 3, 0),
        (answer_text(CALL_JSON), 0, False, "execute", None, 2, 1),
    ],
)
def test_plans(
    text: str, attempts: int, gold_is_empty: bool, kind: str, code: int | None, turn: int, attempts_after: int
) -> None:
    made = step(text, attempts, gold_is_empty)
    assert (made.kind, made.code, made.state.user_turn, made.state.attempts) == (
        kind,
        code,
        turn,
        attempts_after,
    )
    assert made.state.generations == (0 if kind == "close" else 4)
    assert bool(made.calls) == bool(made.call_texts) == (kind == "execute")


def test_calls_without_a_right_call_are_refused_and_said_so() -> None:
    assert step(CALL, gold_is_empty=True).refused_calls
    assert not step(answer_text(), gold_is_empty=True).refused_calls
    assert REFUSED_CALLS_FEEDBACK


def test_json_answers_can_be_left_alone() -> None:
    reply = parse_response(answer_text(CALL_JSON))
    assert plan(TurnState(), reply, gold_is_empty=False, execute_json_answers=False).kind == "close"


@pytest.mark.parametrize(
    ("attempts", "results", "closes", "code"),
    [
        (1, ["fine"], False, -1),
        (5, ['{"error": "returned, not raised"}'], False, -1),
        (1, ["fine", "Error during execution: boom"], False, -2),
        (1, ["said Error during execution: no"], False, -1),
        (6, ["fine"], True, None),
        (6, ["Error during execution: boom"], True, None),
    ],
)
def test_settling(attempts: int, results: list[str], closes: bool, code: int | None) -> None:
    settled = settle(TurnState(1, attempts, attempts, attempts), results)
    assert (settled.closes, settled.code) == (closes, code)
    assert settled.state.user_turn == (2 if closes else 1)


def test_feedback_names_the_rule_and_shows_results() -> None:
    assert "<think>" in rejection_feedback(parse_response(BROKEN))
    assert results_feedback(["a", '{"b": 1}']).startswith('["a", "{\\"b\\": 1}"]\n')


SAMPLE_0 = [
    ("cd", {"folder": "document"}),
    ("mkdir", {"dir_name": "temp"}),
    ("mv", {"source": "final_report.pdf", "destination": "temp"}),
]
PLAYED = {
    "codes_invalid_json": [think("<tool_call>{bad}</tool_call>")],
    "codes_wrong_argument_type": [tool_text(("cd", {"folder": 123}))],
    "codes_success": [tool_text(("cd", {"folder": "document"}))],
    "codes_any_failure_in_action": [tool_text(("cd", {"folder": "document"}), ("no_such_function", {}))],
    "codes_answer_wrong_state": [answer_text()],
    "codes_gold_then_answer": [tool_text(*SAMPLE_0), answer_text()],
    "codes_six_parse_errors": [BROKEN] * 6,
    "codes_error_dict_counts_as_success": [tool_text(("cd", {"folder": "nope"}))],
    "codes_empty_array_closes_turn": [think("<tool_call>[]</tool_call>")],
    "codes_json_answer_is_executed": [
        answer_text('{"name": "ticket_login", "arguments": {"username": "mthompson", "password": "securePass123"}}')
    ],
}


def travel_turn(turn: int) -> list[str]:
    """One call per action, then an answer."""
    return [*(tool_text(call) for call in gold_objects("multi_turn_base_156", turn)), answer_text()]


def offset_0() -> list[str]:
    return [text for turn in range(5) for text in travel_turn(turn)]


def offset_9() -> list[str]:
    wrong_ticket = [(name, {**arguments, "ticket_id": 1}) for name, arguments in gold_objects("multi_turn_base_156", 4)]
    return [
        *(text for turn in range(3) for text in travel_turn(turn)),
        *[BROKEN] * 5,
        tool_text(*gold_objects("multi_turn_base_156", 3)),
        tool_text(*wrong_ticket),
        answer_text(),
    ]


def test_published_codes_on_the_real_tools() -> None:
    played = {**PLAYED, "codes_offset0": offset_0(), "codes_offset9": offset_9()}
    for vector in vectors("interaction_codes"):
        found = codes(vector["input"]["sample"], played.pop(vector["id"]))
        assert found == vector["expected"], vector["id"]
    assert not played


def test_forced_close_is_scored_like_any_other() -> None:
    log = play("multi_turn_base_156", offset_9())
    closing = [step for step in log.interactions if step.user_turn == 3][-1]
    assert (closing.response_type, closing.index, closing.code) == ("tool_call", 5, 1)
    assert log.progress == 0.8


def test_a_turn_lasts_at_most_six_generations() -> None:
    log = play("multi_turn_base_156", [BROKEN] * 30)
    assert [step.index for step in log.interactions] == list(range(6)) * 5
    assert log.turn_scores == [0] * 5
    with pytest.raises(ValueError, match="ended before"):
        play("multi_turn_base_156", [BROKEN] * 31)

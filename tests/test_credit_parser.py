"""The grammar of the interactive protocol, rule by rule."""

import json

import pytest
from bfcl_multi_turn.interactive.parser import (
    REASONS,
    UndecodableCallsError,
    answer_calls,
    call_strings,
    parse_message,
    parse_response,
)
from credit_helpers import answer_text, think, tool_text, vectors
from hypothesis import given
from hypothesis import strategies as st

CALL = '{"name": "f", "arguments": {}}'


def test_published_parser_cases() -> None:
    for vector in vectors("parser"):
        parsed = parse_response(vector["input"]["text"])
        expected = vector["expected"]
        assert parsed.response_type == expected["type"], vector["id"]
        if "error" in expected:
            assert parsed.error == expected["error"], vector["id"]
        if "intent" in expected:
            assert parsed.attempted_type == expected["intent"], vector["id"]
        if "body" in expected:
            assert parsed.body == expected["body"], vector["id"]


@pytest.mark.parametrize(
    ("text", "error", "attempted"),
    [
        (f"<tool_call>{CALL}</tool_call>", "missing_think", "tool_call"),
        ("<answer>x</answer>", "missing_think", "answer"),
        ("plain text", "missing_think", "unknown"),
        ("<think>a", "missing_think", "unknown"),
        (
            f"<think>a</think><think>b</think><tool_call>{CALL}</tool_call>",
            "multiple_think_blocks",
            "tool_call",
        ),
        (think(f"<tool_call>{CALL}</tool_call>" * 2), "multiple_tool_call_blocks", "tool_call"),
        (think("<answer>a</answer><answer>b</answer>"), "multiple_answer_blocks", "answer"),
        (think(f"<tool_call>{CALL}</tool_call><answer>b</answer>"), "mixed_action_blocks", "unknown"),
        # The first rule that fails wins.
        (
            think(f"<tool_call>{CALL}</tool_call>" * 2 + "<answer>b</answer>"),
            "multiple_tool_call_blocks",
            "unknown",
        ),
        (think("nothing"), "missing_action_block", "unknown"),
        (think("<answer>a"), "missing_action_block", "unknown"),
        (think("<answer>a</answer> and more"), "outside_required_tags", "answer"),
        ("before " + think("<answer>a</answer>"), "outside_required_tags", "answer"),
        (think("<tool_call>{bad}</tool_call>"), "invalid_tool_json", "tool_call"),
        (think(f"<tool_call>{CALL}, {CALL}</tool_call>"), "invalid_tool_json", "tool_call"),
        (think("<tool_call></tool_call>"), "invalid_tool_json", "tool_call"),
        (
            think(f"<tool_call>{CALL}</tool_call>", thought="I use <tool_call> now"),
            "invalid_tool_json",
            "tool_call",
        ),
        (
            think('<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>'),
            "invalid_tool_json",
            "tool_call",
        ),
        (
            think('<tool_call>{"name": "f", "arguments": {"a": 1e999}}</tool_call>'),
            "invalid_tool_json",
            "tool_call",
        ),
        (think('<tool_call>{"name": "\\ud800"}</tool_call>'), "invalid_tool_json", "tool_call"),
        (think("<tool_call>" + "9" * 5000 + "</tool_call>"), "unexpected_parser_exception", "tool_call"),
        (think("<tool_call>" + "[" * 200_000 + "</tool_call>"), "unexpected_parser_exception", "tool_call"),
    ],
)
def test_first_broken_rule_names_the_error(text: str, error: str, attempted: str) -> None:
    parsed = parse_response(text)
    assert (parsed.response_type, parsed.error, parsed.attempted_type) == ("parse_error", error, attempted)
    assert (parsed.body, parsed.calls) == ("", ())


@pytest.mark.parametrize(
    ("text", "kind", "body"),
    [
        (f"<tool_call>{CALL}</tool_call><think>after</think>", "tool_call", CALL),
        ("<think></think><answer></answer>", "answer", ""),
        ("  <think>a\nb</think>\n\n<answer> two\nlines </answer>\n", "answer", "two\nlines"),
        (think("<tool_call>42</tool_call>"), "tool_call", "42"),
        (think("<tool_call>[]</tool_call>"), "tool_call", "[]"),
        (think(f"<tool_call>\n[{CALL},\n {CALL}]\n</tool_call>"), "tool_call", f"[{CALL}, {CALL}]"),
    ],
)
def test_accepted_actions(text: str, kind: str, body: str) -> None:
    parsed = parse_response(text)
    assert (parsed.response_type, parsed.error, parsed.body) == (kind, None, body)


def test_message_checks_come_first() -> None:
    assert parse_message("user", answer_text()).error == "invalid_message_format"
    assert parse_message("assistant", None).error == "missing_raw_response"
    assert parse_message("assistant", "").error == "missing_raw_response"
    assert parse_message("assistant", answer_text()).response_type == "answer"


def test_elements_keep_their_position_and_validity() -> None:
    good = '{"name": " f ", "arguments": {"a": 1}}'
    body = f'[{good}, 42, {{"name": ""}}, {{"name": 7}}, {{"name": "g", "arguments": [1]}}]'
    calls = parse_response(think(f"<tool_call>{body}</tool_call>")).calls
    assert [(c.call_idx, c.name, c.arguments, c.valid) for c in calls] == [
        (0, "f", {"a": 1}, True),
        (1, "", {}, False),
        (2, "", {}, False),
        (3, "", {}, False),
        (4, "g", {}, True),
    ]


def test_calls_as_python_text() -> None:
    parsed = parse_response(tool_text(("f", {"a": "it's", "b": [1, True, None]}), ("T.g", {})))
    assert call_strings(parsed.calls) == ['f(a="it\'s", b=[1, True, None])', "T.g()"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("f(); g", {}),
        ("__import__('os').system", {}),
        ("f", {"a=1, b": 2}),
        ("lambda", {}),
        ("f", {"class": 1}),
        ("f", {"a": {}}),
    ],
)
def test_undecodable_calls(name: str, arguments: dict[str, object]) -> None:
    with pytest.raises(UndecodableCallsError):
        call_strings(parse_response(tool_text(("ok", {}), (name, arguments))).calls)


def test_only_json_of_calls_in_an_answer_decodes() -> None:
    assert [call.name for call in answer_calls(CALL)] == ["f"]
    assert answer_calls("all done") == answer_calls("[]") == answer_calls("42") == answer_calls("[" * 200_000) == ()


def test_every_error_has_a_reason() -> None:
    assert all(REASONS.values())


@given(st.lists(st.sampled_from(["<think>", "</think>", "<tool_call>", "</tool_call>", "<answer>", "</answer>", "{}"])))
def test_never_raises_and_is_consistent(parts: list[str]) -> None:
    parsed = parse_response("".join(parts))
    assert (parsed.response_type == "parse_error") == (parsed.error is not None)
    if parsed.response_type == "tool_call":
        json.loads(parsed.body)


def test_many_openers_cost_linear_time() -> None:
    # A pattern that rescans from every opener would need 10^10 steps here.
    assert parse_response("<think>" * 100_000).error == "missing_think"

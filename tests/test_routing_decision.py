"""The parser table: what counts as an answer in each form, and what an invalid one is called."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from bfcl_routing.answers import write_answer
from bfcl_routing.decision import NO_CALL, Decision, decide, read_probabilities, unwrap
from hypothesis import given
from hypothesis import strategies as st
from routing_helpers import ALL_FORMS

CODES = ("no_tool", "clarify", "cannot_answer", "math.area", "math.area.circle", "get_rate")
ACTIONS = CODES


def text_reply(content: Any) -> dict[str, Any]:
    return {"message": {"role": "assistant", "content": content}}


def calls_reply(*names: Any, content: str | None = None) -> dict[str, Any]:
    calls = [{"id": "c", "type": "function", "function": {"name": n, "arguments": "{}"}} for n in names]
    return {"message": {"role": "assistant", "content": content, "tool_calls": calls}}


@pytest.mark.parametrize(
    ("text", "action", "invalid", "lenient"),
    [
        ("get_rate", "get_rate", None, "get_rate"),
        ("  math.area\n", "math.area", None, "math.area"),
        ('"math.area"', "math.area", None, "math.area"),
        ("`no_tool`", "no_tool", None, "no_tool"),
        ("'get_rate'", "get_rate", None, "get_rate"),
        ("“get_rate”", "get_rate", None, "get_rate"),
        ("```\nget_rate\n```", "get_rate", None, "get_rate"),
        ("```text\nget_rate\n```", "get_rate", None, "get_rate"),
        ("math.area.circle", "math.area.circle", None, "math.area.circle"),
        # At most one wrapping is removed.
        ('"`get_rate`"', None, "not_exact", "get_rate"),
        ("I would call get_rate.", None, "not_exact", "get_rate"),
        ("get_rate.", None, "not_exact", "get_rate"),
        ("id: get_rate", None, "not_exact", "get_rate"),
        ("get_rate or math.area", None, "several", None),
        ("get_rate, get_rate", None, "not_exact", "get_rate"),
        # An id inside another one is not an answer.
        ("math.area.square", None, "unknown", None),
        ("my_get_rate", None, "unknown", None),
        ("other_case.function", None, "unknown", None),
        ("Get_Rate", None, "unknown", None),
        ("GET_RATE", None, "unknown", None),
        ("math_area", None, "unknown", None),
        ("", None, "empty", None),
        (" \n ", None, "empty", None),
        (None, None, "empty", None),
        (7, None, "empty", None),
        ([{"type": "text", "text": "get_"}, {"type": "text", "text": "rate"}, 3], "get_rate", None, "get_rate"),
    ],
)
def test_id_text(text: Any, action: str | None, invalid: str | None, lenient: str | None) -> None:
    found = decide("id_text", CODES, ACTIONS, text_reply(text))
    assert (found.action, found.invalid, found.lenient) == (action, invalid, lenient)


@pytest.mark.parametrize(
    ("text", "action", "invalid"),
    [
        ('{"choice": "get_rate"}', "get_rate", None),
        ('```json\n{"choice": "get_rate"}\n```', "get_rate", None),
        ('{"choice": "Get_Rate"}', None, "unknown"),
        ('{"choice": "elsewhere"}', None, "unknown"),
        ('{"choice": ["get_rate"]}', None, "unknown"),
        ('{"choice": "get_rate", "why": "x"}', None, "unknown"),
        ('{"other": "get_rate"}', None, "unknown"),
        ('"get_rate"', None, "not_json"),
        ("get_rate", None, "not_json"),
        ("{" * 5000, None, "not_json"),
        ("", None, "empty"),
    ],
)
def test_json_choice(text: str, action: str | None, invalid: str | None) -> None:
    found = decide("json_choice", CODES, ACTIONS, text_reply(text))
    assert (found.action, found.invalid) == (action, invalid)


def test_tool_call() -> None:
    codes = ("math_area", "math_area_circle", "no_tool")
    actions = ("math.area", "math.area.circle", "no_tool")

    def found(choice: dict[str, Any]) -> tuple[str | None, str | None, int]:
        decision = decide("tool_call", codes, actions, choice)
        return decision.action, decision.invalid, decision.calls

    assert found(calls_reply("math_area")) == ("math.area", None, 1)
    assert found(calls_reply("no_tool")) == ("no_tool", None, 1)
    assert found(calls_reply("math_area_circle", "math_area")) == ("math.area.circle", None, 2)
    # The sanitised name is the only one that was offered.
    assert found(calls_reply("math.area")) == (None, "unknown", 1)
    assert found(calls_reply("elsewhere", "math_area")) == (None, "unknown", 2)
    assert found(calls_reply(None)) == (None, "unknown", 1)
    assert found(text_reply("math_area")) == (NO_CALL, None, 0)
    assert found(calls_reply()) == (NO_CALL, None, 0)
    assert found({"message": {"tool_calls": ["x", None]}}) == (NO_CALL, None, 0)
    assert found({"message": {"tool_calls": [{"function": "math_area"}]}}) == (None, "unknown", 1)


def probabilities(**changes: Any) -> dict[str, Any]:
    return dict.fromkeys(CODES, 0.1) | {"get_rate": 0.5} | changes


def test_distribution() -> None:
    found = decide("distribution", CODES, ACTIONS, text_reply(json.dumps(probabilities())))
    assert found.action == "get_rate"
    assert found.distribution == probabilities()
    near = decide("distribution", CODES, ACTIONS, text_reply(json.dumps(probabilities(get_rate=0.51))))
    assert near.distribution is not None
    assert math.isclose(sum(near.distribution.values()), 1.0)
    tie = decide("distribution", CODES, ACTIONS, text_reply(json.dumps(dict.fromkeys(CODES, 1 / 6))))
    assert tie.action == "no_tool"
    missing = {c: p for c, p in probabilities().items() if c != "clarify"}
    for bad in (
        missing,
        probabilities(elsewhere=0.0),
        probabilities(get_rate=0.55),
        probabilities(get_rate=0.45),
        probabilities(get_rate=-0.1, clarify=0.7),
        probabilities(get_rate="0.5"),
        probabilities(get_rate=True),
        probabilities(get_rate=None),
        probabilities(get_rate=10**400),
    ):
        assert decide("distribution", CODES, ACTIONS, text_reply(json.dumps(bad))).invalid == "bad_probabilities"
    for special in ("NaN", "Infinity", "-Infinity"):
        text = json.dumps(probabilities(get_rate=0)).replace(": 0,", f": {special},").replace(": 0}", f": {special}}}")
        assert special in text
        assert decide("distribution", CODES, ACTIONS, text_reply(text)).invalid == "bad_probabilities"
    assert read_probabilities([0.5], CODES) is None


def test_typed_question() -> None:
    def found(value: Any) -> Decision:
        return decide("typed_question", CODES, ACTIONS, text_reply(json.dumps(value)))

    good = found({"next": {"choice": "math.area", "probabilities": probabilities(), "confidence": 0.4}})
    # The server's own choice counts, whatever its probabilities say.
    assert good.action == "math.area"
    assert good.distribution == probabilities()
    assert found({"next": {"choice": "elsewhere", "probabilities": probabilities()}}).invalid == "unknown"
    assert found({"next": {"probabilities": probabilities()}}).invalid == "unknown"
    assert found({"next": {"choice": "math.area"}}).invalid == "bad_probabilities"
    assert found({"next": "math.area"}).invalid == "unknown"
    assert found([]).invalid == "not_json"


def letters(*pairs: tuple[str, float]) -> dict[str, Any]:
    top = [{"token": token, "logprob": logprob} for token, logprob in pairs]
    return {**text_reply("A"), "logprobs": {"content": [{"token": "A", "top_logprobs": top}]}}


def test_letters_logprob() -> None:
    codes, actions = ("A", "B"), ("f", "g")
    # Two spellings of one letter add up: .3 + .2 against .4.
    choice = letters(("A", math.log(0.3)), (" A", math.log(0.2)), ("B", math.log(0.4)), ("C", math.log(0.05)))
    found = decide("letters_logprob", codes, actions, choice)
    assert found.action == "f"
    assert found.distribution is not None
    assert math.isclose(found.distribution["f"], 5 / 9)
    for bad in (letters(("A", -0.1)), letters(), text_reply("A"), {**text_reply("A"), "logprobs": None}):
        assert decide("letters_logprob", codes, actions, bad).invalid == "no_logprobs"
    impossible = decide("letters_logprob", codes, actions, letters(("A", float("-inf")), ("B", -1.0)))
    assert impossible.distribution == {"f": 0.0, "g": 1.0}
    for value in (float("nan"), 1.0):
        assert decide("letters_logprob", codes, actions, letters(("A", value), ("B", -1.0))).invalid == "no_logprobs"
    broken = letters(("A", -1.0))
    broken["logprobs"]["content"][0]["top_logprobs"][0]["logprob"] = None
    assert decide("letters_logprob", codes, actions, broken).invalid == "no_logprobs"


@pytest.mark.parametrize("form", ALL_FORMS)
def test_no_reply_and_obedient_answers(form: Any) -> None:
    assert decide(form, CODES, ACTIONS, None) == Decision(action=None, invalid="no_reply")
    for position, action in enumerate(ACTIONS):
        choice = write_answer(form, CODES, position).choice()
        assert decide(form, CODES, ACTIONS, choice).action == action


def test_one_option_can_be_chosen() -> None:
    for form in ALL_FORMS:
        assert decide(form, ("f",), ("f",), write_answer(form, ("f",), 0).choice()).action == "f"


def test_unwrap_takes_one_layer_only() -> None:
    assert unwrap("''") == ""
    assert unwrap("'") == "'"
    assert unwrap("'a\"") == "'a\""
    assert unwrap("``a``") == "`a`"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(ALL_FORMS), json_values, json_values, json_values, st.sampled_from(["text", "json", "raw"]))
def test_no_reply_raises(form: Any, content: Any, calls: Any, logprobs: Any, kind: str) -> None:
    if kind == "json":
        content = json.dumps(content)
    choice = {"message": {"content": content, "tool_calls": calls}, "logprobs": logprobs}
    found = decide(form, CODES, ACTIONS, choice)
    assert (found.action is None) == (found.invalid is not None)
    assert found.action is None or found.action in (*ACTIONS, NO_CALL)

"""What counts as equal, and how a difference is shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity_helpers import body, user

from parity.compare import Count, agreement, compare, differences
from parity.observation import Observation, Rollout, digested, from_json, to_json
from parity.report import markdown, summary

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def facts(test_id: str) -> tuple[str, ...]:
    return ("calls", "verdict") if test_id.startswith("question") else ("calls", "snapshot")


def question(valid: bool = True) -> Rollout:
    return Rollout([body(user("q"))], {"calls": [["f()"]], "verdict": {"valid": valid, "error_type": None}})


def session() -> Rollout:
    requests = [body(user("a")), body(user("a"), user("b")), body(user("a"), user("b"), user("c"))]
    return Rollout(requests, {"calls": [], "snapshot": '{"memory": "text"}'})


def observation(**rollouts: Rollout) -> Observation:
    return Observation(rollouts)


def test_equal_observations_are_equal_and_counted() -> None:
    found = compare(
        observation(question_1=question(), session_1=session()),
        observation(question_1=question(), session_1=session()),
        facts,
    )
    assert found.equal
    assert found.counts == {
        "rollouts": Count(2, 2),
        "requests": Count(4, 4),
        "calls": Count(2, 2),
        "verdict": Count(1, 1),
        "snapshot": Count(1, 1),
    }


def test_nothing_compared_is_not_equal() -> None:
    assert not compare(observation(), observation(), facts).equal


def test_a_fact_that_neither_side_states_is_a_mismatch() -> None:
    empty = Rollout(failure="not played")
    found = compare(observation(question_1=empty), observation(question_1=empty), facts)
    assert not found.equal
    assert [(each.what, each.official) for each in found.mismatches] == [("calls, verdict", "absent (not played)")]
    assert found.counts["verdict"] == Count(0, 1)


def test_observations_of_different_entries_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different entries"):
        compare(observation(question_1=question()), observation(question_2=question()), facts)


def test_a_wrong_temperature_is_named() -> None:
    other = session()
    other.requests[1] = {**other.requests[1], "temperature": 0.002}
    found = compare(observation(session_1=session()), observation(session_1=other), facts)
    assert found.counts["requests"] == Count(2, 3)
    (mismatch,) = found.mismatches
    assert mismatch == ("session_1", "request", "2 of 3, temperature", "0.001", "0.002")
    assert "session_1: request 2 of 3, temperature" in str(mismatch)


def test_a_difference_that_later_requests_repeat_is_shown_once() -> None:
    other = session()
    for request in other.requests:
        request["messages"] = [user("A"), *request["messages"][1:]]
    found = compare(observation(session_1=session()), observation(session_1=other), facts)
    assert found.counts["requests"] == Count(0, 3)
    assert len(found.mismatches) == 1
    assert found.mismatches[0].where == "1 of 3, messages[0].content[0] (and 2 later requests)"


def test_a_request_too_many_or_too_few_is_a_mismatch() -> None:
    short = session()
    short.requests.pop()
    for left, right in ((session(), short), (short, session())):
        found = compare(observation(session_1=left), observation(session_1=right), facts)
        assert found.counts["requests"] == Count(2, 3)
        assert "absent" in (found.mismatches[0].official, found.mismatches[0].ours)


def test_a_stray_request_is_a_mismatch() -> None:
    for left, right in (([body()], []), ([], [body()])):
        found = compare(
            Observation({"question_1": question()}, left), Observation({"question_1": question()}, right), facts
        )
        assert not found.equal
        assert found.mismatches[0].what == "request of no rollout"


def test_one_character_of_a_snapshot_is_named() -> None:
    other = session()
    other.facts["snapshot"] = '{"memory": "tExt"}'
    (mismatch,) = compare(observation(session_1=session()), observation(session_1=other), facts).mismatches
    assert (mismatch.test_id, mismatch.what, mismatch.where) == ("session_1", "snapshot", "[13]")
    assert "tExt" in mismatch.ours


@pytest.mark.parametrize(
    ("left", "right", "path"),
    [
        (1, 1.0, ""),
        (1, True, ""),
        ({"a": 1}, {"a": 1, "b": None}, "b"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, " (order of the keys)"),
        ({"a": [{"b": "same, then x"}]}, {"a": [{"b": "same, then y"}]}, "a[0].b[11]"),
        ([1, 2], [1], "[1]"),
        ("a", "ab", "[1]"),
        ("e\u0301", "\u00e9", "[0]"),
    ],
)
def test_where_two_values_differ(left: Any, right: Any, path: str) -> None:
    assert [found.path for found in differences(left, right)] == [path]


def test_long_texts_are_shown_around_their_difference() -> None:
    (found,) = differences("x" * 1000 + "1" + "y" * 1000, "x" * 1000 + "2" + "y" * 1000)
    assert found.left == f"…'{'x' * 40}1{'y' * 39}'…"


@given(json_values, json_values)
def test_a_value_differs_from_others_only(left: Any, right: Any) -> None:
    assert not list(differences(left, left))
    if repr(left) != repr(right):
        assert list(differences(left, right))


def test_agreement_counts_graded_rollouts() -> None:
    left = observation(question_1=question(), question_2=question(), question_3=question(), session_1=session())
    right = observation(question_1=question(), question_2=question(False), question_3=Rollout(), session_1=session())
    assert agreement(left, right) == Count(1, 3)


def test_what_a_recording_holds_of_a_rollout_tells_it_from_others() -> None:
    rollouts = {"question_1": question(), "session_1": session()}
    stored = from_json(to_json(rollouts))
    assert compare(
        Observation(stored), Observation({id_: digested(each) for id_, each in rollouts.items()}), facts
    ).equal
    changed = session()
    changed.requests[2]["messages"][1]["content"] = "B"
    found = compare(
        Observation(stored),
        Observation({"question_1": digested(question()), "session_1": digested(changed)}),
        facts,
    )
    assert [(each.test_id, each.what) for each in found.mismatches] == [("session_1", "request")]
    assert found.mismatches[0].where == "3 of 3, messages[1]"
    assert stored["question_1"].facts["verdict"]["valid"] is True
    assert "text" not in str(stored)


def test_the_report_lists_counts_and_mismatches() -> None:
    report = {
        "command": "python -m parity scripted recall",
        "equal": False,
        "conclusion": "NOT IDENTICAL: 1 mismatches.",
        "total": {
            "counts": {"requests": {"equal": 1233, "total": 1234}},
            "passed": {"official": 1, "ours": 2},
            "wall_s": {"official": 1.0, "ours": 2.0},
        },
        "categories": {
            "memory_kv": {
                "counts": {"requests": {"equal": 1233, "total": 1234}},
                "passed": {"official": 1, "ours": 2},
                "wall_s": {"official": 1.0, "ours": 2.0},
                "mismatches": [{"test_id": "id-7", "what": "request", "where": "3 of 4", "official": "a", "ours": "b"}],
            }
        },
        "versions": {"official": {"openai": "3"}, "ours": {"openai": "2", "verifiers": "0"}},
        "hashes": {"data": "ab"},
        "agreement": {"official and ours": {"equal": 3, "total": 4}},
    }
    text = markdown(report)
    for wanted in ("NOT IDENTICAL", "1,233 / 1,234", "id-7", "verifiers | - | 0", "`ab`", "scripted recall", "3 / 4"):
        assert wanted in text
    assert any("id-7" in line for line in summary(report))

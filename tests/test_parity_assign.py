"""Requests are sorted into rollouts by what they say."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from parity_helpers import body, echoed, exchanges, numbered, reply, tool, user

from parity.assign import Entry, assign
from parity.exchange import Body, Exchange


def conversation(*turns: str, calls: int = 1) -> list[tuple[Body, dict[str, Any]]]:
    """The requests and replies of a rollout: each turn calls a tool some times and then says something."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
    pairs = []
    for turn in turns:
        messages.append(user(turn))
        for step in range(calls):
            answer = reply(None, call=f"t{step}")
            pairs.append((body(*messages), answer))
            messages += [echoed(answer), tool("done")]
        answer = reply(f"heard {turn}")
        pairs.append((body(*messages), answer))
        messages.append(echoed(answer))
    return pairs


def messages_of(found: list[Body]) -> list[int]:
    return [len(each["messages"]) for each in found]


def test_requests_of_rollouts_that_ran_at_once_are_told_apart() -> None:
    one, two = conversation("a", "b"), conversation("c", "d")
    mixed = [pair for both in zip(one, two, strict=True) for pair in both]
    found = assign(exchanges(*mixed), [Entry("id-1", ("a", "b")), Entry("id-2", ("c", "d"))])
    assert found.stray == []
    assert messages_of(found.by_id["id-1"]) == messages_of(found.by_id["id-2"]) == [2, 4, 6, 8]
    assert found.by_id["id-2"][0]["messages"][1]["content"] == "c"


def test_entries_that_begin_alike_are_told_apart_by_their_later_words() -> None:
    entries = [Entry("id-1", ("same", "x")), Entry("id-2", ("same", "y"))]
    for order in ([0, 1], [1, 0]):
        rollouts = [conversation("same", "x"), conversation("same", "y")]
        mixed = [rollouts[i][step] for step in range(4) for i in order]
        found = assign(exchanges(*mixed), entries)
        assert found.stray == []
        assert found.by_id["id-1"][-1]["messages"][5]["content"] == "x"
        assert found.by_id["id-2"][-1]["messages"][5]["content"] == "y"


def test_tool_results_that_come_as_user_messages_are_not_the_users_words() -> None:
    first = [(body(user("same"), user("[{'role': 'tool'}]")), reply("ok"))]
    found = assign(exchanges(*first), [Entry("id-1", ("same", "x")), Entry("id-2", ("other",))])
    assert list(found.by_id) == ["id-1"]


def test_a_rollout_cut_short_leaves_the_longer_entry_to_the_longer_chain() -> None:
    cut, whole = conversation("same", calls=0), conversation("same", "y", calls=0)
    found = assign(exchanges(*cut, *whole), [Entry("id-1", ("same", "x")), Entry("id-2", ("same", "y"))])
    assert messages_of(found.by_id["id-1"]) == [2]
    assert messages_of(found.by_id["id-2"]) == [2, 4]


def test_a_retried_request_counts_once() -> None:
    pairs = conversation("a")
    failed = [Exchange(0, None, pairs[0][0], status, {"error": {}}) for status in (429, 500, 503)]
    found = assign(numbered([*failed, *exchanges(*pairs)]), [Entry("id-1", ("a",))])
    assert found.stray == []
    assert messages_of(found.by_id["id-1"]) == [2, 4]


def test_a_refused_request_is_a_rollouts_last() -> None:
    pairs = conversation("a")
    refused = [*exchanges(pairs[0]), Exchange(1, None, pairs[1][0], 400, {"error": {}})]
    found = assign(refused, [Entry("id-1", ("a",))])
    assert messages_of(found.by_id["id-1"]) == [2, 4]


def test_what_belongs_nowhere_is_stray() -> None:
    orphan = body(user("a"), {"role": "assistant", "content": "never said"}, user("b"))
    unknown = conversation("nobody says this", calls=0)
    twice = [*conversation("a", calls=0), *conversation("a", calls=0)]
    found = assign(
        exchanges(*twice, *unknown, (orphan, reply("ok")), ({"model": "m"}, reply("ok"))), [Entry("id-1", ("a",))]
    )
    assert messages_of(found.by_id["id-1"]) == [2]
    assert len(found.stray) == 4


@given(st.data())
def test_no_order_of_arrival_confuses_the_rollouts(data: st.DataObject) -> None:
    texts = {"id-1": ("a", "b"), "id-2": ("a", "c"), "id-3": ("d",), "id-4": ("a", "b", "e")}
    left = {test_id: conversation(*words, calls=2) for test_id, words in texts.items()}
    arrived = []
    while any(left.values()):
        test_id = data.draw(st.sampled_from([test_id for test_id, pairs in left.items() if pairs]))
        arrived.append(left[test_id].pop(0))
    found = assign(exchanges(*arrived), [Entry(test_id, words) for test_id, words in texts.items()])
    assert found.stray == []
    for test_id, words in texts.items():
        assert [dict(each) for each in found.by_id[test_id]] == [
            {name: one[name] for name in sorted(one)} for one, _ in conversation(*words, calls=2)
        ]

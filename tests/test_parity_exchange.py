"""The file of exchanges, and the digests by which requests are told apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity_helpers import body, exchanges, reply, user

from parity.exchange import (
    Exchange,
    ExchangeWriter,
    body_digests,
    canonical,
    digest,
    read_exchanges,
    request_key,
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def test_the_order_of_top_level_fields_does_not_make_another_request() -> None:
    one = {"model": "m", "temperature": 0.1, "messages": []}
    other = {"messages": [], "temperature": 0.1, "model": "m"}
    assert request_key(one) == request_key(other)
    assert list(canonical(one)) == ["messages", "model", "temperature"]


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.0010000001},
        {"tools": [{"b": 1, "a": 2}]},
        {"messages": [{"content": "hello", "role": "user"}]},
        {"messages": [{"role": "user", "content": "hello "}]},
        {"stream": False},
    ],
    ids=["temperature", "order in a tool", "order in a message", "one space", "one more field"],
)
def test_anything_else_does(change: dict[str, Any]) -> None:
    base = body(user("hello"), tools=[{"a": 2, "b": 1}])
    assert request_key({**base, **change}) != request_key(base)


def test_digests_of_a_body_say_which_message_differs() -> None:
    one, other = body_digests(body(user("a"), user("b"))), body_digests(body(user("a"), user("c")))
    assert one["messages"][0] == other["messages"][0]
    assert one["messages"][1] != other["messages"][1]
    assert one["temperature"] == other["temperature"]


@given(st.lists(st.lists(st.dictionaries(st.text(max_size=4), json_values, max_size=3), max_size=4), max_size=4))
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, conversations: list[Any]) -> None:
    path = tmp_path_factory.mktemp("exchanges") / "file.jsonl"
    written = [
        Exchange(number, None, {"model": "m", "messages": messages, "tools": [{"n": number % 2}]}, 200, {"r": number})
        for number, messages in enumerate(conversations)
    ]
    with ExchangeWriter(path) as writer:
        # In the order of the answers, which is not that of arrival.
        for each in reversed(written):
            writer.add(each)
    assert list(read_exchanges(path)) == written


def test_a_message_is_stored_once_however_often_it_is_sent(tmp_path: Path) -> None:
    long = user("x" * 10_000)
    with ExchangeWriter(tmp_path / "file") as writer:
        for each in exchanges(*[(body(long, user(str(number))), reply("ok")) for number in range(20)]):
            writer.add(each)
    assert (tmp_path / "file").stat().st_size < 20_000


def test_half_a_surrogate_pair_survives(tmp_path: Path) -> None:
    broken = json.loads('"\\ud83d"')
    with ExchangeWriter(tmp_path / "file") as writer:
        writer.add(exchanges((body(user(broken)), reply(broken)))[0])
    (found,) = read_exchanges(tmp_path / "file")
    assert found.body["messages"][0]["content"] == broken
    assert digest(broken) != digest("?")


def test_a_file_that_is_not_open_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="not open"):
        ExchangeWriter(tmp_path / "file").add(exchanges((body(), reply("ok")))[0])

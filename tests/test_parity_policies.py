"""Parity's own policy: every case is reachable, and is what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from bfcl_rollout.errors import SetupError
from bfcl_rollout.scripted.reply import completion

from parity.answers import from_policy
from parity.policies import CALLING, ENDING, cases

KV = ("core_memory_add", "core_memory_retrieve_all")
VECTOR = ("core_memory_add", "core_memory_update", "core_memory_retrieve_all")
REC_SUM = ("memory_append", "memory_retrieve")


def request(first: str, tools: tuple[str, ...], messages: list[dict[str, Any]]) -> dict[str, Any]:
    offered = [{"type": "function", "function": {"name": name}} for name in tools]
    return {"model": "cases", "messages": [{"role": "user", "content": first}, *messages], "tools": offered}


def replies(first: str, tools: tuple[str, ...], turns: int = 8) -> Iterator[dict[str, Any]]:
    """The messages of a rollout in which every call is executed."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        for _ in range(4):
            body = request(first, tools, messages)
            message = completion(cases(body), body)["choices"][0]["message"]
            yield message
            messages.append(message)
            messages += [
                {"role": "tool", "content": "ok", "tool_call_id": c["id"]} for c in message.get("tool_calls", [])
            ]
        messages.append({"role": "user", "content": f"turn {turn}"})


@pytest.mark.parametrize("tools", [KV, VECTOR, REC_SUM])
def test_every_case_comes_up(tools: tuple[str, ...]) -> None:
    seen = {
        json.dumps([m.get("content"), [c["function"] for c in m.get("tool_calls", [])]])
        for n in range(20)
        for m in replies(f"rollout {n}", tools)
    }
    assert len(seen) >= len(CALLING) + len(ENDING) - 1  # two endings are an empty text, with and without null
    text = "".join(seen)
    for wanted in (f"call {tools[0]}(now)", "send_email", "exit", "nonsense", "NaN", "never closed", "Grüße"):
        assert json.dumps(wanted)[1:-1] in text or json.dumps(json.dumps(wanted))[2:-2] in text, wanted


def test_three_calling_replies_and_one_that_ends_the_turn() -> None:
    kinds = ["".join("c" if m.get("tool_calls") and "never" not in str(m) else "e" for m in replies("x", KV))]
    for turn in range(8):
        assert kinds[0][turn * 4 : turn * 4 + 3] == "ccc"


def test_a_policy_that_does_not_exist_is_one_line() -> None:
    with pytest.raises(SetupError, match=r"no scripted policy named 'nobody'.*cases"):
        from_policy("nobody")


def test_official_bfcl_is_never_given_what_it_would_execute() -> None:
    for name in ("hostile", "scripted/hostile", "hostile:delay-1"):
        with pytest.raises(SetupError, match="would execute"):
            from_policy(name)


def test_a_policy_takes_no_options_here() -> None:
    with pytest.raises(SetupError, match="name the policy alone"):
        from_policy("recall:fault-500")

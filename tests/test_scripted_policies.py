"""The registry of policies, model names, and the wire forms of a reply."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from bfcl_rollout.scripted import POLICIES, Call, ModelNameError, Reply, UnknownPolicyError, policies, register, resolve
from bfcl_rollout.scripted.faults import Behaviour, Fault
from bfcl_rollout.scripted.policies import is_ours, names, parse_model
from bfcl_rollout.scripted.reply import chunks, completion, fingerprint, usage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from scripted_helpers import request

REPLIES = [
    Reply("Just a text, and a long one: " + "word " * 60),
    Reply(""),
    Reply(None),
    Reply("Text and an empty list.", ()),
    Reply(None, (Call.of("f", a=1), Call("g", "{broken"), Call("h", ""))),
    Reply("Both.", (Call.of("f", text="ä" * 200),)),
    Reply("Cut", cut=True),
    Reply("Fields", extra={"reasoning_content": "because", "x_vendor": {"a": [1]}}),
    Reply("First", alternatives=(Reply("second"), Reply(calls=(Call.of("f"),)))),
]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The registry, put back after the test."""
    copy = dict(POLICIES)
    monkeypatch.setattr(policies, "POLICIES", copy)
    return copy


def test_policies_are_found_with_and_without_prefix() -> None:
    for name in ("hostile", "misbehave", "recall", "text"):
        assert resolve(name) is resolve(f"scripted/{name}") is POLICIES[name]
        assert resolve(f"scripted/{name}:fault-500:after-2") is POLICIES[name]


def test_an_unknown_policy_is_named_with_those_that_exist() -> None:
    with pytest.raises(UnknownPolicyError) as caught:
        resolve("scripted/nonsense")
    message = str(caught.value)
    assert "'nonsense'" in message
    assert "\n" not in message
    assert all(f"scripted/{name}" in message for name in POLICIES)


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ("recall:fault", "'fault'"),
        ("recall:fault-nonsense", "nonsense"),
        ("recall:fault-200", "400 to 599"),
        ("recall:fault-status", "status"),
        ("recall:after-soon", "whole number"),
        ("recall:colour-red", "colour"),
    ],
)
def test_a_wrong_option_is_one_clear_line(model: str, complaint: str) -> None:
    with pytest.raises(ModelNameError) as caught:
        resolve(model)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_may_be_written_in_two_ways() -> None:
    expected = ("recall", Behaviour(Fault("stall"), after=3, delay_s=0.25))
    assert parse_model("scripted/recall:fault-stall:after-3:delay-250") == expected
    assert parse_model("recall?fault=stall&after=3&delay=250") == expected
    assert parse_model("recall:fault-429") == ("recall", Behaviour(Fault("status", 429)))


def test_a_fault_starts_after_so_many_assistant_messages() -> None:
    behaviour = parse_model("recall:fault-drop:after-2").behaviour
    assert behaviour.fault_for(request("kv", "a", "b")) is None
    assert behaviour.fault_for(request("kv", "a", "b", "c")) == Fault("drop")
    assert parse_model("recall").behaviour.fault_for(request("kv", "a", "b", "c")) is None


def test_a_registered_policy_is_used_and_keeps_its_name(registry: dict[str, Any]) -> None:
    def parrot(body: Any) -> Reply:
        return Reply("polly")

    register("parrot", parrot)
    assert resolve("scripted/parrot") is parrot
    assert "parrot" in names()
    with pytest.raises(ValueError, match="exists already"):
        register("parrot", parrot)
    with pytest.raises(ValueError, match="letters"):
        register("par:rot", parrot)


def test_policies_of_other_packages_are_loaded_when_asked_for(
    registry: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    far = EntryPoint("far", "bfcl_rollout.scripted.policies:text", policies.ENTRY_POINTS)
    monkeypatch.setattr(policies, "_installed", lambda: {"far": far})
    assert "far" in names()
    assert "far" not in registry
    assert resolve("scripted/far:fault-500") is policies.text
    assert registry["far"] is policies.text


def test_only_our_names_are_ours() -> None:
    assert is_ours("scripted/anything")
    assert is_ours("recall:fault-500")
    assert not is_ours("vendor/some-model:7b")


def test_the_text_policy_always_says_the_same() -> None:
    one, other = (policies.text(body) for body in (request("kv", "a"), request("rec_sum", "b", question=True)))
    assert one == other
    assert one.content
    assert one.calls is None


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_is_a_completion_and_the_same_when_streamed(reply: Reply) -> None:
    body = request("kv", "Hello")
    whole = completion(reply, body)
    ChatCompletion.model_validate(whole)
    pieces = list(chunks(reply, body, include_usage=True))
    for piece in pieces:
        ChatCompletionChunk.model_validate(piece)
    assert pieces[-1]["usage"] == whole["usage"]
    assert pieces[-1]["choices"] == []
    assert all("usage" not in piece for piece in pieces[:-1])
    for choice in whole["choices"]:
        assert joined(pieces, choice["index"]) == (choice["message"], choice["finish_reason"])


def joined(pieces: list[dict[str, Any]], index: int) -> tuple[dict[str, Any], str]:
    """The message that streamed pieces of one choice add up to, and its finish reason."""
    message: dict[str, Any] = {}
    reason = ""
    for piece in pieces:
        for choice in piece["choices"]:
            if choice["index"] != index:
                continue
            reason = choice["finish_reason"] or reason
            for key, value in choice["delta"].items():
                if key == "content" and message.get("content") is not None:
                    message["content"] += value
                elif key == "tool_calls":
                    calls = message.setdefault("tool_calls", [])
                    for call in value:
                        if "id" in call:
                            calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
                        else:
                            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
                else:
                    message[key] = value
    return message, reason


def test_usage_counts_what_is_said_and_not_how_it_is_written() -> None:
    body = request("kv", "Grüße")
    rewritten = json.loads(json.dumps(body, ensure_ascii=False, indent=2, sort_keys=True))
    reply = Reply("x" * 400)
    assert usage(reply, body) == usage(reply, rewritten)
    assert usage(reply, body)["completion_tokens"] == 101
    longer = request("kv", "Grüße" + "y" * 400)
    assert usage(reply, longer)["prompt_tokens"] - usage(reply, body)["prompt_tokens"] == 100
    for counts in (usage(reply, body), usage(REPLIES[-1], body)):
        assert counts["prompt_tokens"] + counts["completion_tokens"] == counts["total_tokens"]


def test_fingerprints_tell_requests_apart() -> None:
    bodies = [request("kv", "a"), request("kv", "b"), request("kv", "a", "b"), request("kv", "a", model="other")]
    assert len({fingerprint(body) for body in bodies}) == len(bodies)

"""The misbehaving policy does everything wrong that it claims to, reproducibly; the hostile one attacks."""

from __future__ import annotations

import builtins
import copy
import importlib
import json
import keyword
from collections import Counter
from typing import Any

import pytest
from bfcl_rollout.scripted import Call, Reply, hostile, misbehave
from bfcl_rollout.scripted.conversation import read
from bfcl_rollout.scripted.misbehave import KINDS, PROPER, RUNAWAY
from bfcl_rollout.scripted.reply import completion
from openai.types.chat import ChatCompletion
from scripted_helpers import MESSAGES, Backend, answered, is_object, play_turn, request

BACKENDS: tuple[Backend, ...] = ("kv", "vector", "rec_sum")
PROMPTING_LACKS = {
    "invalid_json", "empty_arguments", "list_arguments", "null_arguments", "number_arguments", "string_arguments",
    "double_encoded_arguments", "not_a_number", "odd_arguments", "keyword_argument", "bad_call_in_good_batch",
}  # fmt: skip
ODD_NAMES = {"core_memory_append", "search_memory", "archival_memory_export", "memory_summarise"}
PRIVATE_NAMES = {"_flush_memory_to_local_file", "_dump_core_memory_to_context", "_load_scenario"}


def conversations(*, prompting: bool) -> list[dict[str, Any]]:
    """Many requests: sessions and questions, first steps and later ones."""
    found = []
    for backend in BACKENDS:
        for number in range(120):
            text = f"{MESSAGES[number % len(MESSAGES)]} That was note {number}."
            for question in (False, True):
                body = request(backend, text, question=question, prompting=prompting)
                found.append(body)
                if prompting:
                    results = [{"role": "tool", "name": "memory_retrieve()", "content": '{"memory_content": "x"}'}]
                    late = [{"role": "assistant", "content": "[...]"}, {"role": "user", "content": repr(results)}]
                    found.append(body | {"messages": [*body["messages"], *late]})
                else:
                    found.append(play_turn(misbehave.misbehave, body, most=2)[1])
    return found


@pytest.fixture(scope="module")
def choices() -> list[tuple[dict[str, Any], misbehave.Choice]]:
    return [(body, misbehave.choose(body)) for body in conversations(prompting=False)]


def calls_of(reply: Reply) -> list[Call]:
    return [call for choice in reply.choices for call in choice.calls or ()]


def test_every_kind_occurs_with_native_calls(choices: list[tuple[dict[str, Any], misbehave.Choice]]) -> None:
    seen = Counter(choice.kind for _, choice in choices)
    assert set(seen) == set(KINDS) - {"written_call"} | {RUNAWAY, PROPER}
    assert 0.3 < seen[PROPER] / len(choices) < 0.7


def test_every_kind_that_has_a_counterpart_occurs_in_prompting_mode() -> None:
    seen = {misbehave.choose(body).kind for body in conversations(prompting=True)}
    assert seen == set(KINDS) - PROMPTING_LACKS | {RUNAWAY, PROPER}


def test_replies_are_functions_of_the_request(choices: list[tuple[dict[str, Any], misbehave.Choice]]) -> None:
    for body, choice in choices[::7]:
        before = copy.deepcopy(body)
        again = json.loads(json.dumps(body, indent=1, sort_keys=True))
        assert misbehave.misbehave(again) == choice.reply
        assert completion(choice.reply, again) == completion(choice.reply, body)
        assert body == before


def test_replies_are_well_formed_completions(choices: list[tuple[dict[str, Any], misbehave.Choice]]) -> None:
    for body, choice in choices:
        parsed = ChatCompletion.model_validate(completion(choice.reply, body))
        calls = [call for each in parsed.choices for call in each.message.tool_calls or ()]
        assert len({call.id for call in calls}) == len(calls)


def test_ids_of_calls_are_unique_over_a_conversation() -> None:
    total = 0
    for backend in BACKENDS:
        for number in range(40):
            _, body = play_turn(misbehave.misbehave, request(backend, f"Note {number}: {MESSAGES[0]}"))
            turn = [call["id"] for message in body["messages"] for call in message.get("tool_calls") or ()]
            assert len(set(turn)) == len(turn)
            total += len(turn)
    assert total > 300


def test_only_offered_or_nowhere_defined_tools_are_called(
    choices: list[tuple[dict[str, Any], misbehave.Choice]],
) -> None:
    every_tool = {
        backend: {name for name in vars(_backend_class(backend)) if not name.startswith("_")} for backend in BACKENDS
    }
    allowed = ODD_NAMES | PRIVATE_NAMES | set().union(*every_tool.values())
    assert not ODD_NAMES & set().union(*every_tool.values())
    for _, choice in choices:
        for call in calls_of(choice.reply):
            assert call.name in allowed
            assert call.name not in vars(builtins)
            for key in json.loads(call.arguments) if is_object(call.arguments) else ():
                assert key.isidentifier()
                assert not keyword.iskeyword(key) or choice.kind == "keyword_argument"


def _backend_class(backend: Backend) -> type:
    from bfcl_rollout.official import project_root

    if backend == "vector":  # importing it loads the encoder; its methods are those of its tools
        names = ("add", "remove", "update", "clear", "retrieve", "retrieve_all")
        return type(
            "MemoryAPI_vector", (), {f"{kind}_memory_{name}": None for name in names for kind in ("core", "archival")}
        )
    with project_root():
        module = importlib.import_module(f"bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_{backend}")
    found: type = getattr(module, f"MemoryAPI_{backend}")
    return found


def test_each_kind_is_what_it_says(choices: list[tuple[dict[str, Any], misbehave.Choice]]) -> None:
    by_kind: dict[str, list[Reply]] = {}
    for _, choice in choices:
        by_kind.setdefault(choice.kind, []).append(choice.reply)

    def arguments(kind: str) -> list[Any]:
        return [json.loads(call.arguments) for reply in by_kind[kind] for call in calls_of(reply)]

    assert not any(is_object(call.arguments) for reply in by_kind["invalid_json"] for call in calls_of(reply))
    assert all(call.arguments == "" for reply in by_kind["empty_arguments"] for call in calls_of(reply))
    assert all(isinstance(each, list) for each in arguments("list_arguments"))
    assert all(each is None for each in arguments("null_arguments"))
    assert all(isinstance(each, int | float) for each in arguments("number_arguments"))
    assert all(isinstance(each, str) for each in arguments("string_arguments"))
    assert all(isinstance(json.loads(each), dict) for each in arguments("double_encoded_arguments"))
    assert all(each == {} for each in arguments("missing_argument"))
    assert {"0", "3"} == {value for each in arguments("string_id") for value in each.values() if value in ("0", "3")}
    assert all(reply.content and reply.calls for reply in by_kind["text_with_calls"])
    assert all(reply.content == "" and reply.calls is None for reply in by_kind["empty_text"])
    assert all(reply.content is None and reply.calls is None for reply in by_kind["null_text"])
    assert all(reply.content and reply.calls == () for reply in by_kind["empty_tool_calls"])
    assert all(len(reply.choices) > 1 for reply in by_kind["several_choices"])
    assert all("reasoning_content" in reply.extra for reply in by_kind["extra_fields"])
    assert all(len(set(calls_of(reply))) < len(calls_of(reply)) for reply in by_kind["duplicate_calls"])
    assert all(" (now)" in call.arguments for reply in by_kind["tool_name_in_text"] for call in calls_of(reply))
    for reply in by_kind["bad_call_in_good_batch"]:
        good = [is_object(call.arguments) for call in calls_of(reply)]
        assert True in good
        assert False in good
    for reply in by_kind["odd_arguments"]:
        (call,) = calls_of(reply)
        assert json.dumps(json.loads(call.arguments)) != call.arguments


def test_a_runaway_goes_on_past_the_step_limit_and_ends_by_itself() -> None:
    lengths = []
    for number in range(100):
        body = request("rec_sum", f"Note {number}")
        if misbehave.choose(body).kind == RUNAWAY:
            replies, _ = play_turn(misbehave.misbehave, body)
            lengths.append(len(replies))
    assert lengths
    assert all(22 < length < 60 for length in lengths)


def test_after_a_few_bad_steps_it_behaves() -> None:
    for number in range(200):
        body = request("rec_sum", f"Note {number}")
        for _ in range(4):
            body = answered(body, Reply(calls=(Call.of("memory_retrieve"),)), ["{}"])
        assert misbehave.choose(body).kind in (PROPER, RUNAWAY)


def test_every_turn_ends() -> None:
    for policy in (misbehave.misbehave, hostile.hostile):
        for backend in BACKENDS:
            for number in range(60):
                for output in ('{"error": "Memory is full."}', "Error during execution: x", "", "{}"):
                    replies, _ = play_turn(policy, request(backend, f"Note {number}"), output)
                    assert len(replies) < 60


def test_the_empty_text_is_replaced_only_in_a_small_memory(
    choices: list[tuple[dict[str, Any], misbehave.Choice]],
) -> None:
    exploding = [body for body, choice in choices if choice.kind == "replace_nothing"]
    assert exploding
    for body in exploding:
        text = body["messages"][-1]["content"]
        large = request("rec_sum", text, memory="word " * 1000, question="answer" in body["messages"][0]["content"])
        assert misbehave.choose(large).kind != "replace_nothing"


def test_tool_results_do_not_change_the_kind() -> None:
    def kinds(text: str, output: str) -> list[str]:
        found: list[str] = []

        def policy(body: Any) -> Reply:
            kind, reply = misbehave.choose(body)
            found.append(kind)
            return reply

        play_turn(policy, request("vector", text), output)
        return found

    for number in range(60):
        text = f"Note {number}"
        assert kinds(text, '{"id": 0}')[:2] == kinds(text, '{"id": 1}')[:2]


@pytest.mark.parametrize("prompting", [False, True])
def test_every_attack_occurs(prompting: bool) -> None:
    attacks = Counter(
        hostile.choose(request(backend, f"Note {number}", prompting=prompting)).attack
        for backend in BACKENDS
        for number in range(400)
    )
    assert set(attacks) == {*hostile.NAMES, *hostile.VALUES, *(hostile.TEXTS if prompting else ())}


def test_attacks_are_well_formed_completions() -> None:
    for prompting in (False, True):
        for number in range(300):
            body = request("kv", f"Note {number}", prompting=prompting)
            reply = hostile.hostile(body)
            assert reply == hostile.hostile(copy.deepcopy(body))
            ChatCompletion.model_validate(json.loads(json.dumps(completion(reply, body))))
            assert (reply.calls is None) is prompting


def test_attacks_write_nothing_but_the_marker() -> None:
    for text in [*(call.name + call.arguments for call in hostile.NAMES.values()), *hostile.TEXTS.values()]:
        if "open" in text or "touch" in text:
            assert hostile.MARKER in text


def test_a_hostile_answer_tells_what_the_calls_returned() -> None:
    for number in range(50):
        replies, last = play_turn(hostile.hostile, request("kv", f"Q{number}", question=True), "the secret")
        if len(read(last).turn.steps) == 3:
            assert "the secret" in (replies[-1].content or "")
            break
    else:
        pytest.fail("no turn was played to its end")

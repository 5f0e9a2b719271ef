"""What a model writes, through BFCL's own loop: each line is one place where this suite differs from it on purpose,
or one corner of it that must not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout import official, pool
from bfcl_rollout.records import GradeSpec, Limits, RolloutRecord, RolloutSpec
from endpoint_helpers import Endpoint, calls, endpoint, says

FIRST = "memory_{}_prereq_32-notetaker-0"
QUESTION = "memory_{}_130-notetaker-0"


def play(workers: pool.WorkerPool, at: Endpoint, backend: str = "kv", **changes: object) -> RolloutRecord:
    fields: dict[str, object] = {
        "entry_id": FIRST.format(backend),
        "category": f"memory_{backend}",
        "model": "canned",
        "endpoint": at.url,
        "secret": "s",
    }
    return asyncio.run(workers.play(RolloutSpec.model_validate(fields | changes)))


def first_results(record: RolloutRecord) -> list[str]:
    return record.turns[0].steps[0].results


KV_MEMORY = json.dumps({"core_memory": {"name": "Ann"}, "archival_memory": {}})


def question(workers: pool.WorkerPool, at: Endpoint) -> RolloutRecord:
    return play(workers, at, entry_id=QUESTION.format("kv"), memory=KV_MEMORY)


# --- hostile names: nothing is evaluated, and the model reads what an unknown name officially gets -------------------

ANSWERS = "__import__('pathlib').Path(__import__('bfcl_eval').__file__).parent.joinpath('data/possible_answer')"


@pytest.mark.parametrize(
    ("name", "arguments", "result"),
    [
        ("open('escaped', 'w').write", {}, "name 'open' is not defined"),
        ("open", {"file": "escaped", "mode": "w"}, "name 'open' is not defined"),
        ("core_memory_add", {"key": "a", "value=open('escaped','w') or 'a'": "x"}, None),
        (f"str(list({ANSWERS}.iterdir()))or", {}, None),
        ("globals().keys", {}, "name 'globals' is not defined"),
        ("setattr(globals(), 'x', 1) or print", {}, None),
        ("exit", {}, "Function call exit is not allowed."),
        ("(exit)", {}, "name 'exit' is not defined"),
        ("__import__('sys').exit", {}, None),
        ("_flush_memory_to_local_file", {}, "name '_flush_memory_to_local_file' is not defined"),
        ("help", {}, "name 'help' is not defined"),
        ("nobody", {"a": 1}, "name 'nobody' is not defined"),
    ],
)
def test_hostile_names_are_answered_and_not_evaluated(
    workers: pool.WorkerPool, name: str, arguments: dict[str, Any], result: str | None
) -> None:
    with endpoint(calls((name, arguments)), says("done")) as at:
        record = play(workers, at)
    (answer,) = first_results(record)
    assert answer.startswith("Error during execution: ")
    if result is not None:
        assert answer == f"Error during execution: {result}"
    assert record.turns[0].steps[0].blocked == [0]
    assert record.memory == json.dumps({"core_memory": {}, "archival_memory": {}}, indent=4)
    golds = (official.package_dir() / "data" / "possible_answer" / "BFCL_v4_memory.json").read_text()
    assert not any(line in record.model_dump_json() for line in golds.splitlines()[:5])
    assert not Path("escaped").exists()


def test_values_stay_values(workers: pool.WorkerPool) -> None:
    text = "'); open('escaped', 'w') #"
    with endpoint(calls(("core_memory_add", {"key": "a", "value": text})), says("done")) as at:
        record = play(workers, at)
    assert record.memory is not None
    assert json.loads(record.memory)["core_memory"] == {"a": text}


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        ("[core_memory_add(key='a', value=open('escaped', 'w') + 1)]", "name 'open' is not defined"),
        ("[core_memory_add(key='a', value=9 ** 9 ** 9)]", "invalid syntax"),
        ("[core_memory_add(key='a', value='x' * 10 ** 9)]", "can't multiply"),
    ],
)
def test_arithmetic_in_the_prompting_form_is_bounded(workers: pool.WorkerPool, reply: str, error: str) -> None:
    with endpoint(says(reply)) as at:
        record = play(workers, at, mode="prompting")
    (step,) = record.turns[0].steps
    assert step.decoded is None
    assert step.error is not None
    assert error in step.error


def test_plain_arithmetic_in_the_prompting_form_is_computed(workers: pool.WorkerPool) -> None:
    with endpoint(says("[core_memory_add(key='a', value=2 * 3 + 1)]"), says("done")) as at:
        record = play(workers, at, mode="prompting")
    assert record.memory is not None
    assert json.loads(record.memory)["core_memory"] == {"a": "7"}


def test_nested_calls_of_the_prompting_form_run(workers: pool.WorkerPool) -> None:
    with endpoint(says("[core_memory_add(key='a', value=core_memory_list_keys(x='1'))]"), says("done")) as at:
        record = play(workers, at, mode="prompting")
    (result,) = first_results(record)
    assert "core_memory_list_keys() got an unexpected keyword argument 'x'" in result
    assert record.turns[0].steps[0].blocked == []


# --- bounds ----------------------------------------------------------------------------------------------------------


def test_rec_sum_cannot_be_blown_up(workers: pool.WorkerPool) -> None:
    grow = calls(("memory_replace", {"old_text": "", "new_text": "12345678"}))
    with endpoint(calls(("memory_append", {"text": "abc"})), *[grow] * 12, says("done")) as at:
        record = play(workers, at, "rec_sum")
    assert record.memory is not None
    assert len(json.loads(record.memory)["memory"]) <= 1_000_000
    results = [result for step in record.turns[0].steps for result in step.results]
    assert results.count('{"status": "Memory updated."}') == 5
    assert results[-1] == "Error during execution: "


def test_the_bounded_method_reads_as_the_official_one(workers: pool.WorkerPool) -> None:
    with endpoint(calls(("memory_replace", {"text": "a"}), ("memory_replace", {})), says("done")) as at:
        record = play(workers, at, "rec_sum")
    assert first_results(record) == [
        "Error during execution: MemoryAPI_rec_sum.memory_replace() got an unexpected keyword argument 'text'",
        "Error during execution: MemoryAPI_rec_sum.memory_replace() missing 2 required positional arguments: "
        "'old_text' and 'new_text'",
    ]


def test_calls_that_take_too_long_get_an_error_text(workers: pool.WorkerPool) -> None:
    # Backtracking in BFCL's own key format check: one call of many seconds, in Python's regular expressions.
    slow = calls(("core_memory_add", {"key": "a" * 40 + "!", "value": "x"}))
    busy = calls(*[("archival_memory_key_search", {"query": "a b " * 20000, "k": 5})] * 50)
    fill = calls(*[("archival_memory_add", {"key": f"key_{n}", "value": "v"}) for n in range(50)])
    with endpoint(fill, busy, slow, says("done")) as at:
        record = play(workers, at, limits=Limits(call_s=0.2))
    results = record.turns[0].steps[1].results
    assert "Error during execution: tool calls took longer than 0.2 s" in results


# --- corners of BFCL that must stay as they are ----------------------------------------------------------------------


def test_an_empty_list_of_calls_loses_the_text(workers: pool.WorkerPool) -> None:
    with endpoint(says("the answer is 42") | {"tool_calls": []}) as at:
        record = question(workers, at)
    assert record.result() == [[[]]]
    assert record.graded_message == []


@pytest.mark.parametrize("arguments", ["", "[]", "null", "7", "{'a': 1}", '{"a": 1'])
def test_arguments_that_are_no_object_end_the_turn(workers: pool.WorkerPool, arguments: str) -> None:
    good = ("core_memory_add", '{"key": "a", "value": "b"}')
    with endpoint(calls(good, ("core_memory_add", arguments))) as at:
        record = question(workers, at)
    (turn,) = record.turns
    (step,) = turn.steps
    assert step.error is not None
    assert record.graded_message == [{"core_memory_add": good[1]}, {"core_memory_add": arguments}]
    assert record.memory is not None
    assert json.loads(record.memory) == json.loads(KV_MEMORY)


def test_a_turn_has_21_steps_and_a_session_that_runs_away_still_writes(workers: pool.WorkerPool) -> None:
    with endpoint(calls(("core_memory_add", {"key": "a", "value": "b"}))) as at:
        record = play(workers, at)
    assert record.force_quit
    assert [len(turn.steps) for turn in record.turns] == [21]
    assert record.memory is not None
    assert json.loads(record.memory)["core_memory"] == {"a": "b"}
    assert record.graded_message is None


def test_stored_text_is_rewritten_where_it_looks_like_a_call(workers: pool.WorkerPool) -> None:
    stored = "foo (bar) and core_memory_clear (now)"
    with endpoint(calls(("core_memory_add", {"key": "a", "value": stored})), says("done")) as at:
        record = play(workers, at)
    assert record.memory is not None
    instance = f"canned_{FIRST.format('kv')}_MemoryAPI_kv_instance".replace("-", "_")
    assert json.loads(record.memory)["core_memory"]["a"] == f"foo(bar) and {instance}.core_memory_clear(now)"


@pytest.mark.parametrize("model", ["7b", "a b", "x@y", "a+b", "a~b", "a=b", "a#b", "modèle"])
def test_a_model_name_that_is_no_identifier_still_plays(workers: pool.WorkerPool, model: str) -> None:
    with endpoint(calls(("core_memory_add", {"key": "a", "value": "b"})), says("done")) as at:
        record = play(workers, at, model=model)
    assert first_results(record) == ['{"status": "Key-value pair added."}']
    assert {request["model"] for request in at.requests} == {model}


def test_the_request_is_exactly_bfcls(workers: pool.WorkerPool) -> None:
    with endpoint(says("done")) as at:
        question(workers, at)
    (body,) = at.requests
    assert list(body) == ["messages", "model", "store", "temperature", "tools"]
    assert (body["store"], body["temperature"]) == (False, 0.001)
    assert "response" in body["tools"][0]["function"]
    assert body["tools"][0]["function"]["description"].endswith(
        "Note that the provided function is in Python 3 syntax."
    )
    assert '"name": "Ann"' in body["messages"][0]["content"]


def test_unknown_fields_of_a_reply_are_echoed(workers: pool.WorkerPool) -> None:
    odd = calls(("core_memory_add", '{ "value":"é" ,"key" : "a"}'), content="text") | {"reasoning_content": "hm"}
    with endpoint(odd, says("done")) as at:
        record = question(workers, at)
    echoed = at.requests[1]["messages"][-2]
    assert echoed == odd
    assert record.turns[0].steps[0].raw == [{"core_memory_add": '{ "value":"é" ,"key" : "a"}'}]


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_reply_has_no_message_to_grade(workers: pool.WorkerPool, content: str | None) -> None:
    with endpoint(says(content)) as at:
        record = question(workers, at)
    fields = {"entry_id": record.test_id, "category": "memory_kv", "mode": "fc", "model": "m"}
    verdict = asyncio.run(workers.grade(GradeSpec.model_validate(fields | {"result": record.result()})))
    assert verdict.error_type == "agentic:no_last_message"


def test_deeply_nested_arguments_end_the_turn(workers: pool.WorkerPool) -> None:
    deep = '{"key": ' + "[" * 100_000 + "]" * 100_000 + "}"
    with endpoint(calls(("core_memory_add", deep))) as at:
        record = question(workers, at)
    assert record.turns[0].steps[0].error is not None

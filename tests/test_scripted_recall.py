"""The policy `recall`: reading requests, finding sentences, and playing BFCL's own memory benchmark."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout import official, pool
from bfcl_rollout.records import GradeSpec, Mode, RolloutRecord, RolloutSpec, Verdict
from bfcl_rollout.scripted import Call, Reply, ScriptedServer, recall_kv
from bfcl_rollout.scripted.conversation import read, say, written
from bfcl_rollout.scripted.notes import (
    ARCHIVAL_LENGTH,
    SUMMARY_LENGTH,
    condense,
    core_in_prompt,
    memory_in_prompt,
    split,
)
from bfcl_rollout.scripted.recall import is_question, recall
from bfcl_rollout.scripted.retrieval import best_sentences, stems
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_helpers import MESSAGES, Backend, answered, play_turn, request

EMPTY_STORE = '{"keys": []}'


def names(reply: Reply) -> list[str]:
    return [call.name for call in reply.calls or ()]


def arguments(reply: Reply, index: int = 0) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads((reply.calls or ())[index].arguments)
    return parsed


# Reading requests


def test_both_forms_of_a_request_read_the_same() -> None:
    native = request("kv", MESSAGES[0], MESSAGES[1])
    native = answered(native, Reply(calls=(Call.of("core_memory_add", key="a", value="it's"),)), ['{"status": "ok"}'])
    results = [{"role": "tool", "name": "core_memory_add(key='a', value=\"it's\")", "content": '{"status": "ok"}'}]
    prompted = request("kv", MESSAGES[0], MESSAGES[1], prompting=True)
    prompted["messages"] += [
        {"role": "assistant", "content": "[core_memory_add(key='a', value=\"it's\")]"},
        {"role": "user", "content": repr(results)},
    ]
    one, other = read(native), read(prompted)
    assert one.turns == other.turns
    assert one.tools == other.tools
    assert (one.mode, other.mode) == ("fc", "prompting")
    assert one.turn.text == MESSAGES[1]
    assert one.results[0].arguments == {"key": "a", "value": "it's"}
    assert not one.results[0].failed


def test_a_call_that_was_not_answered_has_no_result() -> None:
    body = request("kv", MESSAGES[0])
    broken: dict[str, Any] = {"id": "x", "type": "function", "function": {"name": "core_memory_add", "arguments": "{"}}
    body["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": [broken]},
        {"role": "user", "content": MESSAGES[1]},
    ]
    conversation = read(body)
    assert [turn.text for turn in conversation.turns] == [MESSAGES[0], MESSAGES[1]]
    assert conversation.results == []


def test_calls_are_written_as_text_in_prompting_mode() -> None:
    call = Call.of("core_memory_add", key="a", value='it\'s "x"')
    assert written(call) == "core_memory_add(key='a', value='it\\'s \"x\"')"
    assert say(read(request("kv", "a", prompting=True)), [call, call]).content == f"[{written(call)}, {written(call)}]"
    assert say(read(request("kv", "a")), [call]).calls == (call,)


def test_a_question_is_told_from_a_session_by_its_system_prompt() -> None:
    for prompting in (False, True):
        assert is_question(read(request("kv", "What is my name?", question=True, prompting=prompting)))
        assert not is_question(read(request("kv", "What is my name?", prompting=prompting)))


def test_the_memory_in_the_system_prompt_is_found() -> None:
    body = request("kv", "a", memory=json.dumps({"profile_1": "Alice", "b": "Größe"}, indent=4), question=True)
    assert core_in_prompt(read(body)) == {"profile_1": "Alice", "b": "Größe"}
    body = request("rec_sum", "a", memory="line one\nline two", question=True)
    assert memory_in_prompt(read(body)) == "line one\nline two"
    empty = request("kv", "a", memory="There is no content in the core memory at this point.")
    assert core_in_prompt(read(empty)) == {}


# Finding sentences


def test_the_sentence_that_answers_is_found() -> None:
    expected = {
        "How much did the bicycle cost?": "340",
        "What did the dentist find?": "cavities",
        "When was the meeting moved to?": "Thursday",
        "What is the name of my tortoise?": "Sheldon",
        "Which tablets are for my allergy?": "loratadine",
    }
    for question, word in expected.items():
        found = best_sentences(question, MESSAGES, 150)
        assert word in " ".join(found)
        assert sum(map(len, found)) <= 150


def test_nothing_is_found_without_a_shared_word() -> None:
    assert best_sentences("Zebras?", MESSAGES, 200) == []
    assert best_sentences("", MESSAGES, 200) == []
    assert best_sentences("What?", [], 200) == []


def test_word_forms_share_a_stem() -> None:
    assert len(set(stems("adopt adopted adopting adopts"))) == 1
    assert stems("the of and") == []


def test_sentences_share_a_piece_only_where_both_fit() -> None:
    assert split("Aa. Bb.", 7) == ["Aa. Bb."]
    assert split("Aa. Bb.", 6) == ["Aa.", "Bb."]


@settings(deadline=None)
@given(st.text(max_size=3000), st.integers(20, 500))
def test_pieces_fit_and_lose_no_word(text: str, length: int) -> None:
    pieces = split(text, length)
    assert all(0 < len(piece) <= length for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


@settings(deadline=None)
@given(st.text(max_size=3000), st.integers(0, 800))
def test_a_condensed_text_fits_and_holds_only_what_was_there(text: str, length: int) -> None:
    short = condense(text, length)
    assert len(short) <= length
    assert all(line in text for line in short.split("\n"))


@settings(deadline=None)
@given(st.text(max_size=300), st.integers(1, 99))
def test_keys_have_the_format_that_the_backend_demands(text: str, number: int) -> None:
    from bfcl_rollout.official import project_root

    with project_root():
        from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_kv import MemoryAPI_kv

    key = recall_kv.make_key(number, text)
    assert MemoryAPI_kv._is_valid_key_format(key)
    assert "\n" not in key
    assert len(key) < 1000 or len(text) > 100


# Single requests


def test_without_a_memory_it_says_so() -> None:
    reply = recall({"model": "recall", "messages": [{"role": "user", "content": "Hi"}]})
    assert reply.content
    assert reply.calls is None


def test_a_key_value_session_lists_then_writes_then_ends() -> None:
    body = request("kv", MESSAGES[0])
    first = recall(body)
    assert names(first) == ["archival_memory_list_keys"]
    body = answered(body, first, [EMPTY_STORE])
    second = recall(body)
    assert names(second) == ["core_memory_add", "archival_memory_add"]
    assert MESSAGES[0] in arguments(second, 1)["value"]
    body = answered(body, second, ['{"status": "Key-value pair added."}', '{"status": "Key added."}'])
    assert recall(body).calls is None


def test_a_second_message_extends_the_note() -> None:
    body = request("kv", MESSAGES[0])
    for outputs in ([EMPTY_STORE], ['{"status": "ok"}'] * 2):
        body = answered(body, recall(body), outputs)
    body["messages"] += [{"role": "assistant", "content": "Noted."}, {"role": "user", "content": MESSAGES[1]}]
    reply = recall(body)
    assert names(reply) == ["archival_memory_remove", "archival_memory_add"]
    assert arguments(reply, 1)["value"] == f"{MESSAGES[0]} {MESSAGES[1]}"
    assert arguments(reply, 0)["key"] != arguments(reply, 1)["key"]


def test_a_later_session_continues_the_last_note() -> None:
    body = request("kv", MESSAGES[1], memory='{"profile_1": "x"}')
    body = answered(body, recall(body), ['{"keys": ["note_01_name", "note_02_bicycle"]}'])
    reply = recall(body)
    assert [(call.name, json.loads(call.arguments)) for call in reply.calls or ()] == [
        ("archival_memory_retrieve", {"key": "note_02_bicycle"})
    ]
    body = answered(body, reply, [json.dumps({"value": MESSAGES[0]})])
    assert "archival_memory_remove" in names(recall(body))


@pytest.mark.parametrize("backend", ["kv", "vector", "rec_sum"])
@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize(
    "output",
    [
        '{"error": "Long term memory is full. Please clear some entries."}',
        "Error during execution: division by zero",
        '{"result": [{"id": 0}, 3, null]}',
        '{"ranked_results": [[0.0, "a"], [1.5, "b"]], "keys": null}',
        '{"id": "x", "memory_content": 3, "value": null}',
        "[]",
        "",
    ],
)
def test_a_turn_ends_whatever_the_tools_say(backend: Backend, question: bool, output: str) -> None:
    replies, _ = play_turn(recall, request(backend, MESSAGES[0], MESSAGES[1], question=question), output)
    assert len(replies) <= 4
    assert replies[-1].calls is None


def test_a_full_summary_is_condensed() -> None:
    memory = " ".join(f"Fact {number} is that box {number} holds {number * 3} nails." for number in range(260))[:9990]
    body = request("rec_sum", MESSAGES[0], memory=memory)
    first = recall(body)
    assert names(first) == ["memory_retrieve"]  # appending could only fail
    body = answered(body, first, [json.dumps({"memory_content": memory})])
    second = recall(body)
    assert names(second) == ["memory_update"]
    assert len(arguments(second)["text"]) < SUMMARY_LENGTH - 1000
    assert "Alice" in arguments(second)["text"]
    assert recall(answered(body, second, ['{"status": "Memory updated."}'])).calls is None


def test_a_summary_that_is_unexpectedly_full_is_condensed() -> None:
    body = request("rec_sum", MESSAGES[0])
    body = answered(body, recall(body), ['{"error": "Entry will be too long after appending."}'])
    assert names(recall(body)) == ["memory_retrieve"]


def test_long_messages_are_cut_into_entries_that_fit() -> None:
    body = request("vector", " ".join(MESSAGES * 30))
    reply = recall(body)
    texts = [json.loads(call.arguments)["text"] for call in reply.calls or ()]
    assert len(texts) > 4
    assert all(len(text) <= ARCHIVAL_LENGTH for text in texts)


def test_an_answer_is_short_and_in_the_format_asked_for() -> None:
    memory = " ".join([*MESSAGES, *(f"Bicycle number {number} stood outside." for number in range(99))])
    body = request("rec_sum", "How much did the bicycle cost?", memory=memory, question=True)
    body = answered(body, recall(body), [json.dumps({"memory_content": memory})])
    reply = recall(body)
    assert reply.content is not None
    assert "340 euros" in reply.content
    assert reply.content.startswith("{'answer': ")
    assert len(reply.content) < 400 < len(memory)


def test_it_abstains_when_nothing_fits() -> None:
    body = request("vector", "Zebras?", question=True)
    body = answered(body, recall(body), ['{"result": []}'])
    assert recall(body).content == "{'answer': 'I do not know', 'context': 'I do not know'}"


def test_the_policy_knows_no_answer() -> None:
    """Nothing in the package's texts gives an answer away: no gold phrase of three words or more occurs in it."""
    source = " ".join(path.read_text() for path in Path(recall_kv.__file__).parent.glob("*.py")).lower()
    lines = (official.package_dir() / "data/possible_answer/BFCL_v4_memory.json").read_text().splitlines()
    golds = {gold.lower() for line in lines for gold in json.loads(line)["ground_truth"]}
    long = {gold for gold in golds if len(gold.split()) >= 2}
    assert len(long) > 30
    assert not {gold for gold in long if gold in source}


# BFCL's own benchmark


async def play_scenario(
    workers: pool.WorkerPool, server: ScriptedServer, backend: Backend, scenario: str, mode: Mode = "fc"
) -> list[Verdict]:
    """All sessions of a scenario in order, then the verdict of every question."""
    category = f"memory_{backend}"
    entries = [entry["id"] for entry in official.load_entries(category) if entry["scenario"] == scenario]
    entries.sort(key=lambda entry_id: int(entry_id.rsplit("-", 1)[1]))
    memory: str | None = None

    async def played(entry_id: str) -> RolloutRecord:
        spec = RolloutSpec(
            entry_id=entry_id,
            category=category,
            model="scripted/recall",
            endpoint=server.url,
            secret="s",
            mode=mode,
            memory=memory,
        )
        record = await workers.play(spec)
        assert not record.force_quit
        return record

    for entry_id in entries:
        if "prereq" in entry_id:
            memory = (await played(entry_id)).memory
    verdicts = []
    for entry_id in entries:
        if "prereq" not in entry_id:
            record = await played(entry_id)
            grade = GradeSpec(
                entry_id=entry_id, category=category, mode=mode, model="scripted/recall", result=record.result()
            )
            verdicts.append(await workers.grade(grade))
    return verdicts


def accuracy(verdicts: list[Verdict]) -> float:
    return sum(verdict.valid for verdict in verdicts) / len(verdicts)


@pytest.mark.parametrize(("backend", "mode"), [("kv", "fc"), ("rec_sum", "fc"), ("kv", "prompting")])
def test_it_answers_most_questions_of_a_scenario(
    workers: pool.WorkerPool, scripted: ScriptedServer, backend: Backend, mode: Mode
) -> None:
    verdicts = asyncio.run(play_scenario(workers, scripted, backend, "notetaker", mode))
    assert len(verdicts) == 25
    assert accuracy(verdicts) > 0.5


@pytest.mark.slow
def test_it_answers_most_questions_by_similarity(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    verdicts = asyncio.run(play_scenario(workers, scripted, "vector", "notetaker"))
    assert accuracy(verdicts) > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["kv", "rec_sum"])
def test_it_fills_a_memory_to_its_limit_and_still_answers(
    workers: pool.WorkerPool, scripted: ScriptedServer, backend: Backend
) -> None:
    """The longest scenario: 88,000 characters, which is nine times what the single text holds."""
    assert accuracy(asyncio.run(play_scenario(workers, scripted, backend, "student"))) > 0.2

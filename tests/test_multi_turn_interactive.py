"""The interactive protocol, played in a worker against an endpoint that says what a test tells it to."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from bfcl_multi_turn.interactive import hints, machine
from bfcl_multi_turn.interactive.log import interaction_log, read_call, turn_rewards
from bfcl_multi_turn.interactive.prompt import FUNCTIONS_MARKER
from bfcl_multi_turn.interactive.records import InteractionLog, ParsedCall
from bfcl_multi_turn.interactive.reply import action_text
from bfcl_rollout import pool
from bfcl_rollout.records import RolloutRecord
from credit_helpers import answer_text, think, tool_text
from credit_world_helpers import codes as reference_codes
from credit_world_helpers import gold_objects
from endpoint_helpers import Endpoint, endpoint, says
from multi_turn_helpers import golds, grade, interactive, official_entry, play_spec, script

BASE = "multi_turn_base_1"


def play(workers: pool.WorkerPool, at: Endpoint, entry_id: str = BASE, **options: Any) -> RolloutRecord:
    return asyncio.run(workers.play(play_spec(entry_id, at.url, **interactive(entry_id, **options))))


def log_of(workers: pool.WorkerPool, record: RolloutRecord, *, idle_gold: bool = True) -> InteractionLog:
    verdict = grade(workers, record.test_id, record.result(), calls=record.calls(), idle_gold=idle_gold)
    sampled = sum(len(turn.steps) for turn in record.turns)
    return interaction_log(record, verdict.details["turn_pass"], range(2, 2 + 2 * sampled, 2))


def gold_text(entry_id: str, turn: int) -> str:
    calls = script(entry_id).calls[turn]
    return tool_text(*[(call.name, json.loads(call.arguments)) for call in calls])


def gold_texts(entry_id: str) -> list[str]:
    """Every user turn in one action and an answer."""
    texts = []
    for turn, calls in enumerate(script(entry_id).calls):
        texts += [gold_text(entry_id, turn), answer_text()] if calls else [answer_text()]
    return texts


def user_messages(at: Endpoint) -> list[str]:
    return [message["content"] for message in at.requests[-1]["messages"] if message["role"] == "user"]


def test_the_accepted_calls_succeed(workers: pool.WorkerPool) -> None:
    with endpoint(*map(says, gold_texts(BASE))) as at:
        record = play(workers, at)
    log = log_of(workers, record)
    assert log.codes == [-1, 1] * 4
    assert log.progress == 1.0
    assert [step.node for step in log.interactions] == list(range(2, 18, 2))
    assert turn_rewards(record, log, 8) == [None, 1.0] * 4
    system = at.requests[0]["messages"][0]
    assert system["role"] == "system"
    assert system["content"].count(FUNCTIONS_MARKER) == 1
    names = [doc["name"] for doc in json.loads(system["content"].partition(FUNCTIONS_MARKER)[2])]
    assert {"cd", "mv", "tail"} <= set(names)
    assert "tools" not in at.requests[0]


SIX_CALLS = [tool_text(("pwd", {}))] * 6
FORMAT_ERRORS = ["no blocks", think(""), "<think>a</think><think>b</think>", think("<tool_call>{</tool_call>")]


@pytest.mark.parametrize(
    ("entry_id", "texts"),
    [
        (BASE, gold_texts(BASE)),
        (BASE, [answer_text()] * 4),
        (BASE, [*FORMAT_ERRORS, *gold_texts(BASE)]),
        (BASE, [*SIX_CALLS, *gold_texts(BASE)[2:]]),
        (BASE, [*["no blocks"] * 6, *gold_texts(BASE)[2:]]),
        (BASE, [*["no blocks"] * 5, gold_texts(BASE)[0], *gold_texts(BASE)[2:]]),
        (BASE, [tool_text(("nobody", {})), tool_text(("ls", {"b": 1})), *gold_texts(BASE)]),
        (BASE, [think("<tool_call>[]</tool_call>"), *gold_texts(BASE)[2:]]),
        (BASE, [think("<tool_call>42</tool_call>"), *gold_texts(BASE)[2:]]),
        (BASE, [tool_text(("ls", {"a": {}})), *gold_texts(BASE)[2:]]),
        ("multi_turn_miss_func_3", [tool_text(("pwd", {})), *gold_texts("multi_turn_miss_func_3")[1:]]),
        ("multi_turn_miss_func_3", gold_texts("multi_turn_miss_func_3")),
        ("multi_turn_base_167", gold_texts("multi_turn_base_167")),
    ],
)
def test_codes_are_those_of_an_independent_player(workers: pool.WorkerPool, entry_id: str, texts: list[str]) -> None:
    with endpoint(*map(says, texts)) as at:
        record = play(workers, at, entry_id)
    assert len(at.requests) == len(texts)
    assert log_of(workers, record).codes == reference_codes(entry_id, texts)


def test_a_published_rollout_comes_out_again(workers: pool.WorkerPool) -> None:
    # Offset 9 of the published group: five parse errors, then both calls in the sixth attempt, which closes the turn.
    entry_id = "multi_turn_base_156"
    assert [len(calls) for calls in golds(entry_id)] == [2, 1, 1, 2, 1]
    first, second = gold_objects(entry_id, 0)
    texts = [tool_text(first), tool_text(second), answer_text(), *gold_texts(entry_id)[2:6]]
    texts += [*["no blocks"] * 5, tool_text(*gold_objects(entry_id, 3))]
    (name, arguments), *_ = gold_objects(entry_id, 4)
    wrong = {key: value + 1 if isinstance(value, int) else value for key, value in arguments.items()}
    texts += [tool_text((name, wrong)), answer_text()]
    with endpoint(*map(says, texts)) as at:
        record = play(workers, at, entry_id)
    log = log_of(workers, record)
    assert log.codes == [-1, -1, 1, -1, 1, -1, 1, -3, -3, -3, -3, -3, 1, -1, 0]
    assert log.progress == 4 / 5


def test_results_and_format_errors_are_user_messages(workers: pool.WorkerPool) -> None:
    with endpoint(says("no blocks"), *map(says, gold_texts(BASE))) as at:
        record = play(workers, at)
    question, complaint, results, *_ = user_messages(at)
    assert question == record.turns[0].query[-1]["content"]
    assert complaint.startswith("The reply has no <think>")
    (shown,) = json.loads(results.splitlines()[0])
    assert shown == record.turns[0].steps[1].results[0]
    assert record.turns[0].steps[0].error == "missing_think"


def test_calls_where_none_is_right_are_refused(workers: pool.WorkerPool) -> None:
    entry_id = "multi_turn_miss_func_3"
    with endpoint(says(tool_text(("mkdir", {"dir_name": "x"}))), *map(says, gold_texts(entry_id)[1:])) as at:
        record = play(workers, at, entry_id)
    assert record.turns[0].steps[0].results == []
    second = record.turns[1].query[-1]["content"]
    assert second.startswith(machine.REFUSED_CALLS_FEEDBACK + "\n[{")
    assert second.endswith("I have updated some more functions you can choose from. What about now?")
    assert '"name": "find"' in second
    assert log_of(workers, record).turn_scores == [0, 1, 1]


def test_results_of_the_closing_attempt_are_not_shown(workers: pool.WorkerPool) -> None:
    with endpoint(*map(says, [*SIX_CALLS, *gold_texts(BASE)[2:]])) as at:
        record = play(workers, at)
    assert record.turns[0].steps[5].results != []
    question = official_entry(BASE)["question"][1][0]["content"]
    assert user_messages(at)[6] == record.turns[1].query[-1]["content"] == question


def test_a_forced_close_can_succeed(workers: pool.WorkerPool) -> None:
    texts = [*["no blocks"] * 5, gold_text(BASE, 0), *gold_texts(BASE)[2:]]
    with endpoint(*map(says, texts)) as at:
        log = log_of(workers, play(workers, at))
    assert log.codes[:6] == [-3] * 5 + [1]
    assert log.progress == 1.0


def test_a_truncated_generation_ends_the_rollout_where_it_stands(workers: pool.WorkerPool) -> None:
    cut = says("<think>and then") | {"finish_reason": "length"}
    with endpoint(*map(says, gold_texts(BASE)[:3]), cut) as at:
        record = play(workers, at)
    assert record.cut_off
    assert record.turns[-1].steps[-1].raw == "<think>and then"
    log = log_of(workers, record)
    assert log.turn_scores == [1, None, None, None]
    assert log.codes == [-1, 1, -1]
    assert log.progress == 1 / 4


def test_an_answer_of_calls_is_executed_unless_switched_off(workers: pool.WorkerPool) -> None:
    sly = answer_text(json.dumps({"name": "pwd", "arguments": {}}))
    texts = [says(sly), *map(says, gold_texts(BASE))]
    with endpoint(*texts) as at:
        assert log_of(workers, play(workers, at)).codes[:3] == [-1, -1, 1]
    with endpoint(texts[0], *texts[3:]) as at:
        record = play(workers, at, execute_json_answers=False)
    assert log_of(workers, record).codes[:2] == [0, -1]


@pytest.mark.parametrize("name", ["open", "dir", "globals", "eval", "_load_scenario", "help"])
def test_names_that_are_no_tools_are_undefined(workers: pool.WorkerPool, name: str) -> None:
    with endpoint(says(tool_text((name, {"file": "escaped"}))), *map(says, gold_texts(BASE))) as at:
        record = play(workers, at)
    assert record.turns[0].steps[0].results == [f"Error during execution: name {name!r} is not defined"]
    assert record.turns[0].steps[0].blocked == [0]
    assert log_of(workers, record).codes[0] == -2


def test_the_attempt_limit_can_be_chosen(workers: pool.WorkerPool) -> None:
    with endpoint(*map(says, [*SIX_CALLS[:2], *gold_texts(BASE)[2:]])) as at:
        record = play(workers, at, attempt_limit=1)
    assert [len(turn.steps) for turn in record.turns] == [2, 2, 2, 2]
    assert "at most 1 attempts" in at.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize("idle_gold", [True, False])
def test_skipping_a_turn_hides_it_only_behind_the_compatibility_option(
    workers: pool.WorkerPool, idle_gold: bool
) -> None:
    # Turn 1 moves a file into a new directory that later turns read.
    texts = [*gold_texts(BASE)[:2], answer_text(), *gold_texts(BASE)[4:]]
    with endpoint(*map(says, texts)) as at:
        record = play(workers, at)
    scores = log_of(workers, record, idle_gold=idle_gold).turn_scores
    assert scores[:2] == [1, 0]
    assert (scores == [1, 0, 0, 0]) is idle_gold


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "plain"}, "plain"),
        ({"content": None}, ""),
        ({"content": "<answer>a</answer>", "reasoning_content": "why"}, "<think>why</think>\n<answer>a</answer>"),
        ({"content": "<answer>a</answer>", "reasoning": "why"}, "<think>why</think>\n<answer>a</answer>"),
        (
            {"content": "<think>own</think><answer>a</answer>", "reasoning_content": "why"},
            "<think>own</think><answer>a</answer>",
        ),
        ({"content": "<answer>a</answer>", "reasoning_content": "  "}, "<answer>a</answer>"),
    ],
)
def test_reasoning_that_a_server_took_out_is_put_back(message: dict[str, Any], text: str) -> None:
    assert action_text(SimpleNamespace(**message)) == text


def test_calls_that_a_server_took_out_are_put_back() -> None:
    def call(name: str, arguments: str) -> Any:
        return SimpleNamespace(function=SimpleNamespace(name=name, arguments=arguments))

    one = SimpleNamespace(content=None, reasoning_content="r", tool_calls=[call("ls", '{"a": true}')])
    assert action_text(one) == '<think>r</think>\n<tool_call>{"name": "ls", "arguments": {"a": true}}</tool_call>'
    two = SimpleNamespace(content="", tool_calls=[call("ls", "{}"), call("pwd", "")])
    assert json.loads(action_text(two)[11:-12]) == [
        {"name": "ls", "arguments": {}},
        {"name": "pwd", "arguments": {}},
    ]
    broken = SimpleNamespace(content="", tool_calls=[call("ls", "{")])
    assert action_text(broken) == '<tool_call>{"name": "ls", "arguments": {}</tool_call>'


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("ls(a=True)", ParsedCall(call_idx=0, name="ls", arguments={"a": True})),
        ("a.b(x=(1, 2))", ParsedCall(call_idx=0, name="a.b", arguments={"x": [1, 2]})),
        ("f(x={1: b'y'})", ParsedCall(call_idx=0, name="f", arguments={"x": {"1": "b'y'"}})),
        ("f(1)", ParsedCall(call_idx=0, name="", valid=False)),
        ("f(x=nan)", ParsedCall(call_idx=0, name="", valid=False)),
        ("f(**x)", ParsedCall(call_idx=0, name="", valid=False)),
        ("not a call", ParsedCall(call_idx=0, name="", valid=False)),
    ],
)
def test_decoded_calls_are_read_without_evaluating(text: str, call: ParsedCall) -> None:
    assert read_call(0, text) == call


# --- error hints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry_id", "call", "plain", "hinted"),
    [
        (BASE, ("cat", {"file_name": "a/b.txt"}), "Invalid character", "is a path"),
        (BASE, ("cat", {"file_name": "workspace"}), "Is a directory", "is a directory, not a file"),
        (BASE, ("touch", {"file_name": "a?"}), "Invalid character", "forbidden character"),
        (BASE, ("diff", {"file_name1": "workspace", "file_name2": "none"}), "or none", "'none' does not exist"),
        (BASE, ("cat", {"file_name": "none"}), "No such file", None),
        ("multi_turn_base_50", ("get_outside_temperature_from_weather_com", {}), "404", "unavailable"),
        ("multi_turn_base_50", ("estimate_distance", {"cityA": "x", "cityB": "y"}), "not found", "zip code"),
        (
            "multi_turn_base_150",
            (
                "get_flight_cost",
                {"travel_from": "Paris", "travel_to": "SBK", "travel_date": "2027-01-01", "travel_class": "first"},
            ),
            "No available route",
            "the departure 'Paris' is not a valid airport code",
        ),
        (
            "multi_turn_base_150",
            ("compute_exchange_rate", {"base_currency": "XXX", "target_currency": "USD", "value": 1.0}),
            "No available exchange rate",
            "no rate for XXX to USD. Supported are USD with AUD",
        ),
    ],
)
def test_hints_reword_known_errors_and_change_nothing_else(
    workers: pool.WorkerPool, entry_id: str, call: tuple[str, dict[str, Any]], plain: str, hinted: str | None
) -> None:
    texts = [says(tool_text(call)), says(answer_text())]
    shown: dict[bool, str] = {}
    codes = []
    for error_hints in (False, True):
        with endpoint(*texts) as at:
            record = play(workers, at, entry_id, error_hints=error_hints)
        (shown[error_hints],) = record.turns[0].steps[0].results
        codes.append(log_of(workers, record).codes)
    assert plain in shown[False]
    assert shown[True] == shown[False] if hinted is None else hinted in shown[True]
    assert codes[0] == codes[1]
    assert shown[True].startswith(hints.RAISED) == shown[False].startswith(hints.RAISED)

"""Grading a conversation: the official verdict, each user turn's, and what a grader must never do."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout import pool
from bfcl_rollout.records import Execution
from multi_turn_helpers import Result, gold_result, golds, grade, grade_spec

ENTRIES = ["multi_turn_base_0", "multi_turn_miss_func_3", "multi_turn_miss_param_155", "multi_turn_long_context_38"]

# BFCL's own evaluation, in one process and without anything of ours around it.
REFERENCE = """
import json, sys
from bfcl_rollout.worker import upstream
with upstream._stub_modules():
    from bfcl_eval.eval_checker.eval_runner import _evaluate_single_multi_turn_entry
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler
from bfcl_eval.utils import load_dataset_entry, load_ground_truth_entry
handler = OpenAICompletionsHandler("m", 0.0, "m", True)
verdicts = []
for number, (entry_id, result, model) in enumerate(json.load(sys.stdin)):
    category = entry_id.rsplit("_", 1)[0]
    entry = next(e for e in load_dataset_entry(category, include_language_specific_hint=False) if e["id"] == entry_id)
    gold = next(e for e in load_ground_truth_entry(category) if e["id"] == entry_id)["ground_truth"]
    name = model or f"m{number}"
    outcome = _evaluate_single_multi_turn_entry(handler, entry_id, result, gold, entry, name, category)
    error = outcome.get("error", {})
    message = error.get("error_message")
    message = " ".join(message) if isinstance(message, list) else message
    verdicts.append([outcome["valid"], error.get("error_type"), message])
print(json.dumps(verdicts))
"""


def reference(tmp_path: Path, cases: list[tuple[str, Result | str, str | None]]) -> list[list[Any]]:
    env = os.environ | {"BFCL_PROJECT_ROOT": str(tmp_path), "OPENAI_API_KEY": "x", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", REFERENCE], input=json.dumps(cases), capture_output=True, text=True, env=env, check=True
    )
    loaded: list[list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return loaded


def variants(entry_id: str) -> dict[str, Result | str]:
    """A right result and many that are wrong in one way."""
    right = gold_result(entry_id)
    made: dict[str, Result | str] = {"gold": right, "error": "Error during inference: x", "no turns": []}
    called = [turn for turn, steps in enumerate(right) if len(steps) > 1]
    first, last = called[0], called[-1]

    def change(name: str, turn: int, steps: list[Any]) -> None:
        made[name] = [*right[:turn], steps, *right[turn + 1 :]]

    change("first turn without calls", first, ["Done."])
    change("last call dropped", last, [*right[last][:-2], "Done."])
    change("call made twice", first, [*right[first][:-1], right[first][-2], "Done."])
    change("steps reversed", last, [*right[last][-2::-1], "Done."])
    change("not JSON", last, [*right[last][:-2], [{"ls": "{"}], "Done."])
    change("unknown function", first, [[{"nobody": "{}"}], *right[first]])
    change("wrong argument", first, [[dict.fromkeys(right[first][0][0], '{"no_such_argument": 1}')], *right[first][1:]])
    change("a harmless call more", last, [*right[last][:-1], [{"ls": '{"a": true}'}], "Done."])
    change("empty replies", first, ["", None, [], *right[first]])
    made["one turn too few"] = right[:-1]
    made["one turn too many"] = [*right, ["Done."]]
    made["all calls in the first turn"] = [
        [step for steps in right for step in steps[:-1]] + ["Done."],
        *[["Done."]] * (len(right) - 1),
    ]
    return made


@pytest.mark.slow
@pytest.mark.parametrize("entry_id", ENTRIES)
def test_verdicts_are_bfcls_own(workers: pool.WorkerPool, tmp_path: Path, entry_id: str) -> None:
    made = variants(entry_id)
    expected = reference(tmp_path, [(entry_id, result, None) for result in made.values()])
    assert {verdict[1] for verdict in expected} > {None, "multi_turn:force_terminated"}
    for (name, result), official in zip(made.items(), expected, strict=True):
        verdict = grade(workers, entry_id, result)
        assert [verdict.valid, verdict.error_type, verdict.error_message] == official, name
    assert expected[0][0]


def test_every_turn_is_checked_whatever_came_before(workers: pool.WorkerPool) -> None:
    entry_id = "multi_turn_base_1"
    right = gold_result(entry_id)
    silent = [["Done."], *right[1:]]  # the first turn only looks
    verdict = grade(workers, entry_id, silent)
    assert (verdict.valid, verdict.error_type) == (False, "multi_turn:empty_turn_model_response")
    assert verdict.details["turn_pass"] == [False, True, True, True]
    assert verdict.details["state_pass"] == [None, True, True, True]
    spoiled = [right[0], ["Done."], *right[2:]]  # the second moves a file
    assert grade(workers, entry_id, spoiled).details["turn_pass"] == [True, False, False, False]


def test_turns_that_were_never_reached_have_no_verdict(workers: pool.WorkerPool) -> None:
    verdict = grade(workers, "multi_turn_base_1", gold_result("multi_turn_base_1")[:2])
    assert verdict.error_type == "multi_turn:force_terminated"
    assert verdict.details["turn_pass"] == [True, True, None, None]


def test_a_turn_without_accepted_calls_is_not_checked_but_its_calls_count(workers: pool.WorkerPool) -> None:
    entry_id = "multi_turn_miss_func_3"
    assert golds(entry_id)[0] == []
    right = gold_result(entry_id)
    looks = [[[{"pwd": "{}"}], "Done."], *right[1:]]
    assert grade(workers, entry_id, looks).valid
    moves = [[[{"mkdir": '{"dir_name": "new"}'}], "Done."], *right[1:]]
    verdict = grade(workers, entry_id, moves)
    assert verdict.error_type == "multi_turn:instance_state_mismatch"
    assert verdict.details["turn_pass"][0] is True


def test_a_skipped_turn_costs_nothing_later_only_if_asked_for(workers: pool.WorkerPool) -> None:
    entry_id = "multi_turn_base_0"
    assert golds(entry_id)[0][0].startswith("cd(")
    calls = [[[call] for call in turn] for turn in golds(entry_id)]
    skipped = [[], *calls[1:]]
    passed = [
        grade(workers, entry_id, [[]], calls=skipped, idle_gold=idle_gold).details["turn_pass"]
        for idle_gold in (True, False)
    ]
    assert passed[0] == [False, False, False, False]
    assert passed[1][0] is False
    # The world is one directory behind, but so is the accepted one.
    assert passed[1] != passed[0]


ODD_NAMES = ["4o-mini", "a@b", "a+b", "a~b", "a=b", "a#b", "a b", "org/model:latest", "模型"]


@pytest.mark.parametrize("model", ODD_NAMES)
def test_odd_model_names_are_graded_like_any_other(workers: pool.WorkerPool, model: str) -> None:
    entry_id = "multi_turn_base_1"
    right = gold_result(entry_id)
    assert grade(workers, entry_id, right, model=model).valid
    garbage = [
        [[{name: '{"no_such_argument": 1}'} for step in steps[:-1] for call in step for name in call]]
        for steps in right
    ]
    assert not grade(workers, entry_id, garbage, model=model).valid


def test_bfcl_itself_passes_garbage_of_such_a_model(tmp_path: Path) -> None:
    entry_id = "multi_turn_base_1"
    garbage: Result = [
        [[{name: '{"no_such_argument": 1}'}] for step in steps[:-1] for call in step for name in call]
        for steps in gold_result(entry_id)
    ]
    plain, odd = reference(tmp_path, [(entry_id, garbage, "m"), (entry_id, garbage, "a b")])
    assert plain[0] is False
    assert odd[0] is True


SELFTEST = """
import sys
from bfcl_rollout import official
from bfcl_rollout.records import GradeSpec
from bfcl_rollout.worker import conversation, grade, states, upstream
upstream.load()
states.keep_tables()
if sys.argv[1] == "broken":
    upstream.safe_model_name = lambda model: model
entry = next(e for e in official.load_entries("multi_turn_base") if e["id"] == "multi_turn_base_1")
golds = grade.load_answers("multi_turn_base")["multi_turn_base_1"]
spec = GradeSpec(entry_id=entry["id"], category="multi_turn_base", mode="fc", model=sys.argv[2], result=[[]])
print(conversation.selftest(spec, golds, entry))
"""


@pytest.mark.parametrize(
    ("how", "model", "passes"),
    [("sound", "a b", "True"), ("broken", "plain", "True"), ("broken", "a b", "False"), ("broken", "4o", "False")],
)
def test_the_selftest_finds_a_checker_that_passes_garbage(tmp_path: Path, how: str, model: str, passes: str) -> None:
    env = os.environ | {"BFCL_PROJECT_ROOT": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", SELFTEST, how, model]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout.splitlines()[-1] == passes


ANSWERS = (
    "__import__('pathlib').Path(__import__('bfcl_eval').__file__).parent"
    ".joinpath('data/possible_answer/BFCL_v4_multi_turn_base.json')"
)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("open('escaped', 'w').write", "{}"),
        ("open", '{"file": "escaped", "mode": "w"}'),
        (f"{ANSWERS}.read_text", "{}"),
        (f"str({ANSWERS}.parent.iterdir()) or list", "{}"),
        ("[each for each in globals() if each.endswith('_instance')].copy", "{}"),
        ("setattr(globals(), 'x', 1) or print", "{}"),
        ("exit", "{}"),
        ("(exit)", "{}"),
        ("__import__('sys').exit", "{}"),
        ("_load_scenario", '{"scenario": {}}'),
        ("ls", "{\"a=open('escaped', 'w') or True, b\": 1}"),
        ("cd", f'{{"folder={ANSWERS}.read_text() or 1, b": "x"}}'),
    ],
)
def test_grading_evaluates_nothing_and_its_executor_has_no_answers(
    workers: pool.WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, arguments: str
) -> None:
    monkeypatch.chdir(tmp_path)
    entry_id = "multi_turn_base_0"
    hostile: Result = [[[{name: arguments}], "Done."], *gold_result(entry_id)[1:]]
    done = asyncio.run(workers._execute(grade_spec(entry_id, hostile)))
    (result,) = done.turns[0].steps[0].results
    assert result.startswith("Error during execution: ")
    assert "ground_truth" not in done.model_dump_json()
    assert not grade(workers, entry_id, hostile).valid
    assert not list(tmp_path.rglob("escaped"))


def test_a_forged_execution_is_no_way_in(workers: pool.WorkerPool) -> None:
    entry_id = "multi_turn_base_0"
    spec = grade_spec(entry_id, gold_result(entry_id))
    done = asyncio.run(workers._execute(spec))
    assert grade(workers, entry_id, spec.result, execution=done).valid
    swapped = copy.deepcopy(done)
    swapped.turns[0].state = done.turns[3].state
    assert not grade(workers, entry_id, spec.result, execution=swapped).valid
    forged = Execution.model_validate_json(done.model_dump_json())
    forged.turns[0].state = "bm90IGEgc3RhdGU="
    with pytest.raises(pool.WorkerError):
        grade(workers, entry_id, spec.result, execution=forged)

"""The offline command: runs and trajectory files in, the published table out."""

from __future__ import annotations

import ast
import functools
import inspect
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import verifiers.v1 as vf
from bfcl_multi_turn.credit.commands import WRITTEN, main
from bfcl_multi_turn.credit.group import CreditError
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.source import official_gold
from bfcl_multi_turn.credit.table import COLUMNS, KEY_COLUMNS
from bfcl_multi_turn.credit.trajectories import credit_trajectories, read_trajectories
from bfcl_multi_turn.interactive.records import InteractionLog
from credit_helpers import (
    answer_text,
    build_episode,
    build_trace,
    check_published_rows,
    oracles,
    read_csv,
    think,
    tool_text,
)
from credit_world_helpers import World, gold_objects, load_entry, play
from verifiers.v1.trace import Error
from verifiers.v1.utils.trace_store import TRACES_FILE, write_episode

SAMPLE = "multi_turn_base_156"


def usual_turn(turn: int) -> list[str]:
    return [*(tool_text(call) for call in gold_objects(SAMPLE, turn)), answer_text()]


def actions(offset: int) -> list[str]:
    """What rollout `offset` of the published group did, as described: a text per generation."""
    turns = [usual_turn(turn) for turn in range(5)]
    login, create = gold_objects(SAMPLE, 3)
    if offset == 2:
        name, arguments = gold_objects(SAMPLE, 0)[0]
        turns[0] = [tool_text((name, {**arguments, "travel_from": "SAN"})), answer_text()]
    if offset == 14:
        turns[3] = [tool_text(login), tool_text((create[0], {**create[1], "description": ""})), answer_text()]
    if offset == 9:
        one, two = (json.dumps({"name": name, "arguments": arguments}) for name, arguments in (login, create))
        blocks = think(f"<tool_call>{one}</tool_call><tool_call>{two}</tool_call>")
        commas = think(f"<tool_call>{one}, {two}</tool_call>")
        opener = think(f"<tool_call>[{one}, {two}]</tool_call>", thought="a <tool_call> block comes next")
        turns[3] = [blocks, blocks, commas, commas, opener, tool_text(login, create)]
        wrong = [(name, {**arguments, "ticket_id": 1}) for name, arguments in gold_objects(SAMPLE, 4)]
        turns[4] = [tool_text(*wrong), answer_text()]
    return [text for turn in turns for text in turn]


@functools.cache
def played(offset: int) -> InteractionLog:
    """The rollout, played on the real tools."""
    return play(SAMPLE, actions(offset if offset in (2, 9, 14) else 0))


def sixteen(tokens: int | None = 3) -> list[vf.Trace]:
    return [
        build_trace(played(offset), id=f"rollout-{offset}", texts=actions(offset), tokens=tokens)
        for offset in range(16)
    ]


def save(folder: Path, traces: Sequence[vf.Trace]) -> Path:
    folder.mkdir()
    for number, trace in enumerate(traces):
        write_episode(folder, build_episode(trace, id=f"episode-{number}"))
    return folder


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return save(tmp_path / "run", sixteen())


def test_published_table_from_rollouts_on_the_real_tools(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sixteen rollouts played by a small in-process player on BFCL's tools: rewards and `R_P` are not typed in."""
    study = oracles()["k16_group"]
    assert main([str(run_dir), "--user-turn", "3", "--published"]) == 0
    rows = read_csv(run_dir / "credit" / "table.csv")
    assert list(rows[0]) == COLUMNS
    check_published_rows(rows)
    for row in rows:
        assert (row["interaction_index"], row["r_t"], row["R_t"]) == (row["runtime_depth"], row["r_j"], row["R_j"])
        assert (row["token_residual_applied"] == "True") == (float(row["A_local"]) != 0)
    errors = [step.parser_error for step in played(9).interactions if step.user_turn == 3]
    assert errors == study["parse_error_codes_user_turn_3"]["values"]


def test_defaults_change_nothing_in_that_table(run_dir: Path, tmp_path: Path) -> None:
    for name, options in (("a", ["--published"]), ("b", [])):
        assert main([str(run_dir), "--user-turn", "3", "--out", str(tmp_path / name), *options]) == 0
    assert (tmp_path / "a/table.csv").read_bytes() == (tmp_path / "b/table.csv").read_bytes()


def test_outputs_are_byte_identical_on_repeat(run_dir: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert main([str(run_dir), "--out", str(tmp_path / name)]) == 0
    for name in WRITTEN:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name


def test_csv_parquet_and_records_say_the_same(run_dir: Path) -> None:
    assert main([str(run_dir)]) == 0
    rows = read_csv(run_dir / "credit/table.csv")
    table = pq.read_table(run_dir / "credit/table.parquet")
    records = [json.loads(line) for line in (run_dir / "credit/steps.jsonl").read_text().splitlines()]
    assert table.column_names == list(rows[0]) == KEY_COLUMNS + COLUMNS
    for row, typed, record in zip(rows, table.to_pylist(), records, strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in typed.items()}
        assert record["local_advantage"] == typed["A_local"]
        assert (record["user_turn_id"], record["rollout_id"]) == (typed["user_turn_id"], typed["rollout_id"])
    assert len(table.schema.metadata[b"source_sha256"]) == 64


def test_summary_states_what_was_covered(run_dir: Path) -> None:
    failed = build_trace(played(0), id="broken")
    failed.ok = False
    failed.errors.append(Error(type="E", message="endpoint down\nmore"))
    episode = build_episode(failed, id="episode-x")
    episode.ok = False
    write_episode(run_dir, episode)
    assert main([str(run_dir)]) == 0
    summary = json.loads((run_dir / "credit/summary.json").read_text())
    (group,) = summary["groups"]
    assert (group["sample_id"], group["group_size"], group["rollout_offsets"]) == (SAMPLE, 16, list(range(16)))
    assert group["boundary"] == {
        "mean": pytest.approx(0.925),
        "kind": "mastered",
        "priority": pytest.approx(0.2775),
    }
    assert summary["left_out"] == [f"episode episode-x of task {SAMPLE}: endpoint down"]
    assert summary["production_metrics"]["rods_matchtir_v1/global/progress_reward_mean"] == pytest.approx(0.925)
    assert main([str(run_dir), "--group-size", "17"]) == 2


def export(run_dir: Path, tmp_path: Path) -> Path:
    target = tmp_path / "raw.jsonl"
    assert main([str(run_dir), "--export", str(target)]) == 0
    return target


def test_export_and_import_round_trip(run_dir: Path, tmp_path: Path) -> None:
    target = export(run_dir, tmp_path)
    assert main([str(target), "--out", str(tmp_path / "again")]) == 0
    for name in ("table.csv", "steps.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (run_dir / "credit" / name).read_bytes(), name
    first = json.loads(target.read_text().splitlines()[9])
    assert first["non_tensor"]["reward_scores"]["user_turn_rewards"] == played(9).codes
    assert first["non_tensor"]["extra_info"]["interaction_kwargs"]["processed_question"]
    assert (first["effective_total_tokens"], first["trainable_response_tokens"]) == (9 + 15 * 9, 15 * 9 - 2)
    assert list(first) == sorted(first)


def edit(target: Path, change: Callable[[dict[str, Any]], Any], line: int = 0) -> None:
    lines = target.read_text().splitlines()
    row = json.loads(lines[line])
    change(row)
    lines[line] = json.dumps(row)
    target.write_text("\n".join(lines) + "\n")


def steps_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = row["non_tensor"]["matchtir_provenance"]["policy_steps"]
    return steps


def test_each_disagreement_is_reported(run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = export(run_dir, tmp_path)

    def lie(row: dict[str, Any]) -> None:
        steps_of(row)[0]["calls"][0]["arguments"]["travel_from"] = "LAX"
        steps_of(row)[1]["response_type"] = "parse_error"
        steps_of(row)[2]["parser_error_code"] = "missing_think"

    edit(target, lie, line=4)
    assert main([str(target)]) == 1
    found = read_trajectories(target).disagreements
    assert [(d.line, d.trajectory, d.user_turn, d.interaction, d.field) for d in found] == [
        (5, "rollout-4", 0, 0, "calls"),
        (5, "rollout-4", 0, 1, "response_type"),
        (5, "rollout-4", 0, 2, "parser_error_code"),
    ]
    assert "line 5, rollout rollout-4, user turn 0, interaction 1" in capsys.readouterr().out.replace("\n", " ")
    assert len(json.loads((tmp_path / "credit/summary.json").read_text())["parser_disagreements"]) == 3


def test_older_records_are_upgraded_by_replay(run_dir: Path, tmp_path: Path) -> None:
    target = export(run_dir, tmp_path)
    kept = {"user_turn_id", "policy_step_id", "response_type", "raw_policy_response", "calls", "actor_span"}

    def age(row: dict[str, Any]) -> None:
        row["non_tensor"]["matchtir_provenance"]["schema_version"] = "rods_matchtir_rollout.v1"
        for step in steps_of(row):
            reliable = step["response_type"] != "parse_error"
            for name in set(step) - kept:
                del step[name]
            step["provenance_reliable"] = reliable

    for line in range(16):
        edit(target, age, line)
    file = read_trajectories(target)
    assert not file.disagreements
    (group,) = credit_trajectories(file, CreditOptions())
    rows = read_csv(run_dir / "credit/table.csv")
    assert [step.advantage for step in group.credit.steps] == [float(row["A_TW"]) for row in rows]
    # An old record that the replay contradicts stays unreliable, and takes its turn with it.
    edit(target, lambda row: steps_of(row)[0].update(calls=[]))
    (group,) = credit_trajectories(read_trajectories(target), CreditOptions())
    assert [(skip.rollout, skip.user_turn, skip.reason) for skip in group.credit.skips] == [(0, 0, "unreliable_record")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: row["non_tensor"].pop("uid"), "line 3: not a raw trajectory"),
        (lambda row: row["non_tensor"].update(reward_scores=None), "line 3: not a raw trajectory"),
        (
            lambda row: row["non_tensor"]["reward_scores"].update(user_turn_rewards=[1] * 9),
            "line 3, rollout rollout-2: 9 terminal codes",
        ),
        (
            lambda row: row["non_tensor"]["reward_scores"].update(user_turn_rewards=[float("nan")]),
            "line 3, rollout rollout-2: unknown step codes",
        ),
        (
            lambda row: row["non_tensor"]["matchtir_provenance"].update(rollout_offset=7),
            "offset 7 is taken by rollout rollout-2",
        ),
        (
            lambda row: row["non_tensor"]["extra_info"]["interaction_kwargs"].update(ground_truth=[["f()"]] * 5),
            "line 3, rollout rollout-2: its task differs",
        ),
    ],
)
def test_bad_trajectories_are_named(
    run_dir: Path, tmp_path: Path, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    target = export(run_dir, tmp_path)
    edit(target, change, line=2)
    with pytest.raises(CreditError) as caught:
        credit_trajectories(read_trajectories(target), CreditOptions())
    assert message in str(caught.value)


def test_malformed_provenance_leaves_out_one_rollout_and_says_so(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = export(run_dir, tmp_path)
    edit(target, lambda row: steps_of(row)[1].pop("raw_policy_response"), line=2)
    assert main([str(target)]) == 0
    (group,) = json.loads((tmp_path / "credit/summary.json").read_text())["groups"]
    assert [(skip["rollout_id"], skip["reason"]) for skip in group["skipped"]] == [("rollout-2", "malformed_rollout")]
    assert "line 3, rollout rollout-2: malformed provenance" in group["skipped"][0]["detail"]
    assert "malformed_rollout" in capsys.readouterr().out
    # Without any provenance nobody in the group gets local credit.
    edit(target, lambda row: row["non_tensor"].pop("matchtir_provenance"), line=5)
    (credited,) = credit_trajectories(read_trajectories(target), CreditOptions())
    assert credited.credit.steps == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gamma", "2"], "gamma"),
        (["--task", "multi_turn_base_1"], "nothing to credit"),
        (["--group-size", "4"], "16 members in a group of 4"),
    ],
)
def test_command_errors(run_dir: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run_dir), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_paths_that_are_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing")]) == 2
    assert main([str(tmp_path)]) == 2
    (tmp_path / TRACES_FILE).write_text("{}\n")
    assert main([str(tmp_path)]) == 2
    (tmp_path / "raw.jsonl").write_text("")
    assert main([str(tmp_path / "raw.jsonl")]) == 2
    errors = capsys.readouterr().err
    for message in ("there is no", "no traces.jsonl in", "line 1: not an episode", "no trajectories in"):
        assert message in errors


def test_parameter_order_of_the_documents_is_that_of_the_tools() -> None:
    """Positional gold arguments are bound by the function documents; the tools' own signatures agree."""
    signatures: dict[str, list[str]] = {}
    positional = 0
    for number in range(200):
        entry_id = f"multi_turn_base_{number}"
        task = official_gold(entry_id)
        for text in (text for turn in task.turns for text in turn):
            call = ast.parse(text, mode="eval").body
            assert isinstance(call, ast.Call)
            if not call.args:
                continue
            name = ast.unparse(call.func)
            if name not in signatures:
                instances = World(load_entry(entry_id)).instances.values()
                method = next(getattr(instance, name) for instance in instances if hasattr(instance, name))
                signatures[name] = list(inspect.signature(method).parameters)
            assert list(task.parameters[name])[: len(call.args)] == signatures[name][: len(call.args)], name
            positional += 1
    assert (positional, len(signatures)) == (40, 11)

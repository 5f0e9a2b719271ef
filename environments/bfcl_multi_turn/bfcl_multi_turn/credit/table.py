"""The table of credited steps, as CSV and Parquet, and the longer record of each step.

The columns and their order are those of ToolWeave's published case study. Numbers keep every digit. The older names
`interaction_index`, `r_t` and `R_t` repeat `runtime_depth`, `r_j` and `R_j`.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bfcl_multi_turn.credit.group import GroupCredit, StepCredit

_TYPES: dict[str, pa.DataType] = {
    "rollout_offset": pa.int64(),
    "rollout_id": pa.string(),
    "interaction_index": pa.int64(),
    "runtime_interaction_index": pa.int64(),
    "runtime_depth": pa.int64(),
    "tool_attempt_index": pa.int64(),
    "response_type": pa.string(),
    "parsed_calls": pa.string(),
    "call_rewards": pa.string(),
    "r_j": pa.float64(),
    "R_j": pa.float64(),
    "r_t": pa.float64(),
    "R_t": pa.float64(),
    "peer_support": pa.int64(),
    "peer_mean_R": pa.float64(),
    "peer_sample_std_R": pa.float64(),
    "A_local": pa.float64(),
    "R_P": pa.float64(),
    "A_RODS": pa.float64(),
    "A_TW": pa.float64(),
    "token_residual_applied": pa.bool_(),
}
COLUMNS = list(_TYPES)
"""Columns of one user turn of one group."""

_KEY_TYPES: dict[str, pa.DataType] = {"group_uid": pa.string(), "user_turn_id": pa.int64()}
KEY_COLUMNS = list(_KEY_TYPES)
"""Columns that come first in a table of several groups or user turns."""

Row = dict[str, Any]


class CreditedGroup(NamedTuple):
    """One credited group with what a table needs beside the numbers."""

    uid: str
    """Shared by the rollouts of the group."""
    sample_id: str
    """BFCL test id."""
    category: str
    offsets: list[int]
    """Rollout offset of each member."""
    spans: list[dict[tuple[int, int], tuple[int, int] | None]]
    """For each member the token span of each step, by (user turn, index), relative to the response; None if there
    are no tokens to write to."""
    credit: GroupCredit


def table_rows(groups: Sequence[CreditedGroup], user_turn: int | None = None) -> list[Row]:
    """One row per local step, sorted by group, user turn, rollout offset and depth.

    Args:
        groups: the groups, in the order wanted.
        user_turn: only this one.
    """
    return [
        _row(group, step)
        for group in groups
        for step in sorted(group.credit.steps, key=lambda step: _order(group, step))
        if user_turn is None or step.interaction.user_turn == user_turn
    ]


def step_records(groups: Sequence[CreditedGroup]) -> Iterator[Row]:
    """One record per local step with everything known about it."""
    for number, group in enumerate(groups):
        for step in sorted(group.credit.steps, key=lambda step: _order(group, step)):
            interaction = step.interaction
            span = _span(group, step)
            yield {
                "batch_index": number,
                "uid": group.uid,
                "data_type": group.category,
                "rollout_id": group.credit.rollouts[step.rollout].id,
                "user_turn_id": interaction.user_turn,
                "policy_step_id": interaction.index,
                "runtime_interaction_index": interaction.index,
                "runtime_depth": interaction.index,
                "tool_attempt_index": interaction.tool_attempt_index,
                "depth": interaction.index,
                "actor_span": {"start": span[0], "end": span[1]} if span else None,
                "actor_span_reliable": span is not None,
                "response_type": interaction.response_type,
                "attempted_action_type": interaction.attempted_type,
                "call_parse_reliable": interaction.call_parse_reliable,
                "call_count": len(step.call_rewards),
                "call_rewards": step.call_rewards,
                "step_reward": step.step_reward,
                "local_return": step.local_return,
                "local_advantage": step.local.advantage,
                "local_active": step.local.active,
                "token_residual_applied": _applied(group, step),
                "peer_support": step.local.support,
                "peer_mean": step.local.mean,
                "peer_sample_std": step.local.std,
                "follows_missing_turn": step.follows_empty_turn,
            }


def to_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """The rows as CSV text with `\\n` line ends; an absent value is an empty field."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def write_parquet(rows: Sequence[Row], columns: Sequence[str], path: Path, source_sha256: str) -> None:
    """Write the rows with typed columns; the schema's metadata names the file they came from by its SHA-256."""
    types = {**_KEY_TYPES, **_TYPES}
    schema = pa.schema([(name, types[name]) for name in columns], metadata={"source_sha256": source_sha256})
    arrays = {name: [row[name] for row in rows] for name in columns}
    pq.write_table(pa.table(arrays, schema=schema), path, compression="zstd")


def _order(group: CreditedGroup, step: StepCredit) -> tuple[int, int, int]:
    return step.interaction.user_turn, group.offsets[step.rollout], step.interaction.index


def _span(group: CreditedGroup, step: StepCredit) -> tuple[int, int] | None:
    return group.spans[step.rollout].get((step.interaction.user_turn, step.interaction.index))


def _applied(group: CreditedGroup, step: StepCredit) -> bool:
    return step.local.active and bool(group.credit.options.weight) and _span(group, step) is not None


def _row(group: CreditedGroup, step: StepCredit) -> Row:
    interaction, rollout = step.interaction, group.credit.rollouts[step.rollout]
    return {
        "group_uid": group.uid,
        "user_turn_id": interaction.user_turn,
        "rollout_offset": group.offsets[step.rollout],
        "rollout_id": rollout.id,
        "interaction_index": interaction.index,
        "runtime_interaction_index": interaction.index,
        "runtime_depth": interaction.index,
        "tool_attempt_index": interaction.tool_attempt_index,
        "response_type": interaction.response_type,
        "parsed_calls": json.dumps([call.name for call in interaction.calls if call.valid], ensure_ascii=False),
        "call_rewards": json.dumps(step.call_rewards),
        "r_j": step.step_reward,
        "R_j": step.local_return,
        "r_t": step.step_reward,
        "R_t": step.local_return,
        "peer_support": step.local.support,
        "peer_mean_R": step.local.mean,
        "peer_sample_std_R": step.local.std,
        "A_local": step.local.advantage,
        "R_P": rollout.outcome,
        "A_RODS": group.credit.global_advantages[step.rollout],
        "A_TW": step.advantage,
        "token_residual_applied": _applied(group, step),
    }

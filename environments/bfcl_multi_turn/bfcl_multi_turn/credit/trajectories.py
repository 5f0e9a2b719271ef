"""ToolWeave's raw trajectory files: read them for an audit.

One JSON object per line and rollout, with the environment's records under `non_tensor.matchtir_provenance`. Nothing
in a file is taken on trust: the parser is replayed on every raw response, and each difference is reported. A record
of the older schema, which has no split reliability flags, is upgraded only where the replay agrees.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from bfcl_multi_turn.credit.gold import ParameterNames
from bfcl_multi_turn.credit.group import CreditError, Rollout, credit_group
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.source import parameter_names
from bfcl_multi_turn.credit.table import CreditedGroup
from bfcl_multi_turn.interactive.parser import parse_response
from bfcl_multi_turn.interactive.records import Interaction, ParsedCall
from bfcl_multi_turn.interactive.rewards import progress_reward

SCHEMA = "rods_matchtir_rollout.v3"
"""Newest provenance schema; upgraded copies carry a suffix."""


class Disagreement(NamedTuple):
    """A record that says something else than the parser says of its own raw text."""

    line: int
    trajectory: str
    user_turn: int
    interaction: int
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"line {self.line}, rollout {self.trajectory}, user turn {self.user_turn}, interaction {self.interaction}: "
            f"{self.field} is {json.dumps(self.recorded, ensure_ascii=False)}, "
            f"replayed {json.dumps(self.replayed, ensure_ascii=False)}"
        )


class Trajectory(NamedTuple):
    """One line of a file."""

    line: int
    uid: str
    sample_id: str
    category: str
    offset: int
    gold: list[list[str]]
    parameters: ParameterNames
    rollout: Rollout
    spans: dict[tuple[int, int], tuple[int, int] | None]


class TrajectoryFile(NamedTuple):
    """A file, read and audited."""

    trajectories: list[Trajectory]
    disagreements: list[Disagreement]
    steps: int
    """Records replayed."""


def read_trajectories(path: Path) -> TrajectoryFile:
    """Read a raw trajectory file and replay the parser on all of it.

    Raises:
        CreditError: a line that cannot be placed in a group; names the line and, where known, the rollout.
    """
    found = TrajectoryFile([], [], 0)
    steps = 0
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            trajectory, replayed = _trajectory(number, line, found.disagreements)
            found.trajectories.append(trajectory)
            steps += replayed
    if not found.trajectories:
        raise CreditError(f"no trajectories in {path}")
    return found._replace(steps=steps)


def credit_trajectories(
    file: TrajectoryFile, options: CreditOptions, sample_id: str | None = None, group_size: int | None = None
) -> list[CreditedGroup]:
    """Group a file's rollouts by prompt and credit them, in the order of the file.

    Raises:
        CreditError: the members of a group disagree about their task, share an offset, or are too few or many.
    """
    by_uid: dict[str, list[Trajectory]] = {}
    for trajectory in file.trajectories:
        by_uid.setdefault(trajectory.uid, []).append(trajectory)
    credited = []
    for uid, unsorted in by_uid.items():
        members = sorted(unsorted, key=lambda member: member.offset)
        first = members[0]
        if sample_id not in (None, first.sample_id):
            continue
        if group_size is not None and len(members) != group_size:
            raise CreditError(f"group {uid}: {len(members)} members in a group of {group_size}")
        for before, member in itertools.pairwise(members):
            where = f"line {member.line}, rollout {member.rollout.id}"
            if member.offset == before.offset:
                raise CreditError(f"{where}: offset {member.offset} is taken by rollout {before.rollout.id}")
            if (member.sample_id, member.gold) != (first.sample_id, first.gold):
                raise CreditError(f"{where}: its task differs from that of rollout {first.rollout.id} in group {uid}")
        credit = credit_group(first.gold, [member.rollout for member in members], options, first.parameters)
        offsets = [member.offset for member in members]
        spans = [member.spans for member in members]
        credited.append(CreditedGroup(uid, first.sample_id, first.category, offsets, spans, credit))
    if not credited:
        raise CreditError(f"no group for task {sample_id}")
    return credited


def _trajectory(number: int, line: str, disagreements: list[Disagreement]) -> tuple[Trajectory, int]:
    where = f"line {number}"
    try:
        row = json.loads(line)
        inner = row["non_tensor"]
        uid, sample_id = str(inner["uid"]), str(inner["index"])
        category = str(inner["data_source"])
        codes = [float(code) for code in inner["reward_scores"]["user_turn_rewards"]]
        gold = inner["extra_info"]["interaction_kwargs"]["ground_truth"]
        gold = [[str(call) for call in turn] for turn in gold]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CreditError(f"{where}: not a raw trajectory ({type(error).__name__}: {error})") from error
    provenance = inner.get("matchtir_provenance")
    identity = provenance if isinstance(provenance, Mapping) else {}
    rollout_id = str(identity.get("rollout_id", f"trajectory-{row.get('trajectory_index', number - 1)}"))
    where = f"line {number}, rollout {rollout_id}"
    try:
        progress = progress_reward([int(code) if code.is_integer() else -4 for code in codes], len(gold)).reward
    except (ValueError, OverflowError) as error:
        raise CreditError(f"{where}: {error}") from error
    offset = identity.get("rollout_offset", row.get("trajectory_index", number - 1))
    if not isinstance(offset, int):
        raise CreditError(f"{where}: rollout offset {offset!r}")
    interactions: list[Interaction] | None = None
    spans: dict[tuple[int, int], tuple[int, int] | None] = {}
    problem = None
    if provenance is not None:
        try:
            interactions, spans = _interactions(number, rollout_id, identity, disagreements)
        except (ValidationError, KeyError, TypeError, ValueError) as error:
            interactions, spans = None, {}
            problem = f"{where}: malformed provenance ({type(error).__name__}: {_first_line(error)})"
    rollout = Rollout(rollout_id, progress, interactions, problem)
    parameters = _parameters(identity)
    made = Trajectory(number, uid, sample_id, category, offset, gold, parameters, rollout, spans)
    return made, len(interactions or [])


def _interactions(
    number: int, rollout_id: str, provenance: Mapping[str, Any], disagreements: list[Disagreement]
) -> tuple[list[Interaction], dict[tuple[int, int], tuple[int, int] | None]]:
    schema = str(provenance["schema_version"])
    if not schema.startswith("rods_matchtir_rollout."):
        raise ValueError(f"schema {schema!r}, but this release reads rods_matchtir_rollout.*")
    interactions = []
    spans = {}
    for raw in provenance["policy_steps"]:
        step, differences = _step(raw)
        disagreements.extend(
            Disagreement(number, rollout_id, step.user_turn, step.index, *difference) for difference in differences
        )
        interactions.append(step)
        span = raw.get("actor_span")
        # The older schema has no flag of its own for spans.
        reliable = raw.get("actor_span_reliable", raw.get("provenance_reliable", False) and span is not None)
        spans[step.user_turn, step.index] = (int(span["start"]), int(span["end"])) if reliable and span else None
    return interactions, spans


def _step(raw: Mapping[str, Any]) -> tuple[Interaction, list[tuple[str, Any, Any]]]:
    """The record of one step, and how the replay of its raw text differs: `(field, recorded, replayed)`."""
    calls = [ParsedCall.model_validate(call) for call in raw.get("calls") or []]
    index = raw.get("runtime_interaction_index", raw.get("policy_step_id"))
    reply = parse_response(raw["raw_policy_response"])
    compared: dict[str, tuple[Any, Any]] = {
        "response_type": (raw["response_type"], reply.response_type),
        "calls": ([call.model_dump() for call in calls], [call.model_dump() for call in reply.calls]),
    }
    for field, replayed in (("parser_error_code", reply.error), ("attempted_action_type", reply.attempted_type)):
        if field in raw:
            compared[field] = (raw[field], replayed)
    differences = [(field, *pair) for field, pair in compared.items() if pair[0] != pair[1]]
    current = "temporal_provenance_reliable" in raw
    upgraded = not current and not differences
    return (
        Interaction(
            user_turn=raw["user_turn_id"],
            index=index,
            response_type=raw["response_type"],
            attempted_type=raw.get("attempted_action_type", reply.attempted_type),
            parser_error=raw.get("parser_error_code", reply.error),
            calls=calls,
            tool_attempt_index=raw.get("tool_attempt_index"),
            temporal_reliable=bool(raw["temporal_provenance_reliable"]) if current else upgraded,
            call_parse_reliable=bool(raw.get("call_parse_reliable", upgraded and reply.response_type == "tool_call")),
        ),
        differences,
    )


def _parameters(provenance: Mapping[str, Any]) -> ParameterNames:
    try:
        documents = list(provenance.get("available_functions") or [])
        for update in provenance.get("original_tool_updates") or []:
            documents += update["tools"]
        return parameter_names(documents)
    except (KeyError, TypeError, AttributeError):
        # Without them, a gold turn with positional arguments cannot be read, and is skipped as such.
        return {}


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)

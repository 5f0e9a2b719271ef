"""A finished run, read from its `traces.jsonl` and credited group by group. Nothing is written to the traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.utils.trace_store import TRACES_FILE

from bfcl_multi_turn.credit.group import CreditError
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.source import GoldSource, official_gold
from bfcl_multi_turn.credit.table import CreditedGroup
from bfcl_multi_turn.credit.traces import TraceGroup, credit_traces, read_group
from bfcl_multi_turn.interactive.records import Interaction


class RunGroups(NamedTuple):
    """The groups of a run."""

    groups: list[TraceGroup]
    """By BFCL test id; members in the order of the file."""
    left_out: list[str]
    """Failed episodes, one line each: they have no result to credit."""


def read_run(path: Path, group_size: int | None = None, entry_id: str | None = None) -> RunGroups:
    """Read a run directory.

    Args:
        path: the directory.
        group_size: the number of members every group has to have, failed ones not counted.
        entry_id: only this task.

    Raises:
        CreditError: no such run, a line that is no episode, or a group that must not be credited.
    """
    file = path / TRACES_FILE
    if not file.is_file():
        raise CreditError(f"no {TRACES_FILE} in {path}")
    by_task: dict[str, list[vf.Episode]] = {}
    left_out = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                episode = vf.WireEpisode.model_validate_json(line)
            except ValidationError as error:
                first = error.errors(include_url=False)[0]
                place = ".".join(map(str, first["loc"]))
                raise CreditError(f"{file}, line {number}: not an episode ({place}: {first['msg']})") from error
            failed = [trace for trace in episode.traces if trace.agent.trainable and not trace.ok]
            if failed or not episode.ok:
                errors = [*(error for trace in failed for error in trace.errors), *episode.errors]
                reason = errors[-1].message.splitlines()[0] if errors and errors[-1].message else "it did not complete"
                left_out.append(f"episode {episode.id} of task {episode.task.key}: {reason}")
                continue
            by_task.setdefault(episode.task.key or episode.task.data.name or "", []).append(episode)
    groups = [read_group(episodes, group_size) for episodes in by_task.values()]
    groups = [group for group in groups if entry_id in (None, group.entry_id)]
    if not groups:
        raise CreditError(f"nothing to credit in {path}" + (f" for task {entry_id}" if entry_id else ""))
    return RunGroups(sorted(groups, key=lambda group: _natural(group.entry_id)), left_out)


def credit_run(
    groups: Sequence[TraceGroup], options: CreditOptions, gold: GoldSource = official_gold
) -> list[CreditedGroup]:
    """Credit the groups of a run. A group's uid is its test id: an evaluation run has one group per task.

    Raises:
        CreditError: a group does not fit its gold calls.
    """
    credited = []
    for group in groups:
        try:
            credit = credit_traces(group, options, gold)
        except LookupError as error:
            raise CreditError(f"trace {group.traces[0].id}: no gold calls for {group.entry_id} ({error})") from error
        credited.append(
            CreditedGroup(
                uid=group.entry_id,
                sample_id=group.entry_id,
                category=group.category,
                offsets=list(range(len(group.traces))),
                spans=[
                    {(step.user_turn, step.index): token_span(trace, step) for step in log.interactions}
                    for trace, log in zip(group.traces, group.logs, strict=True)
                ],
                credit=credit,
            )
        )
    return credited


def token_span(trace: vf.Trace, step: Interaction) -> tuple[int, int] | None:
    """Half-open token span of a step's sampled tokens, relative to the first sampled token of its branch."""
    if step.node is None:
        return None
    path: list[int] = []
    node: int | None = step.node
    while node is not None:
        path.append(node)
        node = trace.nodes[node].parent
    position, first = 0, None
    for index in reversed(path):
        message = trace.nodes[index]
        sampled = [offset for offset, own in enumerate(message.mask) if own]
        if first is None and sampled:
            first = position + sampled[0]
        if index == step.node and sampled and first is not None:
            return position + sampled[0] - first, position + sampled[-1] + 1 - first
        position += len(message.token_ids)
    return None


def _natural(entry_id: str) -> tuple[str, int, str]:
    category, _, number = entry_id.rpartition("_")
    return (category, int(number), "") if number.isdigit() else (category, -1, number)

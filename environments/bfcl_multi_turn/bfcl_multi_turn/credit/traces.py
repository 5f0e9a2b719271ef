"""Credit on verifiers' objects: from a group of episodes to `node.advantages`.

One runtime interaction is one sampled node. Every sampled token of a credited trace gets the rollout's global
advantage; those of an active step also its local one. Nothing is written before the whole group has been checked.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Generator, Sequence
from typing import Any, NamedTuple

import verifiers.v1 as vf
from pydantic import ValidationError

from bfcl_multi_turn.credit.group import AnswerCredit, CreditError, GroupCredit, Rollout, StepCredit, credit_group
from bfcl_multi_turn.credit.metrics import credit_metrics
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.source import GoldSource, category_of, official_gold
from bfcl_multi_turn.interactive.records import INFO_KEY, InteractionLog


class TraceGroup(NamedTuple):
    """The checked input of one group."""

    entry_id: str
    category: str
    traces: list[vf.Trace]
    logs: list[InteractionLog]


class TraceCredit(NamedTuple):
    """What was credited, and written where."""

    group: TraceGroup
    credit: GroupCredit
    metrics: dict[str, float]
    tokens_written: int
    """Sampled tokens that now carry an advantage."""
    residual_tokens: int
    """Those of them that carry a local advantage."""
    tokenless_nodes: int
    """Sampled nodes without tokens: nothing could be written to them."""


def credit_episodes(
    episodes: Sequence[vf.Episode],
    options: CreditOptions | None = None,
    *,
    gold: GoldSource = official_gold,
    group_size: int | None = None,
) -> TraceCredit:
    """Credit one group of episodes of the same task, and write the advantages to its traces.

    Args:
        episodes: the group; each with one trainable trace, either protocol.
        options: how.
        gold: where the gold calls come from.
        group_size: the number of members there has to be.

    Raises:
        CreditError: a member is missing, failed, unscored or of another task, or its record is missing, malformed or
            of another version. Nothing has been written then.
    """
    options = options or CreditOptions()
    group = read_group(episodes, group_size=group_size)
    credit = credit_traces(group, options, gold)
    return _write(group, credit)


def read_group(episodes: Sequence[vf.Episode], group_size: int | None = None) -> TraceGroup:
    """Check a group of episodes and read their logs.

    Raises:
        CreditError: as `credit_episodes`.
    """
    if not episodes:
        raise CreditError("a group without episodes")
    if group_size is not None and len(episodes) != group_size:
        raise CreditError(f"{len(episodes)} members in a group of {group_size}: {', '.join(e.id for e in episodes)}")
    traces = [_trainable_trace(episode) for episode in episodes]
    logs = [read_log(trace) for trace in traces]
    entry_ids = sorted({log.entry_id for log in logs})
    if len(entry_ids) > 1:
        raise CreditError(f"trace {traces[0].id}: its group mixes the tasks {', '.join(entry_ids)}")
    return TraceGroup(entry_ids[0], category_of(entry_ids[0]), traces, logs)


def credit_traces(group: TraceGroup, options: CreditOptions, gold: GoldSource = official_gold) -> GroupCredit:
    """Credit a checked group without writing anything."""
    task = gold(group.entry_id)
    rollouts = []
    for trace, log in zip(group.traces, group.logs, strict=True):
        if len(log.turn_scores) != len(task.turns):
            raise CreditError(
                f"trace {trace.id}: {len(log.turn_scores)} turn scores for the {len(task.turns)} user turns of "
                f"{group.entry_id}"
            )
        outcome = log.progress if options.outcome == "progress" else _reward(trace)
        rollouts.append(Rollout(trace.id, outcome, log.interactions))
    return credit_group(task.turns, rollouts, options, task.parameters)


def read_log(trace: vf.Trace) -> InteractionLog:
    """The interaction log of a trace, checked against its nodes.

    Raises:
        CreditError: naming the trace, and the user turn where one is at fault.
    """
    stored = trace.info.get(INFO_KEY)
    if stored is None:
        raise CreditError(f"trace {trace.id}: no interactions in its info")
    try:
        log = InteractionLog.model_validate(stored)
    except ValidationError as error:
        raise CreditError(f"trace {trace.id}: {_explain(error, stored)}") from error
    for step in log.interactions:
        if step.node is None:
            continue
        where = f"trace {trace.id}, user turn {step.user_turn}: interaction {step.index} points at node {step.node}"
        if step.node >= len(trace.nodes):
            raise CreditError(f"{where}, but there are {len(trace.nodes)} nodes")
        if not trace.nodes[step.node].sampled:
            raise CreditError(f"{where}, which no model call produced")
    return log


class RuntimeInteractionCredit:
    """Group scoring in the shape that prime-rl calls: `score_group(episodes)`.

    Keeps the result of the last group in `last`, metrics included.
    """

    def __init__(
        self,
        options: CreditOptions | None = None,
        *,
        gold: GoldSource = official_gold,
        group_size: int | None = None,
    ) -> None:
        self.options = options or CreditOptions()
        self.gold = gold
        self.group_size = group_size
        self.last: TraceCredit | None = None

    def score_group(self, episodes: Sequence[vf.Episode]) -> Awaitable[None]:
        """Credit one group at once. The result may be awaited, and need not be.

        Raises:
            CreditError: as `credit_episodes`.
        """
        self.last = credit_episodes(episodes, self.options, gold=self.gold, group_size=self.group_size)
        return _Done()


class _Done:
    def __await__(self) -> Generator[Any, None, None]:
        return
        yield


def _trainable_trace(episode: vf.Episode) -> vf.Trace:
    traces = [trace for trace in episode.traces if trace.agent.trainable]
    if len(traces) != 1:
        raise CreditError(f"episode {episode.id}: {len(traces)} trainable traces, where a group member has one")
    trace = traces[0]
    if not trace.ok:
        reason = trace.errors[-1].message if trace.errors else "it did not complete"
        raise CreditError(f"trace {trace.id}: it failed ({reason}); a group is credited without failed members")
    return trace


def _reward(trace: vf.Trace) -> float:
    if not trace.rewards or any(reward is None for reward in trace.rewards.values()):
        raise CreditError(f"trace {trace.id}: it was not scored")
    if not math.isfinite(trace.reward):
        raise CreditError(f"trace {trace.id}: its reward is {trace.reward}")
    return trace.reward


def _explain(error: ValidationError, stored: Any) -> str:
    """The first problem in one line, with the user turn it lies in."""
    first = error.errors(include_url=False)[0]
    where = first["loc"]
    message = first["msg"].removeprefix("Value error, ")
    turn = ""
    if len(where) > 1 and where[0] == "interactions" and isinstance(where[1], int):
        raw = stored["interactions"][where[1]]
        if isinstance(raw, dict) and "user_turn" in raw:
            turn = f"user turn {raw['user_turn']}: "
    place = ".".join(map(str, where))
    return f"malformed interactions: {turn}{place + ': ' if place else ''}{message}"


def _write(group: TraceGroup, credit: GroupCredit) -> TraceCredit:
    values: list[dict[int, float]] = [{} for _ in group.traces]
    residual: set[tuple[int, int]] = set()
    errors: set[tuple[int, int]] = set()
    unplaced = 0
    credited: list[StepCredit | AnswerCredit] = [*credit.steps, *credit.answers]
    for step in credited:
        if step.local is None or not step.local.active or not credit.options.weight:
            continue
        node = step.interaction.node
        if node is None or not any(group.traces[step.rollout].nodes[node].mask):
            unplaced += 1
            continue
        values[step.rollout][node] = step.advantage
        residual.add((step.rollout, node))
        if step.interaction.response_type == "parse_error":
            errors.add((step.rollout, node))
    written = local = error_tokens = tokenless = 0
    for index, trace in enumerate(group.traces):
        for position, message in enumerate(trace.nodes):
            tokens = sum(message.mask) if message.sampled else 0
            if not tokens:
                tokenless += message.sampled
                continue
            message.advantages = [values[index].get(position, credit.global_advantages[index])] * tokens
            written += tokens
            local += tokens if (index, position) in residual else 0
            error_tokens += tokens if (index, position) in errors else 0
    metrics = credit_metrics([(group.category, credit)], parse_error_tokens=error_tokens, span_failures=unplaced)
    return TraceCredit(group, credit, metrics, written, local, tokenless)

"""A finished run, read back from its directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from bfcl_rollout.errors import SetupError
from bfcl_rollout.runs import counted_episodes, resolved_config

from bfcl_routing.cases import load_cases
from bfcl_routing.catalogue import with_catalogue
from bfcl_routing.decision import Decision
from bfcl_routing.scoring import Outcome, outcome_of, route_correct
from bfcl_routing.view import View, is_no_function


class Row(NamedTuple):
    """One rollout."""

    key: str
    """Identity of the task: case, view and rotation."""
    case_id: str
    rotation: int
    stratum: str
    gold: tuple[str, ...]
    actions: tuple[str, ...]
    decision: Decision | None
    """None if the rollout failed for a reason that is not the model's."""
    error: str | None
    started: float
    """Wall-clock time at which the rollout started, seconds since the epoch."""
    wall_s: float | None
    input_tokens: int
    output_tokens: int

    @property
    def correct(self) -> bool:
        """Whether the route is right. A failed rollout is not."""
        return self.decision is not None and route_correct(self.decision, self.gold)

    @property
    def outcome(self) -> Outcome | None:
        """Which of the six things happened; None for a failed rollout."""
        return None if self.decision is None else outcome_of(self.decision, self.gold)

    @property
    def gold_position(self) -> int | None:
        """Place of the right function among the functions shown, from 0; None for negatives."""
        tools = [a for a in self.actions if not is_no_function(a)]
        return next((i for i, a in enumerate(tools) if a in self.gold), None)


class Run(NamedTuple):
    """One run under one view."""

    name: str
    model: str | None
    suite: str
    split: str
    view: str
    view_sha256: str
    form: str
    rollouts: int
    """Rollouts per task."""
    expected: int | None
    """Tasks of the whole suite under this view; None if the run's config is not there."""
    concurrency: int | None
    """Requests in flight at once; None if unbounded or unknown."""
    declared: dict[str, str | None]
    """What was declared about the model's surroundings: hardware, precision, serving; and the boundary of the clock."""
    rows: list[Row]
    tasks: dict[str, dict[str, Any]]
    """Task data by key."""

    @property
    def graded(self) -> list[Row]:
        """Rollouts that have a decision."""
        return [row for row in self.rows if row.decision is not None]

    @property
    def complete(self) -> bool:
        """Whether every task of the suite is graded as often as it should be."""
        return self.expected is not None and len(self.graded) == self.expected * self.rollouts


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    Raises:
        SetupError: it holds no traces of this environment, or traces of several views.
    """
    path = run_dir / "traces.jsonl"
    if not path.is_file():
        raise SetupError(f"{run_dir} has no traces.jsonl")
    config = resolved_config(run_dir) or {}
    episodes = list(counted_episodes(run_dir, config.get("num_rollouts")))
    tasks = {e["task"]["key"]: e["task"]["data"] for e in episodes}
    if not tasks or not all("view_sha256" in data for data in tasks.values()):
        raise SetupError(f"{path} holds no routing traces")
    views = {data["view_sha256"]: data["view"] for data in tasks.values()}
    if len(views) > 1:
        raise SetupError(
            f"{path} holds results of different views, which are never merged: {', '.join(views.values())}"
        )
    data = next(iter(tasks.values()))
    traces = [t for e in episodes for t in e["traces"]]
    harness = (traces[0]["agent"]["config"].get("harness") or {}) if traces else {}
    replies = [t["info"]["reply"] for t in traces if "reply" in t.get("info", {})]
    return Run(
        name=run_dir.name,
        model=config.get("model") or (traces[0]["agent"]["config"].get("model") if traces else None),
        suite=data["suite"],
        split=data["split"],
        view=data["view"],
        view_sha256=data["view_sha256"],
        form=data["form"],
        rollouts=config.get("num_rollouts", 1),
        expected=_expected(config),
        concurrency=config.get("max_concurrent"),
        declared={
            "boundary": replies[0]["boundary"] if replies else None,
            **{field: harness.get(field) for field in ("hardware", "precision", "serving")},
        },
        rows=[_row(e) for e in episodes],
        tasks=tasks,
    )


def _row(episode: dict[str, Any]) -> Row:
    data = episode["task"]["data"]
    trace = episode["traces"][0] if episode["traces"] else {}
    info = trace.get("info", {})
    failed = not episode["ok"] or "decision" not in info
    errors = [*trace.get("errors", []), *episode.get("errors", [])]
    usage = [call["usage"] for call in trace.get("calls", []) if call.get("usage")]
    decision = None if failed else Decision.model_validate({"action": None, **info["decision"]})
    return Row(
        key=episode["task"]["key"],
        case_id=data["id"],
        rotation=data["rotation"],
        stratum=data["stratum"],
        gold=tuple(data["gold"]),
        actions=tuple(data["actions"]),
        decision=decision,
        error=(errors[-1]["type"] if errors else "unfinished") if failed else None,
        started=trace.get("timing", {}).get("start", 0.0),
        wall_s=info.get("reply", {}).get("wall_s"),
        input_tokens=sum(u["prompt_tokens"] + (u.get("cached_input_tokens") or 0) for u in usage),
        output_tokens=sum(u["completion_tokens"] for u in usage),
    )


def _expected(config: dict[str, Any]) -> int | None:
    """Number of tasks of the whole suite under the run's view."""
    taskset = config.get("env", {}).get("taskset")
    if taskset is None:
        return None
    view = View(**{name: taskset[name] for name in View.model_fields if name in taskset})
    smaller = view.model_copy(update={"catalogue_k": None})
    total = 0
    for case in load_cases(view.suite, taskset.get("split", "test")):
        offered = with_catalogue(case, smaller)
        if offered is not None:
            functions = max(len(offered.functions), view.catalogue_k or 0)
            total += functions if view.order == "rotations" else 1
    return total

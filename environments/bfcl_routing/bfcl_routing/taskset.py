"""Tasks: one routing decision each, its prompt made by a view, its reply graded on route only.

The label side of a case rides on the task's data (a task is rebuilt from its data in an environment server) but never
comes near the prompt, which `bfcl_routing.forms` builds from a `Shown` alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import verifiers.v1 as vf
from bfcl_rollout.errors import SetupError
from bfcl_rollout.request_harness import REPLY_KEY, RequestData
from pydantic import Field, ValidationError, model_validator

from bfcl_routing.answers import write_answer
from bfcl_routing.cards import CardPolicy
from bfcl_routing.cases import Case, load_cases
from bfcl_routing.catalogue import with_catalogue
from bfcl_routing.decision import Decision, decide
from bfcl_routing.forms import build
from bfcl_routing.manifest import Split, Stratum, Suite, load_manifest
from bfcl_routing.scoring import brier, declines, metrics, route_correct
from bfcl_routing.view import FormName, IdPolicy, MetaPolicy, Sampler, View, show, visible_sha256
from bfcl_routing.wording import FrozenWordingError, Wording, WordingName, load_wording

DECISION_KEY = "decision"
"""Where `trace.info` holds the normalised decision."""


class RoutingData(RequestData):
    """One decision: the request, and what its answers mean."""

    suite: Suite = "v1"
    split: Split = "test"
    view: str = ""
    """Name of the view."""
    view_sha256: str = ""
    """Identity of the view; results with different ones are never merged."""
    form: FormName = "id_text"
    codes: list[str] = Field(default_factory=list)
    """What stands for each offered option in the answer, in the order shown."""
    actions: list[str] = Field(default_factory=list)
    """Native action id of each offered option."""
    rotation: int = 0
    """By how many places the function block is rotated."""
    stratum: Stratum = "multi_tool_call"
    gold: list[str] = Field(default_factory=list)
    """Functions that are right; empty if none is."""
    reviewed: bool = True
    """Somebody looked at the label."""


class RoutingTaskConfig(vf.TaskConfig):
    reward: Literal["route", "brier"] = "route"
    """`route`: 1 for a right route, else 0. `brier`: one minus half the Brier score of the answer's probabilities, for
    training on forms that give some (`distribution`, `typed_question`, `letters_logprob`); an invalid answer gets 0."""


class RoutingConfig(vf.TasksetConfig):
    task: RoutingTaskConfig = RoutingTaskConfig()
    suite: Suite = "v1"
    """Which pilot: `v1` or `v4_live`."""
    split: Split = "test"
    """`test` is the pilot. `train` and `dev` are other rows, with other functions; both suites share them."""
    wording: WordingName = "neutral"
    """`neutral` is this package's wording, `frozen` the original pilots' (read from the original dataset)."""
    frozen_file: Path | None = None
    """Local copy of the original cases, for `frozen`. Without it the hub's cache and then the hub are asked."""
    form: FormName = "id_text"
    """How the question is put and the answer read."""
    card: CardPolicy = "suite"
    """What is told about a function: `suite` (as the pilot does), `short120`, `full`, `schema` or `name`."""
    ids: IdPolicy = "native"
    """Ids shown: the functions' own names, `opaque` ones, or `letters`."""
    meta: MetaPolicy = "three"
    """No-function actions: the wording's `three`, the `neutral` three, one `generic`, or `none`."""
    order: str = "frozen"
    """Order of the options: `frozen`, `reversed`, `meta_last`, `rotate:N`, `shuffle:SEED`, or `rotations` (each case
    once per rotation of its functions)."""
    catalogue_k: int | None = Field(None, ge=2)
    """Offer this many functions, filled up with screened functions of other rows."""
    sampler: Sampler = "random"
    """Which functions fill up: `random` ones, or the `nearest` to the right one."""
    seed: int = 0
    """Seed of the filling."""
    gold_removed: bool = False
    """Take the right function away: multi-tool positives become negatives, the other cases are left out."""

    @model_validator(mode="after")
    def _policies_go_together(self) -> Self:
        try:
            self.as_view()
        except ValidationError as error:
            raise ValueError("; ".join(e["msg"].removeprefix("Value error, ") for e in error.errors())) from None
        return self

    def as_view(self) -> View:
        """The view that the fields name."""
        return View(**{name: getattr(self, name) for name in View.model_fields})


class RoutingTask(vf.Task[RoutingData, vf.State, RoutingTaskConfig]):
    """Reads the decision from the reply and scores its route."""

    @property
    def key(self) -> str:
        """Case, view and rotation: stable, and unique within a taskset."""
        return task_key(self.data)

    def decision(self, trace: vf.Trace) -> Decision:
        """The decision in a trace's reply."""
        return decide(self.data.form, self.data.codes, self.data.actions, reply_choice(trace))

    async def finalize(self, trace: vf.Trace) -> None:  # type: ignore[override]  # verifiers passes what is named
        """Leave the decision on the trace."""
        trace.info[DECISION_KEY] = self.decision(trace).model_dump(mode="json", exclude_defaults=True)

    @vf.reward
    async def route_correct(self, trace: vf.Trace) -> float:
        """1 for the exact function, or any no-function action where no function applies."""
        decision = self.decision(trace)
        if self.config.reward == "route":
            return float(route_correct(decision, self.data.gold))
        if decision.distribution is None:
            return 0.0
        return 1.0 - brier(decision.distribution, self.data.gold) / 2

    @vf.metric
    async def routing(self, trace: vf.Trace) -> dict[str, float]:
        """The measures of `bfcl_routing.scoring.metrics`."""
        return metrics(self.decision(trace), self.data.gold)

    async def validate(self, runtime: Any) -> bool | None:
        """Whether an obedient answer with the label is graded right, and any other wrong."""
        data = self.data
        for index, action in enumerate(data.actions):
            right = action in data.gold if data.gold else declines(action)
            choice = write_answer(data.form, data.codes, index).choice()
            if route_correct(decide(data.form, data.codes, data.actions, choice), data.gold) != right:
                return False
        answerable = any(a in data.gold if data.gold else declines(a) for a in data.actions)
        return answerable or (not data.gold and data.form == "tool_call")


def task_key(data: RoutingData) -> str:
    """Identity of a task: split, case, rotation and view."""
    return f"{data.suite}/{data.split}/{data.id}/{data.rotation}/{data.view_sha256[:16]}"


def reply_choice(trace: vf.Trace) -> dict[str, Any] | None:
    """The reply of a trace: as the endpoint sent it, else the last assistant message; None if there is none."""
    stored = trace.info.get(REPLY_KEY)
    if isinstance(stored, Mapping):
        return dict(stored["choice"])
    for node in reversed(trace.nodes):
        if node.message.role == "assistant":
            message = node.message
            calls = [{"function": {"name": c.name, "arguments": c.arguments}} for c in message.tool_calls or []]
            return {"message": {"content": message.content, "tool_calls": calls}}
    return None


class RoutingTaskset(vf.Taskset[RoutingTask, RoutingConfig]):
    """Cases of one suite and split under one view."""

    def load(self) -> Iterator[RoutingTask]:
        """Build every task, each case verified against the manifest first.

        Raises:
            SourceMismatchError: the installed package's data is not what the manifest was made from.
            FrozenWordingError: the original wording cannot be had, or a case built with it is not the original.
            SetupError: the view's policies do not go together.
        """
        view = self.config.as_view()
        wording = load_wording(view.wording, view.suite, self.config.frozen_file)
        cases = load_cases(view.suite, self.config.split)
        if view.wording == "frozen":
            check_frozen(cases, view.suite, wording)
        digest = view.sha256(wording)
        for case in cases:
            for data in plays(case, view, wording, digest):
                yield RoutingTask(data, self.config.task)


def plays(case: Case, view: View, wording: Wording, digest: str) -> Iterator[RoutingData]:
    """The task data of a case: one, or one per rotation, or none where the view has no use for the case.

    Raises:
        SetupError: the view cannot express the case.
    """
    try:
        offered = with_catalogue(case, view)
        if offered is None:
            return
        turns = len(offered.functions) if view.order == "rotations" else 1
        for rotation in range(turns):
            play = show(offered, view, wording, rotation)
            prompt = build(view.form, play.shown)
            yield RoutingData(
                id=case.id,
                name=case.id,
                system_prompt=prompt.system,
                prompt=prompt.user,
                request=prompt.request,
                suite=view.suite,
                split=case.split,
                view=view.name,
                view_sha256=digest,
                form=view.form,
                codes=list(prompt.codes),
                actions=list(play.actions),
                rotation=rotation,
                stratum=offered.stratum,
                gold=list(play.gold),
                reviewed=case.reviewed,
            )
    except ValueError as error:
        raise SetupError(f"view {view.name}: {error}") from error


def check_frozen(cases: tuple[Case, ...], suite: Suite, wording: Wording) -> None:
    """Compare every pilot case, built with the original wording, with the hash of the original.

    Cases outside the pilots have no original and pass.

    Raises:
        FrozenWordingError: one differs; the message names it.
    """
    expected = {entry.id: entry.visible_sha256 for entry in load_manifest(suite).cases}
    original = View(suite=suite, wording="frozen")
    for case in cases:
        if case.split == "test" and visible_sha256(show(case, original, wording).shown) != expected[case.id]:
            raise FrozenWordingError(f"case {case.id}: what the model would see is not the original {suite} case")

"""What the routing tests share: where the original wording lies, and small builders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from bfcl_rollout.scripted.reply import completion
from bfcl_routing import policies
from bfcl_routing.cases import Case, load_cases
from bfcl_routing.decision import Decision, decide
from bfcl_routing.report.runs import Row
from bfcl_routing.taskset import RoutingData, plays
from bfcl_routing.view import FormName, View
from bfcl_routing.wording import NEUTRAL, Wording

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "routing"
FROZEN_FILES = {"v1": "bfcl_v1_frozen_cases.jsonl", "v4_live": "bfcl_v4_live_frozen_view.jsonl"}
ALL_FORMS: tuple[FormName, ...] = get_args(FormName)


def shared(name: str) -> Path:
    """A file of the original data. It is no part of the repository, so a fresh clone has none of it."""
    if not SHARED.is_dir():
        pytest.skip(f"the original pilots' data is not beside this checkout ({SHARED})")
    path = SHARED / name
    assert path.exists(), f"{path} is missing"
    return path


def shared_json(name: str) -> Any:
    return json.loads(shared(name).read_text(encoding="utf-8"))


def task_data(view: View, wording: Wording = NEUTRAL, cases: tuple[Case, ...] | None = None) -> list[RoutingData]:
    """Every task of a view over the test split."""
    digest = view.sha256(wording)
    found = load_cases(view.suite) if cases is None else cases
    return [data for case in found for data in plays(case, view, wording, digest)]


def body_of(data: RoutingData) -> dict[str, Any]:
    """The request body of a task, as the harness sends it."""
    messages = [{"role": "system", "content": data.system_prompt}, {"role": "user", "content": data.prompt}]
    return {"model": "test", "messages": messages, **data.request}


def play(choose: policies.Chooser, data: RoutingData) -> Decision:
    """The decision that comes of a chooser's reply to a task."""
    body = body_of(data)
    choice = completion(policies.answer(choose, body), body)["choices"][0]
    return decide(data.form, data.codes, data.actions, choice)


def row(
    case_id: str,
    action: str | None,
    gold: tuple[str, ...],
    *,
    actions: tuple[str, ...] = ("no_tool", "clarify", "cannot_answer", "f", "g"),
    stratum: str | None = None,
    distribution: dict[str, float] | None = None,
    rotation: int = 0,
    failed: bool = False,
) -> Row:
    """One rollout, as the reports read it."""
    decision = Decision(action=action, invalid=None if action else "unknown", distribution=distribution)
    return Row(
        key=f"{case_id}/{rotation}",
        case_id=case_id,
        rotation=rotation,
        stratum=stratum or ("multi_tool_call" if gold else "one_tool_no_call"),
        gold=gold,
        actions=actions,
        decision=None if failed else decision,
        error="ProviderError" if failed else None,
        started=0.0,
        wall_s=0.01,
        input_tokens=10,
        output_tokens=1,
    )

"""Builders for the credit tests: published numbers, records, and real verifiers episodes."""

from __future__ import annotations

import csv
import functools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import verifiers.v1 as vf
from bfcl_multi_turn.interactive.records import INFO_KEY, Interaction, InteractionLog, ParsedCall, Protocol
from verifiers.v1.graph import MessageNode
from verifiers.v1.runtimes.subprocess import SubprocessConfig
from verifiers.v1.trace import AgentInfo, TraceTask

ORACLES = Path(__file__).parents[2] / "shared/data/credit/runtime_interaction_credit_oracles.json"
"""Published and derived numbers. They quote benchmark data, so they lie beside the repository, not in it."""


def oracles() -> dict[str, Any]:
    """The oracle file, or a skip that says what was not checked."""
    if not ORACLES.is_file():
        pytest.skip(f"published numbers not checked: no {ORACLES.name} beside the repository")
    return _load()


@functools.cache
def _load() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(ORACLES.read_text())
    return loaded


def vectors(kind: str) -> list[dict[str, Any]]:
    """All oracle vectors of one kind; fails if there is none."""
    found = [vector for vector in oracles()["vectors"] if vector["kind"] == kind]
    assert found, f"no oracle of kind {kind}"
    return found


PUBLISHED_NUMBERS = ["r_j", "R_j", "peer_support", "peer_mean_R", "peer_sample_std_R", "A_local", "A_RODS", "A_TW"]
"""Columns of the published table that hold numbers of a step."""


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def check_published_rows(rows: Sequence[Mapping[str, str]]) -> None:
    """The table of the case study: all 36 rows, to the printed precision, and each outcome."""
    study = oracles()["k16_group"]
    assert [float(row["R_P"]) for row in rows if row["runtime_depth"] == "0"] == study["R_P_by_offset"]
    assert len(rows) == len(study["rows"]) == 36
    for row, wanted in zip(rows, study["rows"], strict=True):
        for name in ("rollout_offset", "runtime_interaction_index", "response_type"):
            assert row[name] == str(wanted[name])
        assert json.loads(row["parsed_calls"]) == wanted["parsed_calls"]
        for name in PUBLISHED_NUMBERS:
            digits = len(str(wanted["published"][name]).partition(".")[2])
            assert round(float(row[name]), digits) == wanted["published"][name], (row, name)
            assert float(row[name]) == pytest.approx(wanted["recomputed"][name], abs=1e-12)


def think(action: str, thought: str = "plan") -> str:
    return f"<think>{thought}</think>\n{action}"


def tool_text(*calls: tuple[str, dict[str, Any]]) -> str:
    """A well-formed action: one object for one call, an array for several."""
    objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return think(f"<tool_call>{json.dumps(objects[0] if len(objects) == 1 else objects)}</tool_call>")


def answer_text(text: str = "done") -> str:
    return think(f"<answer>{text}</answer>")


def near(actual: Sequence[float], expected: Sequence[float], tolerance: float) -> bool:
    return len(actual) == len(expected) and all(abs(a - e) <= tolerance for a, e in zip(actual, expected, strict=True))


def call(name: str, *, idx: int = 0, valid: bool = True, **arguments: Any) -> ParsedCall:
    return ParsedCall(call_idx=idx, name=name, arguments=arguments, valid=valid)


def tool_step(user_turn: int, index: int, *calls: ParsedCall, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn,
        index=index,
        response_type="tool_call",
        attempted_type="tool_call",
        calls=list(calls),
        call_parse_reliable=True,
        **{"code": -1, **more},
    )


def error_step(user_turn: int, index: int, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn,
        index=index,
        response_type="parse_error",
        parser_error="missing_think",
        **{"code": -3, **more},
    )


def answer_step(user_turn: int, index: int, **more: Any) -> Interaction:
    return Interaction(
        user_turn=user_turn, index=index, response_type="answer", attempted_type="answer", **{"code": 1, **more}
    )


# --- real verifiers objects ----------------------------------------------------------


def build_trace(
    log: InteractionLog | None,
    *,
    tokens: int | None = 3,
    reward: float | None = 0.5,
    trainable: bool = True,
    texts: Sequence[str] = (),
    **more: Any,
) -> vf.Trace:
    """A finished trace: system and user message, then one assistant and one user message per interaction.

    The assistant of interaction n is node `2 + 2n`; it has 2 template and `tokens` sampled tokens (None: no tokens
    at all, as when an API model played).
    """
    entry_id = log.entry_id if log else "multi_turn_base_0"
    nodes: list[MessageNode] = [
        MessageNode(message=vf.SystemMessage(content="rules"), **_tokens(tokens, 5, 0)),
        MessageNode(parent=0, message=vf.UserMessage(content="question"), **_tokens(tokens, 4, 0)),
    ]
    for position, step in enumerate(log.interactions if log else []):
        text = texts[position] if position < len(texts) else f"reply {step.user_turn}.{step.index}"
        nodes.append(
            MessageNode(
                parent=len(nodes) - 1,
                sampled=True,
                message=vf.AssistantMessage(content=text),
                **_tokens(tokens, 2, tokens or 0),
            )
        )
        nodes.append(
            MessageNode(
                parent=len(nodes) - 1, message=vf.UserMessage(content="\n".join(step.results)), **_tokens(tokens, 4, 0)
            )
        )
    trace: vf.Trace = vf.Trace(
        task=TraceTask(type="Task", data=vf.TaskData(name=entry_id), key=entry_id),
        agent=AgentInfo(config=vf.AgentConfig(runtime=SubprocessConfig()), trainable=trainable),
        nodes=nodes,
        ok=True,
        is_completed=True,
        **more,
    )
    if log is not None:
        trace.info[INFO_KEY] = log.model_dump(mode="json")
    if reward is not None:
        trace.record_reward("progress", reward)
    return trace


def _tokens(tokens: int | None, template: int, sampled: int) -> dict[str, Any]:
    if tokens is None:
        return {}
    count = template + sampled
    return {"token_ids": list(range(count)), "mask": [False] * template + [True] * sampled, "logprobs": [0.0] * sampled}


def build_episode(*traces: vf.Trace, **more: Any) -> vf.Episode:
    return vf.Episode(task=traces[0].task, traces=list(traces), ok=True, **more)


def build_log(
    interactions: Sequence[Interaction],
    scores: Sequence[int | None],
    *,
    protocol: Protocol = "official",
    entry_id: str = "multi_turn_base_0",
) -> InteractionLog:
    """A log whose interactions point at the nodes that `build_trace` gives them."""
    placed = [step.model_copy(update={"node": 2 + 2 * position}) for position, step in enumerate(interactions)]
    return InteractionLog.model_validate(
        {
            "protocol": protocol,
            "entry_id": entry_id,
            "turn_scores": list(scores),
            "interactions": [step.model_dump() for step in placed],
        }
    )

"""Traces of the interactive protocol as ToolWeave's raw trajectory file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import verifiers.v1 as vf
from bfcl_rollout import official
from verifiers.v1.types import content_text

from bfcl_multi_turn.credit.group import CreditError
from bfcl_multi_turn.credit.runs import token_span
from bfcl_multi_turn.credit.source import official_entry, official_gold
from bfcl_multi_turn.credit.traces import TraceGroup
from bfcl_multi_turn.credit.trajectories import SCHEMA
from bfcl_multi_turn.interactive.records import Interaction, InteractionLog

Entry = dict[str, Any]


def trajectory_lines(groups: Iterable[TraceGroup], entries: Callable[[str], Entry] = official_entry) -> Iterator[str]:
    """One JSON line per trace, in the order of the groups.

    Raises:
        CreditError: a trace was not played in the interactive protocol, whose text the format is about.
    """
    index = 0
    for group in groups:
        gold = official_gold(group.entry_id).turns
        entry = entries(group.entry_id)
        for offset, (trace, log) in enumerate(zip(group.traces, group.logs, strict=True)):
            if log.protocol != "interactive":
                raise CreditError(f"trace {trace.id}: only rollouts of the interactive protocol can be exported")
            row = _trajectory(trace, log, entry, gold, index, offset)
            yield json.dumps(row, sort_keys=True, ensure_ascii=False)
            index += 1


def _trajectory(
    trace: vf.Trace, log: InteractionLog, entry: Entry, gold: Sequence[Sequence[str]], index: int, offset: int
) -> dict[str, Any]:
    nodes = trace.branches[-1].nodes if trace.nodes else []
    start = next((place for place, node in enumerate(nodes) if node.sampled), len(nodes))
    total = sum(len(node.token_ids) for node in nodes)
    prompt = sum(len(node.token_ids) for node in nodes[:start])
    if start < len(nodes):
        prompt += len(nodes[start].mask) - sum(nodes[start].mask)
    provenance = _provenance(trace, log, entry, gold, offset)
    return {
        "trajectory_index": index,
        "epoch": 0,
        "global_step": 0,
        "batch_index": 0,
        "prompt_text": _text(nodes[:start]),
        "response_text": _text(nodes[start:]),
        "effective_total_tokens": total,
        "trainable_response_tokens": total - prompt,
        "non_tensor": {
            "uid": log.entry_id,
            "index": log.entry_id,
            "data_source": provenance["data_type"],
            "ability": "multi_turn_tool_use",
            "reward_model": {"style": "interaction", "ground_truth": gold},
            "reward_scores": {"user_turn_rewards": log.codes},
            "messages": {
                "messages": [{"role": node.message.role, "content": _content(node.message)} for node in nodes]
            },
            "extra_info": {
                "split": "train",
                "index": log.entry_id,
                "original_id": log.entry_id,
                "dataset_type": provenance["data_type"],
                "interaction_kwargs": {
                    "name": "multi_turn_tool_call",
                    "id": log.entry_id,
                    "initial_config": json.dumps(entry["initial_config"], ensure_ascii=False),
                    "involved_classes": entry["involved_classes"],
                    "ground_truth": gold,
                    "question": entry["question"],
                    "processed_question": _later_questions(entry),
                },
            },
            "matchtir_provenance": provenance,
        },
    }


def _provenance(
    trace: vf.Trace, log: InteractionLog, entry: Entry, gold: Sequence[Sequence[str]], offset: int
) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA,
        "prompt_id": log.entry_id,
        "data_type": log.entry_id.rpartition("_")[0],
        "questions": entry["question"],
        "ground_truth": gold,
        "available_functions": entry["function"],
        "original_tool_updates": [
            {"turn_id": int(turn), "tools": tools} for turn, tools in sorted(entry.get("missed_function", {}).items())
        ],
        "initial_config": entry["initial_config"],
        "context_reliable": True,
        "context_error": None,
        "rollout_id": trace.id,
        "rollout_offset": offset,
        "batch_data_id": log.entry_id,
        "policy_steps": [_step(trace, step, entry, gold, offset) for step in log.interactions],
    }


def _step(
    trace: vf.Trace, step: Interaction, entry: Entry, gold: Sequence[Sequence[str]], offset: int
) -> dict[str, Any]:
    if step.node is None:
        raise CreditError(f"trace {trace.id}, user turn {step.user_turn}: interaction {step.index} has no node")
    span = token_span(trace, step)
    question = "\n".join(message["content"] for message in entry["question"][step.user_turn])
    reliable = step.temporal_reliable and step.response_type != "parse_error" and span is not None
    return {
        "prompt_id": entry["id"],
        "rollout_id": trace.id,
        "rollout_offset": offset,
        "user_turn_id": step.user_turn,
        "policy_step_id": step.index,
        "runtime_interaction_index": step.index,
        "tool_attempt_index": step.tool_attempt_index,
        "response_type": step.response_type,
        "attempted_action_type": step.attempted_type,
        "action_classification_reliable": step.attempted_type != "unknown",
        "temporal_provenance_reliable": step.temporal_reliable,
        "call_parse_reliable": step.call_parse_reliable,
        "parser_error_code": step.parser_error,
        "raw_policy_response": _content(trace.nodes[step.node].message),
        "calls": [call.model_dump() for call in step.calls],
        "ground_truth": gold[step.user_turn],
        "user_question": question,
        "is_missing_ground_truth": not gold[step.user_turn],
        "local_credit_semantics": "runtime_interaction_final",
        "actor_span": {"start": span[0], "end": span[1]} if span else None,
        "actor_span_reliable": span is not None,
        "provenance_reliable": reliable,
        "provenance_error": step.parser_error or (None if span else "no_tokens"),
    }


def _later_questions(entry: Entry) -> list[str]:
    """The user texts of all turns but the first; a turn that restores functions hands out their documents."""
    with official.project_root():
        from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC as RESTORED

    texts = []
    for turn, messages in enumerate(entry["question"][1:], start=1):
        if messages:
            texts.append("\n".join(message["content"] for message in messages))
        else:
            documents = entry.get("missed_function", {}).get(str(turn), [])
            texts.append(f"{json.dumps(documents, ensure_ascii=False)}\n{RESTORED}")
    return texts


def _text(nodes: Sequence[vf.graph.MessageNode]) -> str:
    return "\n".join(_content(node.message) for node in nodes)


def _content(message: vf.Message) -> str:
    return content_text(message.content)

"""Grade a rollout with the official checker. The only code that loads the answer key.

Runs in a process of its own, forked after the rollout's process has ended, so that nothing a model writes is ever
executed where the key is.
"""

from __future__ import annotations

import json
from typing import Any

from bfcl_rollout.records import GradeSpec, Verdict
from bfcl_rollout.worker import conversation, upstream

Answers = dict[str, Any]
"""Accepted answers by official test id."""


def load_answers(category: str) -> Answers:
    """The answer key of a category."""
    from bfcl_eval.utils import load_ground_truth_entry

    return {entry["id"]: entry["ground_truth"] for entry in load_ground_truth_entry(category)}


def grade(spec: GradeSpec, answers: Answers, handler: Any) -> Verdict:
    """The official verdict for a result, by category. Conversations are graded by `worker.conversation`.

    Raises:
        KeyError: the entry is not a graded one (sessions are not).
        ValueError: the category has no grader here.
    """
    upstream.nested_calls = spec.mode == "prompting"
    if spec.category.startswith("memory"):
        return _grade_memory(spec, _golds(spec, answers), handler)
    raise ValueError(f"no grader for category {spec.category!r}")


def _golds(spec: GradeSpec, answers: Answers) -> Any:
    """The answer of one entry; the key of all three memory backends is written for `memory`."""
    key = spec.entry_id
    if spec.category.startswith("memory"):
        key = key.replace(spec.category, "memory", 1)
    return answers[key]


def _grade_memory(spec: GradeSpec, golds: list[str], handler: Any) -> Verdict:
    from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker
    from bfcl_eval.eval_checker.eval_runner import _evaluate_single_agentic_entry

    outcome = _evaluate_single_agentic_entry(
        handler,
        spec.entry_id,
        spec.result,
        golds,
        {"id": spec.entry_id, "question": spec.queries},
        spec.model,
        spec.category,
    )
    details = {
        "gold_in_prompt": any(agentic_checker(_text(m), golds)["valid"] for query in spec.queries for m in query),
        "gold_in_tool_result": any(agentic_checker(text, golds)["valid"] for text in spec.tool_results),
    }
    if outcome["valid"]:
        return Verdict(valid=True, details=details)
    error = outcome["error"]
    message = error["error_message"]
    return Verdict(
        valid=False,
        error_type=error["error_type"],
        error_message=message if isinstance(message, str) else " ".join(message),
        details=details,
    )


def selftest(spec: GradeSpec, answers: Answers, entry: dict[str, Any], handler: Any) -> bool:
    """Whether the checker passes an accepted answer of this entry and fails a result without one."""
    if spec.category.startswith("multi_turn"):
        return conversation.selftest(spec, _golds(spec, answers), entry)
    right = spec.model_copy(update={"result": [[str(_golds(spec, answers)[0])]]})
    untouched = spec.model_copy(update={"result": [[]]})
    return grade(right, answers, handler).valid and not grade(untouched, answers, handler).valid


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content)

"""Execute the calls of a conversation on BFCL's tools, in a process that has no answer key.

`bfcl evaluate` executes a model's calls again, on fresh tools, and compares the outcome with that of the accepted
calls. Here the two happen in different processes: this module is the first half, `worker.conversation` the second.
"""

from __future__ import annotations

from typing import Any

from bfcl_rollout.records import (
    OFFICIAL,
    ExecutedStep,
    ExecutedTurn,
    Execution,
    GradeSpec,
    RolloutRecord,
    RolloutSpec,
)
from bfcl_rollout.worker import states, upstream
from bfcl_rollout.worker.play import storable


class Toolbox:
    """The tools of one conversation in this process, created with the first use."""

    def __init__(self, entry: dict[str, Any], model_name: str, *, grading: bool = False) -> None:
        category = entry["id"].rsplit("_", 1)[0]
        self._arguments = {
            "initial_config": entry.get("initial_config", {}),
            "involved_classes": entry["involved_classes"],
            "model_name": model_name,
            "test_entry_id": entry["id"],
            "long_context": "long_context" in category or "composite" in category,
            "is_evaL_run": grading,
        }
        self.instances: dict[str, Any] = {}

    def run(self, calls: list[str]) -> list[str]:
        """Execute calls in order, each asked about by the call guard; one result text per call."""
        from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker

        results, self.instances = multi_turn_checker.execute_multi_turn_func_call(calls, **self._arguments)
        return [str(result) for result in results]


def execute(spec: GradeSpec, entry: dict[str, Any], handler: Any) -> Execution:
    """Execute what a rollout called, turn by turn, as `bfcl evaluate` does.

    Args:
        spec: the calls, or the raw replies for the handler to decode.
        entry: the official test entry.
        handler: decodes replies of `spec.mode`.
    """
    if spec.calls is not None:
        turns = spec.calls
    elif isinstance(spec.result, str):
        turns = []
    else:
        turns = [_decode(replies, handler) for replies in spec.result]
    upstream.nested_calls = spec.mode == "prompting" and spec.calls is None
    upstream.call_seconds = spec.call_s
    return run_turns(turns, entry, upstream.safe_model_name(spec.model))


def execute_again(record: RolloutRecord, spec: RolloutSpec, entry: dict[str, Any], handler: Any) -> Execution:
    """Execute a rollout's calls on fresh tools in the process that has just played it."""
    states.set_tables({})
    again = GradeSpec(
        entry_id=spec.entry_id,
        category=spec.category,
        mode=spec.mode,
        model=spec.model,
        result=record.result(),
        calls=None if spec.protocol == OFFICIAL else record.calls(),
        call_s=spec.limits.call_s,
    )
    return execute(again, entry, handler)


def run_turns(turns: list[list[list[str]]], entry: dict[str, Any], model_name: str) -> Execution:
    """Execute `turns[turn][step][call]` on fresh tools."""
    toolbox = Toolbox(entry, model_name, grading=True)
    executed = []
    for steps in turns:
        done = [ExecutedStep(calls=calls, results=toolbox.run(calls)) for calls in steps]
        executed.append(ExecutedTurn(steps=done, state=states.pack(toolbox.instances) if done else None))
    for step in (step for turn in executed for step in turn.steps):
        step.calls = [storable(call) for call in step.calls]
        step.results = [storable(result) for result in step.results]
    return Execution(turns=executed)


def _decode(replies: list[Any], handler: Any) -> list[list[str]]:
    """The replies of one turn that decode into calls (`eval_runner.py`, `_evaluate_single_multi_turn_entry`)."""
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import is_empty_execute_response

    decoded = []
    for reply in replies:
        try:
            calls = handler.decode_execute(reply, has_tool_call_tag=False)
            if not is_empty_execute_response(calls):
                decoded.append(calls)
        except Exception:  # whatever BFCL's decoder says no to is not a call
            continue
    return decoded

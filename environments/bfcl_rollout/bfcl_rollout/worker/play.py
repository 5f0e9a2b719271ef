"""Play one rollout: BFCL's own handler, from a spec to a record."""

from __future__ import annotations

import copy
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import openai

from bfcl_rollout import __version__, official
from bfcl_rollout.records import OFFICIAL, Failure, RolloutRecord, RolloutSpec, Step, Turn, Versions
from bfcl_rollout.worker import protocols, upstream


def play(
    spec: RolloutSpec, entry: dict[str, Any], handler: Any, folder: Path, versions: Versions
) -> RolloutRecord | Failure:
    """Play `entry` to its end with a prepared handler. `folder` is this rollout's own, empty.

    A failure of the endpoint, or anything BFCL raises, is a `Failure`; what the model does never is.
    """
    entry = copy.deepcopy(entry)
    upstream.nested_calls = spec.mode == "prompting"
    upstream.call_seconds = spec.limits.call_s
    upstream.blocked_calls.clear()
    upstream.aim(
        handler,
        model=spec.model,
        endpoint=spec.endpoint,
        secret=spec.secret,
        temperature=spec.temperature,
    )
    if spec.protocol != OFFICIAL:
        return _play_other(spec, entry, handler, versions)
    memory = _Memory(entry, spec, folder) if spec.category.startswith("memory") else None
    try:
        result, metadata = handler.inference(entry, include_input_log=False, exclude_state_log=True)
        end_memory = memory.end(handler) if memory else None
    except openai.APIError as error:
        return Failure(kind="endpoint", error_type=type(error).__name__, message=str(error))
    except UnicodeEncodeError as error:
        # Half of a surrogate pair, written as an escape in a call's arguments, came back as a tool result that no
        # request can carry. Officially the entry's result is this error.
        return RolloutRecord(
            test_id=spec.entry_id,
            category=spec.category,
            mode=spec.mode,
            turns=[],
            force_quit=False,
            inference_error=str(error),
            versions=versions,
        )
    except Exception as error:
        return Failure(kind="worker", error_type=type(error).__name__, message=str(error) or repr(error))
    turns = read_log(result, metadata["inference_log"], iter(upstream.blocked_calls))
    return RolloutRecord(
        test_id=spec.entry_id,
        category=spec.category,
        mode=spec.mode,
        turns=turns,
        force_quit=forced(metadata["inference_log"]),
        memory=end_memory,
        graded_message=graded_message(turns),
        input_tokens=_total(metadata["input_token_count"]),
        output_tokens=_total(metadata["output_token_count"]),
        versions=versions,
    )


def _play_other(spec: RolloutSpec, entry: dict[str, Any], handler: Any, versions: Versions) -> RolloutRecord | Failure:
    try:
        return protocols.player(spec.protocol)(spec, entry, handler, versions)
    except Exception as error:
        return Failure(kind="worker", error_type=type(error).__name__, message=str(error) or repr(error))


def versions_for(category: str, encoder_sha256: str | None = None) -> Versions:
    """What a record of this category was made with."""
    return Versions(
        bfcl_eval=official.VERSION,
        bfcl_rollout=__version__,
        python=platform.python_version(),
        openai=openai.__version__,
        encoder_sha256=encoder_sha256 if category == "memory_vector" else None,
        data_sha256=official.data_sha256(category),
    )


class _Memory:
    """BFCL's snapshot files for one rollout, in the rollout's own folder."""

    def __init__(self, entry: dict[str, Any], spec: RolloutSpec, folder: Path) -> None:
        from bfcl_eval.utils import (
            get_directory_structure_by_id,
            is_first_memory_prereq_entry,
            is_memory_prereq,
            populate_initial_settings_for_memory_test_cases,
        )

        populate_initial_settings_for_memory_test_cases([entry], folder)
        self.entry = entry
        self.session = is_memory_prereq(entry["id"])
        self.final = (
            folder / get_directory_structure_by_id(entry["id"]) / "memory_snapshot" / f"{entry['scenario']}_final.json"
        )
        if is_first_memory_prereq_entry(entry["id"]) != (spec.memory is None):
            # BFCL would carry on with an empty memory and a printed warning.
            raise ValueError(f"{entry['id']}: a memory to start from is needed by all but a scenario's first session")
        if spec.memory is not None:
            self.final.parent.mkdir(parents=True)
            self.final.write_text(spec.memory)

    def end(self, handler: Any) -> str:
        """Text of the final snapshot. BFCL writes it after a session; after a question it is written for the record."""
        if not self.session:
            from bfcl_eval.model_handler import base_handler

            _, instances = base_handler.execute_multi_turn_func_call(
                [],
                self.entry["initial_config"],
                self.entry["involved_classes"],
                handler.model_name_underline_replaced,
                self.entry["id"],
            )
            (instance,) = instances.values()
            instance._flush_memory_to_local_file()
        text: str = self.final.read_text()
        return text


def read_log(result: list[Any], log: list[Any], blocked: Iterable[list[int]] = ()) -> list[Turn]:
    """Turns and steps from BFCL's result and inference log (`base_handler.py`, `inference_multi_turn_*`)."""
    blocked = iter(blocked)
    turns = []
    logged = [item for item in log if isinstance(item, dict)]
    for replies, turn_log in zip(result, logged, strict=True):
        steps = [_step(raw, turn_log[f"step_{index}"], blocked) for index, raw in enumerate(replies)]
        turns.append(Turn(query=turn_log["begin_of_turn_query"], steps=steps))
    return turns


def _step(raw: Any, entries: list[dict[str, Any]], blocked: Iterable[list[int]]) -> Step:
    step = Step(raw=raw)
    for entry in entries:
        if entry["role"] == "tool":
            step.results.append(storable(entry["content"]))
        elif "error" in entry:
            step.error = storable(entry["error"])
        elif "model_response_decoded" in entry:
            step.decoded = [storable(call) for call in entry["model_response_decoded"]]
    if step.results:
        step.blocked = next(iter(blocked), [])
    return step


def storable(text: str) -> str:
    """`text` with lone surrogates written as escapes: UTF-8, and so JSON, cannot hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def forced(log: list[Any]) -> bool:
    """Whether BFCL ended the rollout at its step limit."""
    return any(
        entry["role"] == "handler_log" and entry["content"].startswith("Model has been forced to quit")
        for turn in log
        if isinstance(turn, dict)
        for name, entries in turn.items()
        if name.startswith("step_")
        for entry in entries
    )


def graded_message(turns: list[Turn]) -> Any:
    """The last reply that did not decode into calls (`eval_runner.py`, `_evaluate_single_agentic_entry`)."""
    ending = [step.raw for turn in turns for step in turn.steps if not step.results]
    return ending[-1] if ending else None


def _total(counts: list[list[float]]) -> int:
    return int(sum(sum(turn) for turn in counts))

"""What a category must say about itself, and how BFCL's result and score files are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from bfcl_rollout.errors import SetupError

from parity.assign import Entry
from parity.observation import Facts

ERROR_PREFIX = "Error during inference: "
"""What BFCL stores as the result of an entry whose rollout raised."""
_FORCED = "Model has been forced to quit"


class Selection(NamedTuple):
    """Which part of a category to play; None is all of it."""

    scenarios: tuple[str, ...] | None = None
    ids: tuple[str, ...] | None = None


class Row(NamedTuple):
    """What one side says about one rollout."""

    facts: Facts
    failure: str | None


class Category(Protocol):
    """One BFCL category as both sides play it."""

    @property
    def name(self) -> str:
        """BFCL's name, e.g. `memory_kv`."""

    @property
    def environment(self) -> str:
        """The environment that plays it."""

    def entries(self, selection: Selection) -> list[Entry]:
        """The rollouts of a selection, in BFCL's order.

        Raises:
            SetupError: the selection names something that does not exist, or that this category cannot select by.
        """

    def facts(self, test_id: str) -> tuple[str, ...]:
        """Names of the facts that both sides must state about a rollout."""

    def run_arguments(self, selection: Selection, mode: str, concurrency: int) -> list[str]:
        """Arguments of `vf-run` behind the environment's id that play a selection."""

    def official_rows(self, root: Path, registry_name: str) -> dict[str, Row]:
        """What official BFCL left in its project root, by test id."""

    def our_row(self, trace: Mapping[str, Any]) -> tuple[str, Row]:
        """Test id and row of one trace of ours."""


def storable(value: Any) -> Any:
    """A JSON value whose texts have lone surrogates written as escapes, as our records hold them."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, list):
        return [storable(each) for each in value]
    if isinstance(value, dict):
        return {storable(key): storable(each) for key, each in value.items()}
    return value


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a BFCL result or score file."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


def result_facts(row: Mapping[str, Any]) -> Row:
    """Replies, calls, results and forced end of one row of a result file."""
    result = row["result"]
    if isinstance(result, str):
        return Row({"replies": storable(result), "calls": [], "results": [], "forced": False}, None)
    calls: list[list[Any]] = []
    results: list[list[list[str]]] = []
    forced = False
    # State logs are lists and stand between the turns.
    for turn in (item for item in row["inference_log"] if isinstance(item, dict)):
        calls.append([])
        results.append([])
        for name in (name for name in turn if name.startswith("step_")):
            decoded: Any = None
            outputs = []
            for entry in turn[name]:
                if entry["role"] == "tool":
                    outputs.append(entry["content"])
                elif "error" in entry:
                    decoded = {"error": entry["error"]}
                elif "model_response_decoded" in entry:
                    decoded = entry["model_response_decoded"]
                elif entry["role"] == "handler_log" and entry["content"].startswith(_FORCED):
                    forced = True
            calls[-1].append(decoded)
            results[-1].append(outputs)
    return Row(storable({"replies": result, "calls": calls, "results": results, "forced": forced}), None)


def record_facts(record: Mapping[str, Any]) -> Facts:
    """The same of one of our stored records."""
    if record["inference_error"] is not None:
        replies: Any = ERROR_PREFIX + record["inference_error"]
        return storable({"replies": replies, "calls": [], "results": [], "forced": False})  # type: ignore[no-any-return]
    turns = record["turns"]
    facts: Facts = storable(
        {
            "replies": [[step["raw"] for step in turn["steps"]] for turn in turns],
            "calls": [
                [step["decoded"] if step["error"] is None else {"error": step["error"]} for step in turn["steps"]]
                for turn in turns
            ],
            "results": [[step["results"] for step in turn["steps"]] for turn in turns],
            "forced": record["force_quit"],
        }
    )
    return facts


def read_verdicts(path: Path, graded: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The verdict for each graded id from a score file, which lists only the failed ones.

    Raises:
        SetupError: the file's own counts do not agree with its rows.
    """
    header, *failed = read_lines(path)
    verdicts: dict[str, dict[str, Any]] = {
        test_id: {"valid": True, "error_type": None, "error_message": None} for test_id in graded
    }
    for row in failed:
        message = row["error"]["error_message"]
        verdicts[row["id"]] = {
            "valid": False,
            "error_type": row["error"]["error_type"],
            "error_message": storable(message if isinstance(message, str) else " ".join(message)),
        }
    passed = sum(verdict["valid"] for verdict in verdicts.values())
    if (header["correct_count"], header["total_count"]) != (passed, len(verdicts)):
        raise SetupError(
            f"{path}: says {header['correct_count']} of {header['total_count']} passed, its rows {passed} of "
            f"{len(verdicts)}"
        )
    return verdicts


def our_verdict(verdict: Mapping[str, Any]) -> dict[str, Any]:
    """One of our stored verdicts in the same form."""
    return {
        "valid": verdict["valid"],
        "error_type": verdict["error_type"],
        "error_message": storable(verdict["error_message"]),
    }


def trace_failure(trace: Mapping[str, Any]) -> str | None:
    """Why a trace has no result, or None."""
    if trace["ok"]:
        return None
    errors = trace["errors"]
    if not errors:
        return f"stopped: {trace['stop_condition']}"
    return f"{errors[-1].get('type')}: {errors[-1].get('message')}"

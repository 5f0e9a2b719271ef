"""The memory category, one backend each: 37 sessions that leave snapshots, 155 questions that are graded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError

from parity.assign import Entry
from parity.categories import base
from parity.categories.base import Row, Selection

_LOOP_FACTS = ("replies", "calls", "results", "forced")


class MemoryCategory:
    """`memory_kv`, `memory_vector` or `memory_rec_sum`."""

    environment = "bfcl-v4-memory"

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.name = f"memory_{backend}"

    def entries(self, selection: Selection) -> list[Entry]:
        """Sessions, then questions, of the selected scenarios."""
        if selection.ids is not None:
            raise SetupError(f"{self.name} is selected by scenario: its questions need all of a scenario's sessions")
        found = official.load_entries(self.name)
        known = {entry["scenario"] for entry in found}
        wanted = known if selection.scenarios is None else set(selection.scenarios)
        if unknown := wanted - known:
            raise SetupError(f"unknown scenario {min(unknown)!r}; there are {', '.join(sorted(known))}")
        return [
            Entry(entry["id"], tuple(_user_text(turn) for turn in entry["question"]))
            for entry in found
            if entry["scenario"] in wanted
        ]

    def facts(self, test_id: str) -> tuple[str, ...]:
        """The loop's facts, and a session's snapshot or a question's verdict."""
        return (*_LOOP_FACTS, "snapshot" if _is_session(test_id) else "verdict")

    def run_arguments(self, selection: Selection, mode: str, concurrency: int) -> list[str]:
        """One vf-run over this backend's chains."""
        scenarios = [] if selection.scenarios is None else ["--env.taskset.scenarios", *selection.scenarios]
        return [
            *("--env.taskset.backends", self.backend),
            *scenarios,
            *(argument for role in ("prefill", "agent") for argument in _harness(role, mode)),
            *("--env.max-concurrent-agents", str(concurrency)),
        ]

    def official_rows(self, root: Path, registry_name: str) -> dict[str, Row]:
        """Results, snapshots and verdicts from BFCL's own files.

        Raises:
            SetupError: BFCL's files contradict one another.
        """
        place = Path("agentic") / "memory" / self.backend
        results = root / "result" / registry_name / place
        rows = {
            row["id"]: base.result_facts(row)
            for file in (f"BFCL_v4_{self.name}_prereq_result.json", f"BFCL_v4_{self.name}_result.json")
            for row in base.read_lines(results / file)
        }
        questions = [test_id for test_id in rows if not _is_session(test_id)]
        score = root / "score" / registry_name / place / f"BFCL_v4_{self.name}_score.json"
        for test_id, verdict in base.read_verdicts(score, questions).items():
            rows[test_id].facts["verdict"] = verdict
        snapshots = results / "memory_snapshot"
        for test_id in rows.keys() - set(questions):
            checkpoint = snapshots / "prereq_checkpoints" / f"{test_id}.json"
            if checkpoint.is_file():
                rows[test_id].facts["snapshot"] = checkpoint.read_bytes().decode()
            elif _broke(rows[test_id]):
                rows[test_id].facts["snapshot"] = None
        self._check_final(snapshots, rows)
        return rows

    def _check_final(self, snapshots: Path, rows: Mapping[str, Row]) -> None:
        """The file that questions read must be the last session's checkpoint, which is what is compared."""
        for final in snapshots.glob("*_final.json"):
            scenario = final.name.removesuffix("_final.json")
            sessions = [id_ for id_, row in rows.items() if f"-{scenario}-" in id_ and row.facts.get("snapshot")]
            last = max(sessions, key=lambda test_id: int(test_id.rsplit("-", 1)[1]))
            if final.read_bytes().decode() != rows[last].facts.get("snapshot"):
                raise SetupError(f"{final} is not the checkpoint of {last}, the scenario's last session")

    def our_row(self, trace: Mapping[str, Any]) -> tuple[str, Row]:
        """Record, end memory and verdict of a trace."""
        test_id = trace["task"]["data"]["entry_id"]
        info = trace["info"]
        failure = base.trace_failure(trace)
        if "bfcl" not in info:
            return test_id, Row({}, failure or "the trace has no record")
        facts = base.record_facts(info["bfcl"])
        if _is_session(test_id):
            facts["snapshot"] = info["bfcl"]["memory"]
        elif "verdict" in info:
            facts["verdict"] = base.our_verdict(info["verdict"])
        return test_id, Row(facts, failure)


def _harness(role: str, mode: str) -> list[str]:
    place = f"--env.{role}.harness"
    return [f"{place}.id", MemoryCategory.environment, f"{place}.mode", mode]


def _broke(row: Row) -> bool:
    """Whether what the model wrote made BFCL raise, so that a session wrote no memory."""
    replies = row.facts["replies"]
    return isinstance(replies, str) and replies.startswith(base.ERROR_PREFIX)


def _is_session(test_id: str) -> bool:
    return "_prereq_" in test_id


def _user_text(turn: list[dict[str, Any]]) -> str:
    (text,) = [message["content"] for message in turn if message["role"] == "user"]
    return str(text)

"""The multi-turn categories: 200 independent conversations each, all graded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError

from parity.assign import Entry
from parity.categories import base
from parity.categories.base import Row, Selection


class MultiTurnCategory:
    """`multi_turn_base`, `multi_turn_miss_func`, `multi_turn_miss_param` or `multi_turn_long_context`."""

    environment = "bfcl-multi-turn"

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.name = f"multi_turn_{variant}"

    def entries(self, selection: Selection) -> list[Entry]:
        """The selected conversations. A turn that only restores functions has no words of the user's."""
        if selection.scenarios is not None:
            raise SetupError(f"{self.name} has no scenarios; select by id")
        found = official.load_entries(self.name)
        # Ids of other categories of the same run are none of this one's business.
        wanted = None if selection.ids is None else [name for name in selection.ids if name.startswith(f"{self.name}_")]
        if unknown := set(wanted or ()) - {entry["id"] for entry in found}:
            raise SetupError(f"unknown test id {min(unknown)!r}")
        return [
            Entry(entry["id"], tuple(message["content"] for turn in entry["question"] for message in turn))
            for entry in found
            if wanted is None or entry["id"] in wanted
        ]

    def facts(self, test_id: str) -> tuple[str, ...]:
        """The loop's facts and the verdict."""
        return ("replies", "calls", "results", "forced", "verdict")

    def run_arguments(self, selection: Selection, mode: str, concurrency: int) -> list[str]:
        """One vf-run over this category."""
        ids = [] if selection.ids is None else [entry.test_id for entry in self.entries(selection)]
        return [
            *("--env.taskset.categories", self.variant),
            *(["--select.include.ids", *ids] if ids else []),
            *("--env.agent.harness.id", self.environment, "--env.agent.harness.mode", mode),
            *("--max-concurrent", str(concurrency)),
        ]

    def official_rows(self, root: Path, registry_name: str) -> dict[str, Row]:
        """Results and verdicts from BFCL's own files."""
        place = Path("multi_turn")
        results = root / "result" / registry_name / place / f"BFCL_v4_{self.name}_result.json"
        rows = {row["id"]: base.result_facts(row) for row in base.read_lines(results)}
        score = root / "score" / registry_name / place / f"BFCL_v4_{self.name}_score.json"
        for test_id, verdict in base.read_verdicts(score, [*rows]).items():
            rows[test_id].facts["verdict"] = verdict
        return rows

    def our_row(self, trace: Mapping[str, Any]) -> tuple[str, Row]:
        """Record and verdict of a trace."""
        test_id = trace["task"]["data"]["entry_id"]
        info = trace["info"]
        failure = base.trace_failure(trace)
        if "bfcl" not in info:
            return test_id, Row({}, failure or "the trace has no record")
        facts = base.record_facts(info["bfcl"])
        if "verdict" in info:
            facts["verdict"] = base.our_verdict(info["verdict"])
        return test_id, Row(facts, failure)

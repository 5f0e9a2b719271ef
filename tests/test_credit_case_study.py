"""The published case study, from sixteen rollouts played through the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
import verifiers.v1 as vf
from bfcl_multi_turn.credit import case_study
from bfcl_multi_turn.interactive.records import INFO_KEY, InteractionLog
from bfcl_rollout.harness import VERDICT_KEY
from credit_helpers import check_published_rows, oracles, read_csv
from verifiers.v1.utils.trace_store import TRACES_FILE


@pytest.mark.slow
def test_the_published_table_comes_out_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = oracles()["k16_group"]
    out = tmp_path / "run"
    assert case_study.main([str(out)]) == 0
    rows = read_csv(out / "credit" / "table.csv")
    check_published_rows(rows)
    printed = [line.split() for line in capsys.readouterr().out.splitlines() if "tool_call" in line or "parse_" in line]
    assert [line[-1] for line in printed] == [f"{float(row['A_TW']):.6g}" for row in rows]
    lines = (out / TRACES_FILE).read_text().splitlines()
    traces = [vf.WireEpisode.model_validate_json(line).traces[0] for line in lines]
    logs = [InteractionLog.model_validate(trace.info[INFO_KEY]) for trace in traces]
    assert all(log.entry_id == study["sample_id"] for log in logs)
    late = [step.parser_error for step in logs[9].interactions if step.user_turn == study["user_turn_id"]]
    assert late == study["parse_error_codes_user_turn_3"]["values"]
    # Offset 2 went wrong in its first turn, by the state of the tools, and never came right again.
    state = study["offset2_state_check"]
    assert logs[2].turn_scores == [0] * 5
    verdict = traces[2].info[VERDICT_KEY]
    assert verdict["error_type"] == state["error_type"]
    assert "TravelAPI" in verdict["error_message"]
    checks = verdict["details"]
    turn = study["user_turn_id"]
    assert (checks["state_pass"][turn], checks["response_pass"][turn]) == (False, True)
    assert case_study.main([str(out)]) == 2

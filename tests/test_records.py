"""The models that cross process boundaries and are stored."""

from __future__ import annotations

import pytest
from bfcl_rollout.records import RolloutRecord, RolloutSpec, Step, Turn, Versions
from pydantic import ValidationError

VERSIONS = Versions(bfcl_eval="1", bfcl_rollout="1", python="3", openai="1")


def record(**changes: object) -> RolloutRecord:
    fields = {"test_id": "x_1", "category": "x", "mode": "fc", "turns": [], "force_quit": False, "versions": VERSIONS}
    return RolloutRecord.model_validate(fields | changes)


def test_result_is_the_raw_replies_by_turn_and_step() -> None:
    turns = [Turn(query=[], steps=[Step(raw=[{"f": "{}"}], decoded=["f()"], results=["1"]), Step(raw="done")])]
    assert record(turns=turns).result() == [[[{"f": "{}"}], "done"]]


def test_result_of_a_rollout_that_made_bfcl_raise_is_the_official_text() -> None:
    assert record(inference_error="boom").result() == "Error during inference: boom"


def test_a_record_survives_its_own_json() -> None:
    before = record(turns=[Turn(query=[{"role": "user", "content": "é"}], steps=[Step(raw=None, error="x")])])
    assert RolloutRecord.model_validate_json(before.model_dump_json()) == before


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValidationError, match="surprise"):
        record(surprise=1)


def test_a_spec_does_not_show_its_secret() -> None:
    spec = RolloutSpec(entry_id="x_1", category="x", model="m", endpoint="http://e/v1", secret="tell-no-one")
    assert "tell-no-one" not in repr(spec)
    assert "tell-no-one" in spec.model_dump_json()

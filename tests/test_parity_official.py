"""Official BFCL itself, in its own environment, against ours: the slow, real thing on one scenario."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bfcl_rollout.scripted import ScriptedServer

from parity.__main__ import main
from parity.categories import CATEGORIES
from parity.categories.base import Selection
from parity.environment import official_environment
from parity.exchange import read_exchanges
from parity.runs import compare_again
from parity.sides import EXCHANGES, OfficialSide, OurSide

pytestmark = pytest.mark.slow


def run(*arguments: str, out: Path, status: int = 0) -> dict[str, Any]:
    assert main([*arguments, "--scenarios", "notetaker", "--out", str(out)]) == status
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    return report


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both sides against the policy of awkward replies, on the key-value backend."""
    folder = tmp_path_factory.mktemp("parity") / "cases"
    run("scripted", "cases", "--categories", "memory_kv", out=folder)
    return folder


def both(folder: Path, test_id: str, fact: str) -> list[Any]:
    """A fact of a rollout, as official BFCL and as our side state it."""
    category = CATEGORIES["memory_kv"]
    return [
        side.rows(category, folder / name / "memory_kv")[test_id].facts[fact]
        for name, side in (("official", OfficialSide()), ("ours", OurSide()))
    ]


def everything_said(folder: Path, side: str) -> str:
    """All messages of all requests of one side."""
    found = read_exchanges(folder / side / "memory_kv" / EXCHANGES)
    return "\n".join(json.dumps(each.body["messages"], ensure_ascii=False) for each in found)


def test_the_official_environment_has_the_wheels_own_pins() -> None:
    versions = official_environment().versions
    assert (versions["bfcl-eval"], versions["numpy"], versions["faiss-cpu"]) == ("2026.3.23", "1.26.4", "1.11.0")


def test_awkward_replies_are_handled_identically(cases: Path) -> None:
    report = json.loads((cases / "report.json").read_text())
    assert report["equal"]
    counts = {name: (count["equal"], count["total"]) for name, count in report["total"]["counts"].items()}
    assert counts["requests"] == (196, 196)
    assert counts["snapshot"] == (5, 5)
    assert counts["verdict"] == (25, 25)


def test_stored_text_with_a_tool_name_has_the_same_instance_name_in_it(cases: Path) -> None:
    sessions = [
        entry.test_id
        for entry in CATEGORIES["memory_kv"].entries(Selection(("notetaker",)))
        if "prereq" in entry.test_id
    ]
    official, ours = zip(*(both(cases, test_id, "snapshot") for test_id in sessions), strict=True)
    assert official == ours
    assert any("_MemoryAPI_kv_instance.core_memory_add(now)" in text for text in ours)


@pytest.mark.parametrize(
    "said",
    [
        "name 'send_email' is not defined",
        "Function call exit is not allowed.",
        "unexpected keyword argument 'nonsense'",
        "name 'nan' is not defined",
        '"reasoning_content": "Hm: a note, perhaps?"',
        '"vendor_field": true',
        '"refusal": null',
        "Grüße aus Köln, 東京",
        "A text that comes with an empty list of calls.",
        "the first choice counts",
    ],
)
def test_each_case_came_up_and_reached_the_model_on_both_sides(cases: Path, said: str) -> None:
    assert said in everything_said(cases, "official").replace('\\"', '"')
    assert said in everything_said(cases, "ours").replace('\\"', '"')


def test_a_second_choice_reached_neither_side(cases: Path) -> None:
    for side in ("official", "ours"):
        assert "the second choice does not" not in everything_said(cases, side)


def test_a_run_can_be_compared_again_from_its_files(cases: Path) -> None:
    _, found = compare_again(cases)
    assert found["equal"]


def test_the_written_form_of_calls_is_handled_identically(tmp_path: Path) -> None:
    report = run("scripted", "cases", "--categories", "memory_rec_sum", "--mode", "prompting", out=tmp_path / "run")
    assert report["total"]["counts"]["rollouts"] == {"equal": 30, "total": 30}


def test_live_reports_agreement_and_the_noise_between_two_official_runs(
    tmp_path: Path, scripted: ScriptedServer
) -> None:
    report = run(
        *("live", "--model", "recall", "--url", scripted.url, "--categories", "memory_rec_sum"), out=tmp_path / "run"
    )
    assert report["agreement"] == {
        "official and official-again": {"equal": 25, "total": 25},
        "official and ours": {"equal": 25, "total": 25},
        "official-again and ours": {"equal": 25, "total": 25},
    }
    assert "Agreement on verdicts" in (tmp_path / "run" / "report.md").read_text()

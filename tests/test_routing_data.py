"""The pilots' cases, rebuilt from the installed package and held against the originals' hashes."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import huggingface_hub.constants
import pytest
from bfcl_routing import commands, labels, pilot, source
from bfcl_routing.build import build_pilot, build_pool
from bfcl_routing.cards import json_schema, short_card
from bfcl_routing.cases import SUITES, Case, LeakError, build_case, load_cases, refuse_leaks
from bfcl_routing.hashing import rank_key, request_key, sha256_text, word_key
from bfcl_routing.manifest import Suite, load_manifest
from bfcl_routing.source import SourceMismatchError
from bfcl_routing.taskset import check_frozen
from bfcl_routing.view import View, show, visible_sha256
from bfcl_routing.wording import (
    HUB_FILE,
    HUB_REVISION,
    NEUTRAL,
    FrozenWordingError,
    frozen_wording,
    load_wording,
    read_frozen_rows,
)
from routing_helpers import FROZEN_FILES, shared, shared_json


@pytest.mark.parametrize("suite", SUITES)
def test_every_frozen_case_has_the_hash_of_the_original(suite: Suite) -> None:
    wording = frozen_wording(suite, shared(FROZEN_FILES[suite]))
    cases, manifest = load_cases(suite), load_manifest(suite)
    found = [visible_sha256(show(case, View(suite=suite, wording="frozen"), wording).shown) for case in cases]
    assert len(cases) == 250
    assert found == [entry.visible_sha256 for entry in manifest.cases]
    aggregate = sha256_text("".join(f"{c.id}\t{h}\n" for c, h in zip(cases, found, strict=True)))
    assert aggregate == manifest.visible_aggregate_sha256


@pytest.mark.parametrize("suite", SUITES)
def test_the_original_file_shows_the_same_text(suite: Suite) -> None:
    path = shared(FROZEN_FILES[suite])
    view, wording = View(suite=suite, wording="frozen"), frozen_wording(suite, path)
    for case, row in zip(load_cases(suite), read_frozen_rows(path), strict=True):
        shown = show(case, view, wording).shown
        assert (case.id, shown.state, shown.instruction) == (row["id"], row["state"], row["instruction"])
        assert [{"id": o.id, "description": o.card, "kind": o.kind} for o in shown.options] == row["options"]


@pytest.mark.parametrize("suite", SUITES)
def test_the_manifest_agrees_with_the_published_labels(suite: Suite) -> None:
    published = shared_json(f"routing_{suite}_cases.json")
    manifest = load_manifest(suite)
    assert manifest.visible_aggregate_sha256 == published["visible_aggregate_sha256"]
    assert {n: h for n, h in manifest.files.items() if n in published["wheel_source_sha256"]} == (
        published["wheel_source_sha256"]
    )
    for entry, theirs in zip(manifest.cases, published["cases"], strict=True):
        gold = theirs["gold_action_id"]
        assert entry.id == theirs["id"]
        assert entry.gold == (() if gold == "no_tool" else (gold,))
        assert (entry.stratum, entry.row_number) == (theirs["stratum"], theirs["row_number"])
        assert entry.visible_sha256 == theirs["visible_sha256"]
        assert theirs["wheel_file"] == f"bfcl_eval/data/{source.question_file(entry.category)}"


def test_strata_and_labels_of_both_pilots() -> None:
    for suite in SUITES:
        cases = load_cases(suite)
        counts = [sum(case.stratum == s for case in cases) for s in ("multi_tool_call", "one_tool_call")]
        assert [*counts, sum(case.stratum == "one_tool_no_call" for case in cases)] == [150, 50, 50]
        assert all(len(case.gold) == case.positive and set(case.gold) <= set(case.names) for case in cases)


def test_conversion_of_the_checkout_gives_the_original_file() -> None:
    wording = frozen_wording("v1", shared(FROZEN_FILES["v1"]))
    records = [pilot.convert_row(row, wording) for row in pilot.checkout_rows(shared("gorilla_v1"))]
    assert len(records) == 2000
    assert [r["id"] for r in records if r["warnings"]] == [
        "javascript_41",
        "parallel_multiple_function_179",
        "simple_363",
    ]
    text = pilot.to_jsonl(pilot.select(records))
    assert sha256_text(text) == "68868277c9f10c56706a5d8a1a79a78720582dd731fef414a4b7c4ae366cc602"
    assert text == shared(FROZEN_FILES["v1"]).read_text(encoding="utf-8")


def test_selection_from_the_package_gives_the_same_ids() -> None:
    records = [pilot.convert_row(row, NEUTRAL) for row in pilot.package_rows()]
    assert [r["id"] for r in pilot.select(records)] == [entry.id for entry in load_manifest("v1").cases]


def test_each_selection_rule_matters() -> None:
    records = [pilot.convert_row(row, NEUTRAL) for row in pilot.package_rows()]
    expected = [entry.id for entry in load_manifest("v1").cases]
    by_id = {r["id"]: r for r in records}
    # simple_305 ranks high enough to be picked were it not excluded.
    renamed = [{**r, "id": "simple_305x"} if r["id"] == "simple_305" else r for r in records]
    assert by_id["simple_305"]["score_eligible"]
    assert [r["id"] for r in pilot.select([r for r in renamed if r["id"] != "simple_305x"])] == expected
    assert rank_key("s", "a") == hashlib.sha256(b"s\0a").hexdigest()
    with pytest.raises(ValueError, match="quota"):
        pilot.select(records[:50])


@pytest.mark.slow
def test_the_manifests_can_be_made_again() -> None:
    for suite in SUITES:
        assert build_pilot(suite, shared(FROZEN_FILES[suite])) == load_manifest(suite)
    assert build_pool() == load_manifest("pool")


def test_a_changed_checkout_file_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "gorilla"
    shutil.copytree(shared("gorilla_v1"), folder, copy_function=shutil.copyfile)
    folder.chmod(0o755)
    target = folder / "gorilla_openfunctions_v1_test_simple.json"
    target.write_text(target.read_text(encoding="utf-8").replace("triangle", "square", 1), encoding="utf-8")
    with pytest.raises(SourceMismatchError, match=r"gorilla_openfunctions_v1_test_simple\.json has SHA-256"):
        list(pilot.checkout_rows(folder))


def test_a_changed_package_file_or_case_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceMismatchError, match=r"BFCL_v4_multiple\.json has SHA-256"):
        source.verify_files({"BFCL_v4_multiple.json": "0" * 64})
    with pytest.raises(SourceMismatchError, match=r"BFCL_v4_nothing\.json is missing"):
        source.verify_files({"BFCL_v4_nothing.json": "0" * 64})
    entry = next(e for e in load_manifest("v1").cases if e.id == "multiple_function_64")
    for changed, why in (
        ({"drop_text": None}, "request, functions or label"),
        ({"drop_text": "not there"}, "recorded edit"),
        ({"gold": ("other",)}, "label"),
        ({"row_id": "multiple_0"}, "is not there"),
        ({"row_number": 9999}, "is not there"),
    ):
        with pytest.raises(SourceMismatchError, match=f"multiple_function_64.*{why}"):
            build_case(entry.model_copy(update=changed))


def test_references_are_parsed_and_never_executed(tmp_path: Path) -> None:
    target = tmp_path / "touched"
    harmful = f"__import__('pathlib').Path({str(target)!r}).touch()"
    with pytest.raises(labels.UnreadableReferenceError):
        labels.called_functions([harmful])
    assert labels.called_functions([f"open({str(target)!r}, 'w')"]) == ["open"]
    assert labels.called_functions(["a.b.c(x=f(1))", {"g": {}}]) == ["a.b.c", "g"]
    assert labels.called_functions({"f": {}, "g": {}}) == ["f", "g"]
    for bad in ("f", "f(", "(lambda: 0)()", "f()()", "f()[0]()", "x = f()", "f(); g()"):
        with pytest.raises(labels.UnreadableReferenceError):
            labels.called_name(bad)
    assert not target.exists()


def test_cards_are_cut_as_the_pilot_cuts_them() -> None:
    assert short_card("  two\n words ", "f", 3) == "two words"
    assert short_card("", "f", 3) == "Call the function f."
    assert short_card("a" * 200, "f", 1) == "a" * 120
    cut = short_card("word, " * 40, "f", 1)
    assert len(cut) <= 120
    assert cut.endswith("word")
    assert len(short_card("word " * 100, "f", 100)) <= 48


def test_schemas_become_json_schemas() -> None:
    schema = {
        "type": "dict",
        "properties": {
            "type": {"type": "any", "description": "d", "optional": True},
            "x": {"type": "tuple", "items": {"type": "float"}},
            "default": {"type": "String", "default": "dict"},
        },
        "required": ["x"],
    }
    assert json_schema(schema) == {
        "type": "object",
        "properties": {
            "type": {"description": "d"},
            "x": {"type": "array", "items": {"type": "number"}},
            "default": {"type": "string", "default": "dict"},
        },
        "required": ["x"],
    }


def test_training_rows_share_nothing_with_the_pilots() -> None:
    train, dev = load_cases("v1", "train"), load_cases("v1", "dev")
    pilots = [case for suite in SUITES for case in load_cases(suite)]
    names = [{n for case in group for n in case.names} for group in (train, dev, pilots)]
    assert not names[0] & names[1]
    assert not names[2] & (names[0] | names[1])
    requests = [word_key(case.request) for case in (*train, *dev)]
    assert len(set(requests)) == len(requests)
    assert not {word_key(case.request) for case in pilots} & set(requests)
    families = [{e.family for e in load_manifest("pool").cases if e.split == s} for s in ("train", "dev")]
    assert not families[0] & families[1]
    assert {case.stratum for case in train} == {case.stratum for case in dev}
    assert load_cases("v4_live", "train") == train
    assert all(case.reviewed == case.positive for case in train)


def test_a_pilot_case_among_training_rows_is_refused() -> None:
    case = load_cases("v1")[0]
    with pytest.raises(LeakError, match=case.id):
        refuse_leaks((case,))
    other = load_cases("v1", "train")[0]
    with pytest.raises(LeakError, match="pilot case"):
        refuse_leaks((other.model_copy(update={"request": case.request.upper()}),))
    shared_function: Case = other.model_copy(update={"functions": case.functions})
    with pytest.raises(LeakError, match="offers"):
        refuse_leaks((shared_function,))
    assert request_key(case.request.upper()) == request_key(case.request)


def test_the_manifests_hold_no_text_of_the_benchmark() -> None:
    folder = Path(commands.__file__).parent / "data"
    texts = [case.request for suite in SUITES for case in load_cases(suite)]
    texts += [case.request for split in ("train", "dev") for case in load_cases("v1", split)]
    descriptions = {f["description"] for suite in SUITES for case in load_cases(suite) for f in case.functions}
    for path in folder.glob("*.json"):
        committed = path.read_text(encoding="utf-8")
        # A one-word description may be part of a function's name.
        assert not [t for t in (*texts, *descriptions) if " " in t and json.dumps(t)[1:-1] in committed]


def test_frozen_wording_from_another_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FrozenWordingError, match="there is no file"):
        load_wording("frozen", "v1", tmp_path / "nothing.jsonl")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"id": "x"}\n', encoding="utf-8")
    with pytest.raises(FrozenWordingError, match="line 1"):
        load_wording("frozen", "v1", broken)
    # V4 Live's no-function cards are not V1's.
    with pytest.raises(FrozenWordingError, match="no_tool"):
        load_wording("frozen", "v1", shared(FROZEN_FILES["v4_live"]))


def test_a_case_that_is_not_the_original_is_named() -> None:
    wording = frozen_wording("v1", shared(FROZEN_FILES["v1"]))
    first, *rest = load_cases("v1")
    check_frozen((first, *rest), "v1", wording)
    with pytest.raises(FrozenWordingError, match=first.id):
        check_frozen((first.model_copy(update={"request": first.request + "!"}),), "v1", wording)


class _Hub(BaseHTTPRequestHandler):
    """Serves one dataset file the way the hub does."""

    content = b""
    paths: list[str] = []

    def _answer(self, *, with_body: bool) -> None:
        self.paths.append(self.path)
        found = self.path.endswith(f"/resolve/{HUB_REVISION}/{HUB_FILE}")
        self.send_response(200 if found else 404)
        self.send_header("Content-Length", str(len(self.content) if found else 0))
        if found:
            self.send_header("ETag", f'"{hashlib.sha256(self.content).hexdigest()}"')
            self.send_header("X-Repo-Commit", HUB_REVISION)
        self.end_headers()
        if found and with_body:
            self.wfile.write(self.content)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
    _Hub.content, _Hub.paths = shared(FROZEN_FILES["v1"]).read_bytes(), []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_frozen_wording_from_the_hub_and_then_from_its_cache(hub: str) -> None:
    wording = load_wording("frozen", "v1", hub_endpoint=hub)
    assert wording.name == "frozen"
    assert _Hub.paths
    _Hub.paths.clear()
    assert load_wording("frozen", "v1", offline=True, hub_endpoint=hub) == wording
    assert not _Hub.paths


def test_frozen_wording_that_cannot_be_had_names_both_ways_out(hub: str) -> None:
    for arguments in ({"offline": True}, {"hub_endpoint": "http://127.0.0.1:9"}):
        with pytest.raises(FrozenWordingError) as raised:
            load_wording("frozen", "v1", **arguments)
        assert "--env.taskset.frozen-file" in str(raised.value)
        assert "--env.taskset.wording neutral" in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(FrozenWordingError, match=r"--env\.taskset\.wording neutral"):
        load_wording("frozen", "v4_live")


def test_the_commands_report_what_they_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--source-dir", str(shared("gorilla_v1")), "--wording", "frozen"]
    arguments += ["--frozen-file", str(shared(FROZEN_FILES["v1"])), "--output", str(tmp_path / "cases.jsonl")]
    assert commands.main(["select", *arguments]) == 0
    assert "byte for byte the original" in capsys.readouterr().out
    assert (tmp_path / "cases.jsonl").read_bytes() == shared(FROZEN_FILES["v1"]).read_bytes()
    assert commands.main(["convert", *arguments]) == 0
    assert "2000 rows converted" in capsys.readouterr().out
    assert commands.main(["select"]) == 0
    assert "the same ids" in capsys.readouterr().out
    assert commands.main(["check"]) == 0
    assert "dev: 160 cases verified" in capsys.readouterr().out

"""Stages: played whole or not at all, taken up after an interruption; and how a new category plugs in."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from bfcl_rollout.scripted import ScriptedServer
from parity_helpers import body, user

from parity.answers import Answer, Upstream, from_policy, recorded
from parity.assign import Entry
from parity.categories import CATEGORIES
from parity.categories.base import Category, Row, Selection
from parity.endpoint import serve
from parity.exchange import Body, read_exchanges
from parity.processes import SideFailedError, run
from parity.recording import RecordingWriter, read_recording
from parity.runs import compare_again, plan_from_json
from parity.sides import EXCHANGES, Settings, Side
from parity.stages import play


class Toy:
    """A category of three entries, as any other would plug in."""

    name = "toy"
    environment = "toy-environment"

    def entries(self, selection: Selection) -> list[Entry]:
        ids = selection.ids or ("toy_0", "toy_1", "toy_2")
        return [Entry(test_id, (f"question {test_id}",)) for test_id in ids]

    def facts(self, test_id: str) -> tuple[str, ...]:
        return ("answer",)

    def run_arguments(self, selection: Selection, mode: str, concurrency: int) -> list[str]:
        return []

    def official_rows(self, root: Path, registry_name: str) -> dict[str, Row]:
        return {}

    def our_row(self, trace: Mapping[str, Any]) -> tuple[str, Row]:
        return "", Row({}, None)


class ToySide:
    """Asks the endpoint one question an entry; may fail after some of them."""

    versions = {"toy": "1"}

    def __init__(self, fail_after: int | None = None) -> None:
        self.fail_after = fail_after
        self.played = 0

    async def play(self, category: Category, settings: Settings, url: str, folder: Path) -> None:
        self.played += 1
        answers = {}
        async with ClientSession() as client:
            for count, (test_id, (text,)) in enumerate(category.entries(settings.selection)):
                if count == self.fail_after:
                    raise KeyboardInterrupt
                request = {**body(user(text)), "model": settings.model}
                async with client.post(f"{url}/chat/completions", json=request) as response:
                    answers[test_id] = (await response.json())["choices"][0]["message"]["content"]
        (folder / "answers.json").write_text(json.dumps(answers))

    def rows(self, category: Category, folder: Path) -> dict[str, Row]:
        answers = json.loads((folder / "answers.json").read_text())
        return {test_id: Row({"answer": answer}, None) for test_id, answer in answers.items()}


TOY: Category = Toy()
_SIDE: Side = ToySide()
SETTINGS = Settings("text", "fc", Selection(), 1)


def stage(side: ToySide, folder: Path, *, resume: bool, settings: Settings = SETTINGS) -> Any:
    return asyncio.run(play(side, TOY, settings, from_policy("text"), folder, resume=resume))


def test_a_stage_is_played_and_observed(tmp_path: Path) -> None:
    found = stage(ToySide(), tmp_path / "stage", resume=False)
    assert found.versions == {"toy": "1"}
    assert set(found.observation.rollouts) == {"toy_0", "toy_1", "toy_2"}
    for rollout in found.observation.rollouts.values():
        assert len(rollout.requests) == 1
        assert "scripted model" in rollout.facts["answer"]
    assert found.observation.stray == []


def test_a_finished_stage_is_kept_only_when_asked_and_only_for_the_same_settings(tmp_path: Path) -> None:
    side = ToySide()
    for resume, played in ((False, 1), (True, 1), (False, 2), (True, 2)):
        stage(side, tmp_path / "stage", resume=resume)
        assert side.played == played
    other = Settings("text", "prompting", Selection(), 1)
    stage(side, tmp_path / "stage", resume=True, settings=other)
    assert side.played == 3


def test_an_interrupted_stage_is_played_again_from_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        stage(ToySide(fail_after=2), tmp_path / "stage", resume=False)
    assert len(list(read_exchanges(tmp_path / "stage" / EXCHANGES))) == 2
    found = stage(ToySide(), tmp_path / "stage", resume=True)
    assert [len(rollout.requests) for rollout in found.observation.rollouts.values()] == [1, 1, 1]
    assert found.observation.stray == []


def test_a_recording_interrupted_half_way_is_finished_without_asking_twice(tmp_path: Path) -> None:
    path, asked = tmp_path / "recording", []

    async def source(request: Body) -> Answer:
        asked.append(request["messages"][0]["content"])
        return await from_policy("text")(request)

    def record(side: ToySide) -> None:
        with RecordingWriter(path, {"model": "text"}) as writer:
            asyncio.run(play(side, TOY, SETTINGS, recorded(source, writer), tmp_path / "stage", resume=False))
            writer.finish({}, {})

    with pytest.raises(KeyboardInterrupt):
        record(ToySide(fail_after=2))
    record(ToySide())
    assert asked == ["question toy_0", "question toy_1", "question toy_2"]
    assert len(read_recording(path).replies) == 3


def test_replies_of_an_upstream_endpoint_are_relayed_and_recorded(
    tmp_path: Path, scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", "secret")

    async def relay() -> None:
        upstream = Upstream(scripted.url, "TOY_KEY")
        try:
            with RecordingWriter(tmp_path / "recording", {}) as writer:
                side = ToySide()
                await play(side, TOY, SETTINGS, recorded(upstream, writer), tmp_path / "stage", resume=False)
                writer.finish({}, {})
        finally:
            await upstream.close()

    asyncio.run(relay())
    replies = read_recording(tmp_path / "recording").replies
    assert len(replies) == 3
    assert "secret" not in (tmp_path / "recording").read_text()


@pytest.mark.parametrize(
    ("sent", "status", "message"),
    [
        ({"messages": [], "stream": True}, 400, "does not stream"),
        ([1, 2], 400, "not a JSON object"),
    ],
)
def test_what_is_no_request_of_bfcls_is_refused(tmp_path: Path, sent: Any, status: int, message: str) -> None:
    async def ask() -> tuple[int, str]:
        async with (
            serve(from_policy("text"), tmp_path / "file") as url,
            ClientSession() as client,
            client.post(f"{url}/chat/completions", json=sent) as response,
        ):
            return response.status, await response.text()

    found, text = asyncio.run(ask())
    assert found == status
    assert message in text


def test_an_upstream_that_is_down_is_a_502(tmp_path: Path) -> None:
    async def ask() -> int:
        upstream = Upstream("http://127.0.0.1:9/v1", "NO_KEY")
        try:
            async with (
                serve(upstream, tmp_path / "file") as url,
                ClientSession() as client,
                client.post(f"{url}/chat/completions", json=body(user("a"))) as response,
            ):
                return response.status
        finally:
            await upstream.close()

    assert asyncio.run(ask()) == 502


def test_an_interruption_ends_a_sides_processes(tmp_path: Path) -> None:
    mark = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'import time; "
        f"time.sleep(600)']); open({str(mark)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); time.sleep(600)"
    )

    async def interrupt() -> None:
        task = asyncio.ensure_future(run([sys.executable, "-c", program], cwd=tmp_path, env={}, log=tmp_path / "log"))
        while not (mark.exists() and mark.read_text()):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupt())
    for pid in mark.read_text().split():
        for _ in range(500):
            if not _alive(pid):
                break
            time.sleep(0.01)
        assert not _alive(pid)


def _alive(pid: str) -> bool:
    """Whether a process runs. One that ended and that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_side_that_fails_says_the_end_of_its_output(tmp_path: Path) -> None:
    program = "print('first'); print('the reason'); raise SystemExit(3)"
    with pytest.raises(SideFailedError, match=r"(?s)status 3.*the reason"):
        asyncio.run(run([sys.executable, "-c", program], cwd=tmp_path, env={}, log=tmp_path / "log"))


@pytest.mark.parametrize("backend", ["kv", "vector", "rec_sum"])
def test_the_memory_category_has_all_of_bfcls_entries(backend: str) -> None:
    category = CATEGORIES[f"memory_{backend}"]
    entries = category.entries(Selection())
    kinds = [category.facts(entry.test_id)[-1] for entry in entries]
    assert (kinds.count("snapshot"), kinds.count("verdict")) == (37, 155)
    assert len({entry.user_texts for entry in entries}) == 192
    assert len(category.entries(Selection(scenarios=("notetaker",)))) == 30


def test_selections_that_make_no_sense_are_one_line(tmp_path: Path) -> None:
    stored = {"categories": ["memory_kv"], "model": "recall", "mode": "fc", "scenarios": ["nowhere"], "ids": None}
    plan = plan_from_json(stored, tmp_path, concurrency=1, resume=False)
    with pytest.raises(RuntimeError, match="unknown scenario 'nowhere'; there are customer"):
        CATEGORIES["memory_kv"].entries(plan.settings.selection)
    with pytest.raises(RuntimeError, match="selected by scenario"):
        CATEGORIES["memory_kv"].entries(Selection(ids=("memory_kv_0-customer-0",)))
    for change, message in (
        ({"categories": ["chess"]}, "unknown category 'chess'"),
        ({"model": "scripted/recall"}, "name it without"),
    ):
        with pytest.raises(RuntimeError, match=message):
            plan_from_json({**stored, **change}, tmp_path, concurrency=1, resume=False)
    with pytest.raises(RuntimeError, match="name the folder of a parity run"):
        compare_again(tmp_path)

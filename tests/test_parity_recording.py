"""The recording format: whole, interrupted, damaged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from parity_helpers import RECORDING, body, reply, user

from parity.__main__ import main
from parity.answers import Answer, from_recording, recorded
from parity.exchange import Body, request_key
from parity.recording import FORMAT, VERSION, RecordingError, RecordingWriter, read_recording

SETTINGS = {"categories": ["memory_kv"], "model": "m", "mode": "fc", "scenarios": None, "ids": None}


def write(path: Path, replies: int = 3) -> None:
    with RecordingWriter(path, SETTINGS) as writer:
        for number in range(replies):
            writer.add(request_key(body(user(str(number)))), reply(f"answer {number}"))
        writer.finish({"memory_kv": {"id": {"requests": [], "facts": {}, "failure": None}}}, {"openai": "1"})


def test_what_is_recorded_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "file")
    found = read_recording(tmp_path / "file")
    assert found.settings == SETTINGS
    assert found.replies[request_key(body(user("1")))] == reply("answer 1")
    assert list(found.observed) == ["memory_kv"]
    assert found.versions == {"openai": "1"}


@pytest.mark.parametrize("cut", [1, 10, 100, 300])
def test_a_truncated_file_is_refused_and_says_what_to_do(
    tmp_path: Path, cut: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    write(path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(RecordingError, match=r"truncated: it has \d replies and no end line; finish it with"):
        read_recording(path)
    assert main(["replay", str(path), "--only-ours"]) == 2
    assert "is truncated" in capsys.readouterr().err


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(RecordingError, match=r"is truncated|is not a parity recording"):
            read_recording(path)


def test_a_changed_reply_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    path.write_text(path.read_text().replace("answer 1", "answer 2"))
    with pytest.raises(RecordingError, match="damaged: its checksum"):
        read_recording(path)


def test_a_line_taken_out_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], *lines[3:]]))
    with pytest.raises(RecordingError, match="damaged"):
        read_recording(path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"format": FORMAT, "version": VERSION + 1, "settings": {}}, f"version {VERSION + 1}; this program reads"),
        ({"format": "something else", "version": VERSION}, "is not a parity recording"),
        (["a list"], "is not a parity recording"),
    ],
)
def test_another_format_is_refused(tmp_path: Path, header: Any, message: str) -> None:
    (tmp_path / "file").write_text(json.dumps(header) + "\n")
    with pytest.raises(RecordingError, match=message):
        read_recording(tmp_path / "file")


def test_a_missing_or_unreadable_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path / "nothing", tmp_path, tmp_path / "binary"):
        assert main(["replay", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_recording_that_was_interrupted_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with RecordingWriter(path, SETTINGS) as writer:
        writer.add("one", {"n": 1})
        writer.add("two", {"n": 2})
    path.write_text(path.read_text()[:-3])
    with RecordingWriter(path, SETTINGS) as writer:
        assert writer.replies == {"one": {"n": 1}}
        writer.add("three", {"n": 3})
        writer.finish({}, {})
    assert read_recording(path).replies == {"one": {"n": 1}, "three": {"n": 3}}


def test_a_complete_recording_or_another_ones_is_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "whole")
    before = (tmp_path / "whole").read_bytes()
    with pytest.raises(RecordingError, match="is complete"), RecordingWriter(tmp_path / "whole", SETTINGS):
        pass
    assert (tmp_path / "whole").read_bytes() == before
    with RecordingWriter(tmp_path / "begun", SETTINGS):
        pass
    with (
        pytest.raises(RecordingError, match="begun with other settings"),
        RecordingWriter(tmp_path / "begun", {**SETTINGS, "mode": "prompting"}),
    ):
        pass


def test_each_request_is_asked_once_and_failures_are_not_kept(tmp_path: Path) -> None:
    asked: list[str] = []

    async def source(request: Body) -> Answer:
        text = request["messages"][0]["content"]
        asked.append(text)
        return Answer(503, {"error": {}}) if text == "down" else Answer(200, reply(f"{text} {len(asked)}"))

    async def play() -> list[Answer]:
        with RecordingWriter(tmp_path / "file", SETTINGS) as writer:
            answerer = recorded(source, writer)
            answers = [await answerer(body(user(text))) for text in ("a", "a", "down", "down")]
            writer.finish({}, {})
            return answers

    first, second, failed, again = asyncio.run(play())
    assert first == second == Answer(200, reply("a 1"))
    assert failed.status == again.status == 503
    assert asked == ["a", "down", "down"]
    assert len(read_recording(tmp_path / "file").replies) == 1


def test_a_request_that_is_not_in_the_recording_is_refused_for_good(tmp_path: Path) -> None:
    write(tmp_path / "file")
    answerer = from_recording(read_recording(tmp_path / "file"))

    async def ask() -> tuple[Answer, Answer]:
        return await answerer(body(user("0"))), await answerer(body(user("0"), temperature=1.0))

    known, missing = asyncio.run(ask())
    assert known == Answer(200, reply("answer 0"))
    assert missing.status == 400
    assert "not in the recording" in missing.reply["error"]["message"]


def test_the_committed_recording_is_whole_and_holds_no_text_of_the_benchmark() -> None:
    from bfcl_rollout import official

    recording = read_recording(RECORDING)
    assert recording.settings["model"] == "cases"
    text = RECORDING.read_text()
    for entry in official.load_entries("memory_kv"):
        for turn in entry["question"]:
            for message in turn:
                assert json.dumps(message["content"])[1:60] not in text
        for function in entry["function"]:
            assert json.dumps(function["description"])[1:60] not in text

"""Files of JSON lines, whole and cut short."""

from __future__ import annotations

from pathlib import Path

import pytest
from bfcl_rollout import jsonl
from bfcl_rollout.errors import SetupError


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": "one\u2028two\u2029three\x85four"}\n\n{"a": 1}\r\n', newline="")
    assert list(jsonl.read(path)) == [{"a": "one\u2028two\u2029three\x85four"}, {"a": 1}]


def test_a_last_line_cut_short_is_left_out_where_that_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": ')
    assert list(jsonl.read(path, unfinished=True)) == [{"a": 1}]
    with pytest.raises(SetupError, match="line 2: not JSON"):
        list(jsonl.read(path))


def test_a_damaged_line_is_named_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(SetupError, match="line 2: not JSON"):
        list(jsonl.read(path, unfinished=True))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nowhere: No such file"):
        list(jsonl.read(tmp_path / "nowhere"))

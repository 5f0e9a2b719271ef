"""Building the official environment: what is asked for, and what is said when it fails."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

import pytest
from bfcl_rollout import official

from parity import environment
from parity.environment import OfficialEnvironmentError, official_environment


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv(official.CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_uv(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `uv` on the path that runs a shell script."""
    folder.mkdir()
    (folder / "uv").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "uv").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_only_what_decides_an_embedding_is_constrained() -> None:
    found = environment._constraints()
    assert [pin.split("==")[0] for pin in found] == ["sentence-transformers", "torch", "transformers"]


def test_without_uv_the_message_says_how_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(OfficialEnvironmentError, match="pip install uv"):
        official_environment()


def test_a_failing_uv_is_quoted_and_a_later_build_starts_over(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_uv(tmp_path / "bin", "echo no such package >&2; exit 1", monkeypatch)
    for _ in range(2):
        with pytest.raises(OfficialEnvironmentError, match="no such package"):
            official_environment()
        (folder,) = cache.glob("official-*/")
        assert not (folder / "ready.json").exists()
        (folder / "rest").write_text("of an interrupted build")
    with pytest.raises(OfficialEnvironmentError):
        official_environment()
    assert not (folder / "rest").exists()


def test_uv_is_given_what_pip_is_given_and_runs_outside_the_workspace(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_FIND_LINKS", "/some/wheels /more")
    fake_uv(tmp_path / "bin", 'echo "links=$UV_FIND_LINKS in=$PWD" >&2; exit 1', monkeypatch)
    with pytest.raises(OfficialEnvironmentError, match=r"links=/some/wheels,/more in=") as caught:
        official_environment()
    assert str(Path(__file__).parent.parent) not in str(caught.value)

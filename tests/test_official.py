"""The official package: version, hashes, and its installation into the cache."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bfcl_rollout import official, pool

# An interpreter that does not see the environment's copy: the cache is then the only place to find one.
HIDE = """
import importlib.machinery, sys
real = importlib.machinery.PathFinder.find_spec.__func__
def find_spec(cls, name, path=None, target=None):
    if name == "bfcl_eval" and path is None:
        path = [entry for entry in sys.path if "bfcl-eval-" in entry]
    return real(cls, name, path, target)
importlib.machinery.PathFinder.find_spec = classmethod(find_spec)
"""


def test_the_installed_package_is_the_release() -> None:
    assert official.package_dir().name == "bfcl_eval"
    assert official.tree_sha256() == official.TREE_SHA256


def test_data_hashes_name_each_file_behind_a_category() -> None:
    hashes = official.data_sha256("memory_kv")
    assert set(hashes) == {
        "data/BFCL_v4_memory.json",
        *(
            f"data/memory_prereq_conversation/memory_{name}.json"
            for name in ("customer", "finance", "healthcare", "notetaker", "student")
        ),
    }
    assert hashes == official.data_sha256("memory_vector")


def test_another_version_is_refused_with_the_command_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2025.1.1")
    official.package_dir.cache_clear()
    with pytest.raises(official.OfficialPackageError, match=r"2025\.1\.1 is installed.*pip install --no-deps"):
        official.package_dir()
    official.package_dir.cache_clear()


def test_changed_files_are_refused_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(official, "TREE_SHA256", "0" * 64)
    official.verify.cache_clear()
    workers = pool.WorkerPool()
    with pytest.raises(official.OfficialPackageError, match="are not those of bfcl-eval"):
        asyncio.run(workers.start())
    official.verify.cache_clear()


def test_entries_are_fresh_for_each_caller() -> None:
    first = official.load_entries("memory_kv")
    first[0]["question"].clear()
    assert official.load_entries("memory_kv")[0]["question"]


def install(cache: Path, *, variables: dict[str, str] | None = None) -> subprocess.Popen[str]:
    code = HIDE + (
        "from bfcl_rollout import official\n"
        "try:\n"
        "    print(official.package_dir())\n"
        "except official.OfficialPackageError as error:\n"
        "    print('ERROR', error)\n"
    )
    environment = os.environ | {official.CACHE_VARIABLE: str(cache)} | (variables or {})
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.slow
def test_two_processes_install_the_missing_wheel_once(tmp_path: Path) -> None:
    both = [install(tmp_path), install(tmp_path)]
    outputs = [process.communicate(timeout=300) for process in both]
    expected = tmp_path / f"bfcl-eval-{official.VERSION}" / "bfcl_eval"
    assert [out.strip() for out, _ in outputs] == [str(expected)] * 2, outputs
    assert sum("installing bfcl-eval" in err for _, err in outputs) == 1
    # Nothing half-done lies beside it.
    assert {path.name for path in tmp_path.iterdir()} - {f"bfcl-eval-{official.VERSION}.lock"} == {
        f"bfcl-eval-{official.VERSION}"
    }
    manifest = subprocess.run(
        [sys.executable, "-c", "import sys, json; from bfcl_rollout import official; "
         "official.package_dir = lambda: __import__('pathlib').Path(sys.argv[1]); print(official.tree_sha256())",
         str(expected)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert manifest.stdout.strip() == official.TREE_SHA256


def test_a_wheel_that_cannot_be_had_is_one_clear_line(tmp_path: Path) -> None:
    nowhere = {
        "UV_OFFLINE": "1",
        "UV_NO_CACHE": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
        "UV_FIND_LINKS": "",
    }
    out, _ = install(tmp_path, variables=nowhere).communicate(timeout=120)
    assert out.startswith("ERROR installing bfcl-eval")
    assert out.rstrip().endswith(f"with network, run: {official.INSTALL_COMMAND}")
    assert not (tmp_path / f"bfcl-eval-{official.VERSION}").exists()


def test_an_unwritable_cache_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out, _ = install(tmp_path / "file").communicate(timeout=60)
    assert out.startswith("ERROR cannot install bfcl-eval into")
    assert official.CACHE_VARIABLE in out


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, json, bfcl_rollout.official, bfcl_rollout.records; "
        "print(json.dumps([m for m in ('verifiers', 'bfcl_eval', 'torch', 'openai') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []

"""Finished memories: built once, whole or not at all, and never another's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from bfcl_v4_memory.snapshots import SnapshotError, Snapshots, check_folder, identity_key

IDENTITY = {"backend": "kv", "scenario": "student", "model": "org/a model", "sampling": {"temperature": 0.001}}


class Builder:
    """Counts how often it is asked."""

    def __init__(self, memory: str = "{}", fail: int = 0) -> None:
        self.memory, self.fail, self.calls = memory, fail, 0

    async def __call__(self) -> str:
        self.calls += 1
        await asyncio.sleep(0.01)
        if self.calls <= self.fail:
            raise RuntimeError("a session failed")
        return self.memory


def stored(folder: Path) -> Path:
    (path,) = folder.glob("*.json")
    return path


def test_many_that_ask_at_once_share_one_build(tmp_path: Path) -> None:
    build = Builder('{"memory": "x"}')

    async def ask() -> list[str]:
        snapshots = Snapshots(tmp_path)
        return await asyncio.gather(*(snapshots.get(IDENTITY, build) for _ in range(20)))

    assert asyncio.run(ask()) == ['{"memory": "x"}'] * 20
    assert build.calls == 1
    assert asyncio.run(Snapshots(tmp_path).get(IDENTITY, build)) == '{"memory": "x"}'
    assert build.calls == 1


def test_two_holders_of_one_folder_share_one_build(tmp_path: Path) -> None:
    build = Builder()

    async def ask() -> None:
        await asyncio.gather(*(Snapshots(tmp_path).get(IDENTITY, build) for _ in range(5)))

    asyncio.run(ask())
    assert build.calls == 1


def test_without_a_folder_a_build_is_shared_for_the_run_only() -> None:
    build = Builder()

    async def ask() -> None:
        snapshots = Snapshots(None)
        await asyncio.gather(*(snapshots.get(IDENTITY, build) for _ in range(5)))

    asyncio.run(ask())
    asyncio.run(ask())
    assert build.calls == 2


@pytest.mark.parametrize("folder", [True, False])
def test_a_failed_build_is_an_error_for_who_waited_and_is_tried_again(tmp_path: Path, folder: bool) -> None:
    build = Builder(fail=1)

    async def ask() -> str:
        snapshots = Snapshots(tmp_path if folder else None)
        failed = await asyncio.gather(*(snapshots.get(IDENTITY, build) for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in failed] == ["a session failed"] * 3
        assert not list(tmp_path.glob("*.json"))
        return await snapshots.get(IDENTITY, build)

    assert asyncio.run(ask()) == "{}"
    assert build.calls == 2


def test_one_waiter_that_is_cancelled_leaves_the_build_to_the_others(tmp_path: Path) -> None:
    build = Builder()

    async def ask() -> str:
        snapshots = Snapshots(tmp_path)
        first = asyncio.create_task(snapshots.get(IDENTITY, build))
        second = asyncio.create_task(snapshots.get(IDENTITY, build))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(ask()) == "{}"


@pytest.mark.parametrize("key", ["backend", "scenario", "model", "sampling"])
def test_each_part_of_an_identity_makes_another_snapshot(key: str) -> None:
    assert identity_key(IDENTITY | {key: "other"}) != identity_key(IDENTITY)


def test_a_name_is_readable_and_safe() -> None:
    assert identity_key(IDENTITY).startswith("kv-student-org-a-model-")
    assert "/" not in identity_key(IDENTITY | {"model": "../../etc"})


def test_a_half_built_snapshot_is_never_read(tmp_path: Path) -> None:
    (tmp_path / f".{identity_key(IDENTITY)}-abc.tmp").write_text('{"format": 1, "mem')
    assert asyncio.run(Snapshots(tmp_path).get(IDENTITY, Builder("whole"))) == "whole"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:40], "is not a usable snapshot"),
        (lambda text: text.replace('"{}"', '"{ }"'), "its checksum does not match"),
        (lambda text: json.dumps(json.loads(text) | {"format": 2}), "another format or identity"),
        (lambda text: json.dumps(json.loads(text) | {"identity": {}}), "another format or identity"),
        (lambda text: "[]", "is not a usable snapshot"),
    ],
)
def test_a_damaged_snapshot_is_one_clear_line(tmp_path: Path, damage: object, message: str) -> None:
    assert callable(damage)
    asyncio.run(Snapshots(tmp_path).get(IDENTITY, Builder()))
    path = stored(tmp_path)
    path.write_text(damage(path.read_text()))
    build = Builder()
    with pytest.raises(SnapshotError, match=message):
        asyncio.run(Snapshots(tmp_path).get(IDENTITY, build))
    assert build.calls == 0


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SnapshotError, match=r"--env\.snapshots: cannot write to .*file/x"):
        check_folder(tmp_path / "file" / "x")

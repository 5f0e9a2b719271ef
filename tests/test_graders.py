"""Grading processes that stay."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from bfcl_rollout import graders, pool
from bfcl_rollout.records import Execution, Verdict
from multi_turn_helpers import gold_result, grade_spec

ENTRY = "multi_turn_base_1"


@pytest.fixture
def workers() -> Iterator[pool.WorkerPool]:
    made = pool.WorkerPool()
    yield made
    made.close()


def executed(workers: pool.WorkerPool) -> Execution:
    return asyncio.run(workers._execute(grade_spec(ENTRY, gold_result(ENTRY))))


async def grade_all(workers: pool.WorkerPool, execution: Execution, count: int) -> list[Verdict]:
    spec = grade_spec(ENTRY, [], execution=execution)
    return list(await asyncio.gather(*[workers.grade(spec) for _ in range(count)]))


def children(workers: pool.WorkerPool) -> list[int]:
    with open(f"/proc/{workers.pid}/task/{workers.pid}/children") as file:
        return [int(pid) for pid in file.read().split()]


def test_a_process_grades_again_and_again(workers: pool.WorkerPool) -> None:
    execution = executed(workers)
    first = asyncio.run(grade_all(workers, execution, 1))
    (process,) = children(workers)
    again = [verdict for _ in range(5) for verdict in asyncio.run(grade_all(workers, execution, 1))]
    assert children(workers) == [process]
    assert {verdict.model_dump_json() for verdict in first + again} == {first[0].model_dump_json()}
    assert first[0].valid


def test_many_at_once_leave_a_few(workers: pool.WorkerPool) -> None:
    verdicts = asyncio.run(grade_all(workers, executed(workers), 12))
    assert all(verdict.valid for verdict in verdicts)
    assert len(workers._graders._idle["multi_turn_base"]) == graders._KEPT


def test_one_that_died_is_replaced(workers: pool.WorkerPool) -> None:
    execution = executed(workers)
    asyncio.run(grade_all(workers, execution, 1))
    (process,) = children(workers)
    os.kill(process, signal.SIGKILL)
    (verdict,) = asyncio.run(grade_all(workers, execution, 1))
    assert verdict.valid
    assert process not in children(workers)


def test_so_is_one_whose_zygote_died(workers: pool.WorkerPool) -> None:
    execution = executed(workers)
    asyncio.run(grade_all(workers, execution, 1))
    assert workers.pid is not None
    os.kill(workers.pid, signal.SIGKILL)
    (verdict,) = asyncio.run(grade_all(workers, execution, 1))
    assert verdict.valid


def test_it_is_replaced_after_a_while(workers: pool.WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graders, "_GRADINGS", 2)
    execution = executed(workers)
    for _ in range(2):
        asyncio.run(grade_all(workers, execution, 1))
    assert workers._graders._idle["multi_turn_base"] == []
    assert asyncio.run(grade_all(workers, execution, 1))[0].valid


def test_what_ends_a_grading_is_named(workers: pool.WorkerPool) -> None:
    broken = executed(workers)
    broken.turns[0].state = "bm90IGEgc3RhdGU="
    with pytest.raises(pool.WorkerError, match="the worker of this grade died: exit status 1"):
        asyncio.run(grade_all(workers, broken, 1))

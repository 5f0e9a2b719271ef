"""Workers: play, grade, cancel, time out, die; and nothing is left of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bfcl_rollout import official, pool
from bfcl_rollout.records import GradeSpec, Limits, RolloutSpec
from bfcl_rollout.scripted import ScriptedServer

SESSION = "memory_kv_prereq_32-notetaker-0"
QUESTION = "memory_kv_130-notetaker-0"


def spec(server: ScriptedServer, model: str = "scripted/recall", **changes: object) -> RolloutSpec:
    fields = {"entry_id": SESSION, "category": "memory_kv", "model": model, "endpoint": server.url, "secret": "s"}
    return RolloutSpec.model_validate(fields | changes)


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def folders(owner: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"bfcl-rollout-{owner}-*"))


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition: object, seconds: float = 20.0) -> None:
    """Poll until `condition()` holds; failing that is the test's failure."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.02)


@contextlib.asynccontextmanager
async def playing(workers: pool.WorkerPool, job: RolloutSpec) -> AsyncIterator[tuple[asyncio.Task[object], int]]:
    """A rollout in progress and its process id."""
    await workers.start()
    assert workers.pid is not None
    before = set(children(workers.pid))
    task: asyncio.Task[object] = asyncio.create_task(workers.play(job))
    while not (started := set(children(workers.pid)) - before):
        await asyncio.sleep(0.01)
    yield task, started.pop()


def test_a_session_is_played_and_leaves_a_memory(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    record = asyncio.run(workers.play(spec(scripted)))
    assert record.test_id == SESSION
    assert len(record.turns) == 5
    assert record.memory is not None
    assert set(json.loads(record.memory)) == {"core_memory", "archival_memory"}
    assert not record.force_quit
    assert all(step.blocked == [] for turn in record.turns for step in turn.steps)
    assert record.versions.data_sha256 == official.data_sha256("memory_kv")


def test_two_rollouts_of_one_entry_at_once_equal_one(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    async def both() -> list[object]:
        return list(await asyncio.gather(*(workers.play(spec(scripted)) for _ in range(4))))

    alone = asyncio.run(workers.play(spec(scripted)))
    assert asyncio.run(both()) == [alone] * 4


def test_a_question_reads_the_memory_it_is_given(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    memory = asyncio.run(workers.play(spec(scripted))).memory
    record = asyncio.run(workers.play(spec(scripted, entry_id=QUESTION, memory=memory)))
    assert record.memory == memory
    assert isinstance(record.graded_message, str)


def test_the_prompting_loop_plays_too(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    record = asyncio.run(workers.play(spec(scripted, mode="prompting")))
    calls = [call for turn in record.turns for step in turn.steps for call in step.decoded or []]
    assert calls
    assert isinstance(record.turns[0].steps[0].raw, str)


@pytest.mark.parametrize("memory", [None, "{}"])
def test_a_rollout_without_the_memory_it_needs_is_refused(
    workers: pool.WorkerPool, scripted: ScriptedServer, memory: str | None
) -> None:
    entry = QUESTION if memory is None else SESSION
    with pytest.raises(pool.WorkerError, match="a memory to start from"):
        asyncio.run(workers.play(spec(scripted, entry_id=entry, memory=memory)))


def test_grading_says_what_the_official_checker_says(workers: pool.WorkerPool) -> None:
    def grade(result: object) -> tuple[bool, str | None]:
        fields = {"entry_id": QUESTION, "category": "memory_kv", "mode": "fc", "model": "m", "result": result}
        verdict = asyncio.run(workers.grade(GradeSpec.model_validate(fields)))
        return verdict.valid, verdict.error_type

    assert grade([["no idea"]]) == (False, "agentic:answer_not_found")
    assert grade([[]]) == (False, "agentic:no_last_message")
    assert grade([[""]]) == (False, "agentic:no_last_message")
    assert grade([]) == (False, "agentic:inference_error")
    assert grade("Error during inference: x") == (False, "agentic:inference_error")


def test_the_grader_passes_gold_and_fails_nothing(workers: pool.WorkerPool) -> None:
    job = GradeSpec(entry_id=QUESTION, category="memory_kv", mode="fc", model="m", result=[[]])
    assert asyncio.run(workers.selftest(job))


def test_cancelling_kills_the_worker(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    async def cancel() -> int:
        async with playing(workers, spec(scripted, "scripted/recall?fault=stall")) as (task, worker):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            return worker

    worker = asyncio.run(cancel())
    wait_for(lambda: gone(worker))


def test_a_rollout_past_its_wall_clock_limit_is_an_error(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    job = spec(scripted, "scripted/recall?fault=stall", limits=Limits(wall_s=0.5))
    with pytest.raises(pool.WorkerTimeoutError, match=r"longer than 0\.5 s"):
        asyncio.run(workers.play(job))


def test_a_killed_worker_is_an_error_of_its_rollout_only(workers: pool.WorkerPool, scripted: ScriptedServer) -> None:
    async def kill() -> None:
        async with playing(workers, spec(scripted, "scripted/recall?fault=stall")) as (task, worker):
            os.kill(worker, signal.SIGKILL)
            with pytest.raises(pool.WorkerError, match="killed by signal 9"):
                await task

    asyncio.run(kill())
    assert asyncio.run(workers.play(spec(scripted))).turns


def test_a_killed_zygote_is_an_error_of_its_rollouts_and_the_next_one_starts_another(
    workers: pool.WorkerPool, scripted: ScriptedServer
) -> None:
    async def kill() -> tuple[int, int]:
        async with playing(workers, spec(scripted, "scripted/recall?fault=stall")) as (task, worker):
            zygote = workers.pid
            assert zygote is not None
            os.kill(zygote, signal.SIGKILL)
            with pytest.raises(pool.WorkerError, match="zygote died"):
                await task
            return zygote, worker

    zygote, worker = asyncio.run(kill())
    wait_for(lambda: gone(worker))
    assert asyncio.run(workers.play(spec(scripted))).turns
    assert workers.pid != zygote


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("500", "InternalServerError"),
        ("400", "BadRequestError"),
        ("401", "AuthenticationError"),
        ("drop", "APIConnectionError"),
    ],
)
def test_an_endpoint_that_fails_is_an_error(
    workers: pool.WorkerPool, scripted: ScriptedServer, fault: str, message: str
) -> None:
    with pytest.raises(pool.EndpointError, match=message):
        asyncio.run(workers.play(spec(scripted, f"scripted/recall?fault={fault}")))


def test_a_closed_pool_leaves_no_process_and_no_folder(scripted: ScriptedServer) -> None:
    before = set(folders(os.getpid()))
    made = pool.WorkerPool()
    asyncio.run(made.play(spec(scripted)))
    zygote = made.pid
    assert zygote is not None
    made.close()
    assert gone(zygote)
    assert set(folders(os.getpid())) == before
    assert made.pid is None


MAIN = """
import asyncio, sys
from bfcl_rollout import pool
from bfcl_rollout.records import RolloutSpec
spec = RolloutSpec.model_validate_json(sys.argv[1])
async def main():
    workers = await pool.acquire()
    task = asyncio.create_task(workers.play(spec))
    print(workers.pid, flush=True)
    await task
asyncio.run(main())
"""


def test_a_killed_main_process_leaves_no_process_and_no_folder(scripted: ScriptedServer) -> None:
    job = spec(scripted, "scripted/recall?fault=stall").model_dump_json()
    with subprocess.Popen([sys.executable, "-c", MAIN, job], stdout=subprocess.PIPE, text=True) as main:
        try:
            assert main.stdout is not None
            zygote = int(main.stdout.readline())
            wait_for(lambda: children(zygote))
            (worker,) = children(zygote)
            assert folders(main.pid)
        finally:
            main.kill()
    wait_for(lambda: gone(zygote) and gone(worker))
    wait_for(lambda: not folders(main.pid))


def test_a_worker_sees_none_of_the_users_secrets(scripted: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    made = pool.WorkerPool()
    try:
        asyncio.run(made.start())
        assert b"sk-of-the-user" not in Path(f"/proc/{made.pid}/environ").read_bytes()
    finally:
        made.close()

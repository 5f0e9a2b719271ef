"""The main process's side of the workers: start the zygote, hand it jobs, cancel, time out, start it anew.

One pool serves a process. It is started when first used and closed with `release`, at the end of the last user, or
when the interpreter exits; a main process that is killed leaves nothing either, since the zygote ends with its
control socket.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError
from bfcl_rollout.graders import GraderDiedError, Graders
from bfcl_rollout.records import Execution, Failure, GradeSpec, RolloutRecord, RolloutSpec, Verdict
from bfcl_rollout.worker import frames, limits

_START_SECONDS = 120.0
_GRADE_SECONDS = 300.0
_FOLDER_PREFIX = "bfcl-rollout-"
Operation = Literal["play", "execute", "grade", "grader", "selftest"]
ModelT = TypeVar("ModelT", bound=BaseModel)


class WorkerError(RuntimeError):
    """A worker or the zygote failed. Never the model's doing."""


class WorkerStartError(WorkerError, SetupError):
    """The zygote cannot be started."""


class WorkerTimeoutError(WorkerError):
    """A job outlived its wall-clock limit and was killed."""


class EndpointError(WorkerError):
    """The rollout's endpoint failed for good.

    `partial` holds what the rollout did before, where its protocol can tell.
    """

    def __init__(self, message: str, partial: RolloutRecord | None = None) -> None:
        super().__init__(message)
        self.partial = partial


class WorkerPool:
    """A zygote and the jobs it runs. Safe to use from several event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the start of a zygote and writing to its control socket
        self._zygote: _Zygote | None = None
        self._graders = Graders(self._open_grader)

    @property
    def pid(self) -> int | None:
        """Process id of the live zygote, if there is one."""
        return self._zygote.process.pid if self._zygote is not None else None

    async def play(self, spec: RolloutSpec) -> RolloutRecord:
        """Play one rollout. Cancelling kills its worker.

        Raises:
            EndpointError: the endpoint failed.
            WorkerTimeoutError: the rollout outlived `spec.limits.wall_s`.
            WorkerError: the worker died or could not be started.
        """
        outcome = await self._run("play", spec.category, spec, RolloutRecord, spec.limits.wall_s)
        if isinstance(outcome, Failure):
            message = f"{outcome.error_type}: {outcome.message}"
            if outcome.kind == "endpoint":
                raise EndpointError(message, outcome.partial)
            raise WorkerError(message)
        return outcome

    async def grade(self, spec: GradeSpec) -> Verdict:
        """Grade one result, in a process that never executes model output.

        Where grading compares what the calls did, they are executed first, in a process that has no answer key.

        Raises:
            WorkerError: grading itself failed.
        """
        if spec.category.startswith("multi_turn") and spec.execution is None:
            spec = spec.model_copy(update={"execution": await self._execute(spec)})
        if spec.execution is not None:
            return await self._grade_execution(spec)
        outcome = await self._run("grade", spec.category, spec, Verdict, _GRADE_SECONDS)
        if isinstance(outcome, Failure):
            raise WorkerError(f"{outcome.error_type}: {outcome.message}")
        return outcome

    async def _grade_execution(self, spec: GradeSpec) -> Verdict:
        try:
            async with asyncio.timeout(_GRADE_SECONDS):
                return Verdict.model_validate_json(await self._graders.grade(spec.category, _spec_json(spec)))
        except TimeoutError:
            raise WorkerTimeoutError(f"grade ran longer than {_GRADE_SECONDS:g} s and was killed") from None
        except GraderDiedError as error:
            ending = "its zygote died" if error.args[0] is None else _ending(error.args[0])
            raise WorkerError(f"the worker of this grade died: {ending}") from None

    async def _open_grader(self, category: str) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                await asyncio.to_thread(self._send, {"op": "grader", "category": category}, theirs)
        except BaseException:
            ours.close()
            raise
        return ours

    async def _execute(self, spec: GradeSpec) -> Execution:
        outcome = await self._run("execute", spec.category, spec, Execution, _GRADE_SECONDS)
        if isinstance(outcome, Failure):
            raise WorkerError(f"{outcome.error_type}: {outcome.message}")
        return outcome

    async def selftest(self, spec: GradeSpec) -> bool:
        """Whether the official checker passes an accepted answer of this entry and fails an empty result."""
        payload = await self._exchange("selftest", spec.category, spec, _GRADE_SECONDS)
        return bool(json.loads(payload[1]))

    async def start(self) -> None:
        """Start the zygote now instead of with the first job."""
        await asyncio.to_thread(self._live)

    async def adopt(self, folder: str) -> None:
        """Have the zygote remove a rollout's folder if this process dies before it can. Undone by `disown`."""
        await asyncio.to_thread(self._send, {"op": "adopt", "path": folder})

    async def disown(self, folder: str) -> None:
        """Leave a folder to this process again. A zygote that has ended since knows nothing of it."""
        if self._zygote is not None:
            await asyncio.to_thread(self._send, {"op": "disown", "path": folder})

    def close(self) -> None:
        """End the zygote and every job it has."""
        self._graders.close()
        with self._lock:
            zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()

    async def _run(
        self, operation: Operation, category: str, spec: BaseModel, answer: type[ModelT], seconds: float
    ) -> ModelT | Failure:
        kind, payload = await self._exchange(operation, category, spec, seconds)
        try:
            if kind == frames.FAILURE:
                return Failure.model_validate_json(payload)
            return answer.model_validate_json(payload)
        except ValidationError as error:
            raise WorkerError(f"the worker's answer makes no sense: {error.errors()[0]}") from error

    async def _exchange(
        self, operation: Operation, category: str, spec: BaseModel, seconds: float
    ) -> tuple[bytes, bytes]:
        try:
            async with asyncio.timeout(seconds or None):
                return await self._attempt(operation, category, spec)
        except TimeoutError:
            raise WorkerTimeoutError(
                f"{operation} ran longer than {seconds:g} s and was killed (wall-clock limit of the rollout)"
            ) from None

    async def _attempt(self, operation: Operation, category: str, spec: BaseModel) -> tuple[bytes, bytes]:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                request = {"op": operation, "category": category}
                await asyncio.to_thread(self._send, request, theirs)
            reader, writer = await asyncio.open_unix_connection(sock=ours, limit=1 << 20)
        except BaseException:
            ours.close()
            raise
        answer: tuple[bytes, bytes] | None = None
        ending = "its zygote died"
        try:
            writer.write(frames.pack(frames.SPEC, _spec_json(spec)))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            while frame := await frames.read(reader):
                if frame[0] == frames.EXIT:
                    ending = _ending(frame[1])
                    break
                answer = frame
                if answer[0] in (frames.RECORD, frames.FAILURE):
                    break
        except frames.FrameError as error:
            raise WorkerError(f"the worker's answer makes no sense: {error}") from error
        finally:
            # Closing our end is what tells the zygote to kill a job that still runs.
            writer.close()
        if answer is None:
            raise WorkerError(f"the worker of this {operation} died: {ending}")
        return answer

    def _send(self, request: dict[str, str], connection: socket.socket | None = None) -> None:
        message = json.dumps(request).encode()
        descriptors = [] if connection is None else [connection.fileno()]
        for last in (False, True):
            zygote = self._live()
            try:
                with self._lock:
                    socket.send_fds(zygote.control, [message], descriptors)
                return
            except OSError as error:
                if last:
                    raise WorkerError(f"the zygote cannot be reached: {error}") from error
                # It died between two jobs: the next attempt starts another.

    def _live(self) -> _Zygote:
        with self._lock:
            if self._zygote is not None and self._zygote.process.poll() is not None:
                self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = _Zygote()
            return self._zygote


class _Zygote:
    """A running zygote process, its control socket and its folder."""

    def __init__(self) -> None:
        # A changed answer key or checker would be graded by without a word.
        official.verify()
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER_PREFIX}{os.getpid()}-"))
        package_parent = official.package_dir().parent
        # No key or token of the user's is among the variables that a worker inherits.
        environment = limits.clean_environment(os.environ)
        environment |= {"PYTHONUTF8": "1", "PYTHONHASHSEED": "0", "PYTHONWARNINGS": "ignore"}
        paths = [environment.get("PYTHONPATH", ""), str(package_parent)]
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = self.folder / "zygote.log"
        arguments = [str(theirs.fileno()), str(self.folder), str(official.cache_dir() / "embeddings")]
        with theirs, log.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "bfcl_rollout.worker.zygote",
                    *arguments,
                ],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self.folder,
            )
        self.control.settimeout(_START_SECONDS)
        try:
            ready = self.control.recv(16)
        except OSError:
            ready = b""
        if not ready:
            self.process.kill()
            self.process.wait()
            reason = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
            self.close()
            raise WorkerStartError(f"the zygote did not start: {reason[-1] if reason else 'no message'}")
        self.control.settimeout(None)

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _spec_json(spec: BaseModel) -> bytes:
    return TypeAdapter(type(spec)).dump_json(spec)


def _ending(payload: bytes) -> str:
    try:
        report = json.loads(payload)
        status, stderr = int(report["status"]), str(report["stderr"])
    except (ValueError, KeyError, TypeError):
        return "in a way that makes no sense"
    how = f"killed by signal {-status}" if status < 0 else f"exit status {status}"
    return f"{how}: {stderr.splitlines()[-1]}" if stderr else how


def _sweep() -> None:
    """Remove folders of main processes that are gone and whose zygote could not clean up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDER_PREFIX}*"):
        owner = folder.name.removeprefix(_FOLDER_PREFIX).split("-")[0]
        if not owner.isdigit():
            continue
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


_shared = WorkerPool()
_users = 0
_users_lock = threading.Lock()


def shared() -> WorkerPool:
    """This process's pool."""
    return _shared


async def acquire() -> WorkerPool:
    """Start this process's pool and keep it until `release`."""
    global _users
    with _users_lock:
        _users += 1
    await _shared.start()
    return _shared


def release() -> None:
    """Give up one `acquire`; the last one closes the pool."""
    global _users
    with _users_lock:
        _users = max(0, _users - 1)
        last = _users == 0
    if last:
        _shared.close()


atexit.register(_shared.close)

"""The zygote: a process that has BFCL loaded and forks one process for each rollout and each grading.

It talks to the main process over one socket, inherited as a file descriptor. Each message there names an operation
and brings along one end of a connection made for this job; the forked process reads its spec from it and writes its
record to it. The zygote keeps the connection open beside the job, for two reasons: when the main process closes its
end (a cancelled rollout, a timeout, a main process that died) the zygote sees that and kills the job's process
group; and when the job's process has ended, the zygote reports how, as the last frame.

It never starts a thread, never executes model output and never loads the answer key.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.records import Failure, GradeSpec, Limits, Mode, RolloutRecord, RolloutSpec
from bfcl_rollout.worker import (
    conversation,
    embeddings,
    encoders,
    execution,
    frames,
    grade,
    limits,
    play,
    protocols,
    states,
    upstream,
)

VECTOR = "memory_vector"
_MAX_ENCODERS = 4
READY = b"ready"
_STDERR_TAIL = 2000
_MESSAGE = 4096


@dataclass
class Job:
    """One forked process: the connection it serves and the folder it may write to."""

    pid: int
    connection: socket.socket
    folder: Path
    hung_up: bool = False


class Zygote:
    """Forks, watches, reaps."""

    def __init__(self, control: socket.socket, root: Path, store: Path) -> None:
        self.control = control
        self.root = root
        self.store = store
        self.encoder = embeddings.RemoteEncoder()
        self.encoders: encoders.EncoderPool | None = None
        self.jobs: dict[int, Job] = {}
        self.entries: dict[str, dict[str, dict[str, Any]]] = {}
        self.adopted: set[str] = set()
        self.count = 0
        self.pid = os.getpid()
        upstream.load()
        states.keep_tables()
        protocols.load()
        self.readable = limits.code_paths()
        self.hidden = limits.answer_paths(official.package_dir())
        limits.prepare(self.readable, self.hidden)
        modes: tuple[Mode, ...] = ("fc", "prompting")
        self.handlers = {mode: upstream.make_handler(mode) for mode in modes}

    def serve(self) -> None:
        """Run until the main process closes the control socket."""
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note)
        # The terminal's Ctrl-C goes to the whole group; the main process decides what ends.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        gc.collect()
        gc.freeze()
        self.control.send(READY)
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(wake_read, 4096)
                    self._reap(poll)
                elif fd == self.control.fileno():
                    if not self._accept(poll):
                        return
                elif fd in self.jobs and not self.jobs[fd].hung_up:
                    self.jobs[fd].hung_up = True
                    poll.unregister(fd)
                    _kill_group(self.jobs[fd].pid)

    def close(self) -> None:
        """Kill what is left, and remove this zygote's folder and the folders it was left with."""
        for job in self.jobs.values():
            _kill_group(job.pid)
        for job in self.jobs.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(job.pid, 0)
        if self.encoders is not None:
            self.encoders.close()
        for path in (str(self.root), *self.adopted):
            shutil.rmtree(path, ignore_errors=True)

    def _accept(self, poll: select.poll) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self.control, _MESSAGE, 1)
        if not message:
            return False
        request = json.loads(message)
        if request["op"] == "adopt":
            self.adopted.add(request["path"])
            return True
        if request["op"] == "disown":
            self.adopted.discard(request["path"])
            return True
        connection = socket.socket(fileno=descriptors[0])
        category = request["category"]
        try:
            encoder = self._prepare(request["op"], category)
        except (Exception, embeddings.EncoderLost) as error:
            failure = Failure(kind="worker", error_type=type(error).__name__, message=str(error))
            with connection, contextlib.suppress(OSError):
                connection.sendall(frames.pack(frames.FAILURE, failure.model_dump_json().encode()))
            return True
        self.count += 1
        folder = self.root / f"job-{self.count}"
        folder.mkdir(mode=0o700)
        pid = os.fork()
        if pid == 0:
            self.encoder.attach(encoder)
            self._run_job(request["op"], category, connection, folder)
        if encoder is not None:
            encoder.close()
        fd = connection.fileno()
        self.jobs[fd] = Job(pid, connection, folder)
        poll.register(fd, 0)  # hang-up only
        return True

    def _prepare(self, op: str, category: str) -> socket.socket | None:
        """Load what a job of this category needs before it is forked; returns its connection to an encoder, if any."""
        if category not in self.entries:
            self.entries[category] = {entry["id"]: entry for entry in official.load_entries(category)}
            play.versions_for(category)
        if category != VECTOR or op != "play":
            return None
        if self.encoders is None:
            self.encoders = encoders.EncoderPool(max(1, min(_MAX_ENCODERS, os.cpu_count() or 1)), self.store)
            embeddings.load_memory_vector(self.encoder)
        return self.encoders.connect()

    def _run_job(self, op: str, category: str, connection: socket.socket, folder: Path) -> None:
        """The forked process. Never returns."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            self.control.close()
            for job in self.jobs.values():
                job.connection.close()
            if self.encoders is not None:
                self.encoders.forget()
            with (folder / "stderr").open("wb") as errors, open(os.devnull, "r+b") as null:
                os.dup2(null.fileno(), 0)
                os.dup2(null.fileno(), 1)
                os.dup2(errors.fileno(), 2)
            os.chdir(folder)
            if op == "grader":
                self._grade_on(category, folder, connection)
            kind, payload = frames.read_blocking(connection)
            if kind != frames.SPEC:
                raise frames.FrameError(f"expected a spec, got {kind!r}")
            answer_kind, answer = self._answer(op, category, payload, folder, connection)
            connection.sendall(frames.pack(answer_kind, answer))
            status = 0
        except EOFError:
            status = 0  # the main process changed its mind before it sent the spec
        except BaseException as error:
            # The last line of it reaches the main process.
            traceback.print_exception(error)
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _grade_on(self, category: str, folder: Path, connection: socket.socket) -> None:
        """Grade conversations, whose calls others have executed, until the main process hangs up.

        Raises:
            EOFError: it did.
        """
        golds = conversation.load_golds(category)
        self._confine(Limits(), folder, connection, endpoint=None)
        while True:
            _, payload = frames.read_blocking(connection)
            spec = GradeSpec.model_validate_json(payload)
            verdict = conversation.grade(spec, golds[spec.entry_id], self.entries[category][spec.entry_id])
            connection.sendall(frames.pack(frames.RECORD, verdict.model_dump_json().encode()))

    def _answer(
        self, op: str, category: str, payload: bytes, folder: Path, connection: socket.socket
    ) -> tuple[bytes, bytes]:
        """Do one job, confined: a rollout to its endpoint and its folder, a grading to itself and the answer key."""
        scratch = folder / "rollout"
        scratch.mkdir()
        if op == "play":
            spec = RolloutSpec.model_validate_json(payload)
            entry = self.entries[category][spec.entry_id]
            self._confine(spec.limits, scratch, connection, endpoint=spec.endpoint)
            versions = play.versions_for(category, self.encoders.weights.sha256 if self.encoders else None)
            handler = self.handlers[spec.mode]
            outcome = play.play(spec, entry, handler, scratch, versions)
            if isinstance(outcome, RolloutRecord) and category.startswith("multi_turn"):
                # Here rather than in a process of its own, which would cost more than the execution.
                outcome.execution = execution.execute_again(outcome, spec, entry, handler)
            kind = frames.RECORD if isinstance(outcome, RolloutRecord) else frames.FAILURE
            return kind, outcome.model_dump_json().encode()
        grade_spec = GradeSpec.model_validate_json(payload)
        entry = self.entries[category][grade_spec.entry_id]
        handler = self.handlers[grade_spec.mode]
        if op == "execute":
            self._confine(Limits(), scratch, connection, endpoint=None)
            return frames.RECORD, execution.execute(grade_spec, entry, handler).model_dump_json().encode()
        answers = grade.load_answers(category)
        self._confine(Limits(), scratch, connection, endpoint=None)
        if op == "grade":
            return frames.RECORD, grade.grade(grade_spec, answers, handler).model_dump_json().encode()
        if op == "selftest":
            return frames.RECORD, json.dumps(grade.selftest(grade_spec, answers, entry, handler)).encode()
        raise ValueError(f"unknown operation {op!r}")

    def _confine(self, bounds: Limits, folder: Path, connection: socket.socket, endpoint: str | None) -> None:
        limits.apply(
            bounds,
            folder=folder,
            readable=self.readable,
            hidden=self.hidden,
            endpoint=endpoint,
            parent=self.pid,
            keep={connection.fileno(), *self.encoder.descriptors()},
        )

    def _reap(self, poll: select.poll) -> None:
        for fd, job in list(self.jobs.items()):
            pid, status = os.waitpid(job.pid, os.WNOHANG)
            if pid == 0:
                continue
            # Whatever it left running belongs to its group. The process itself is gone, and its number free.
            _kill_group(job.pid, leader=False)
            report = {"status": os.waitstatus_to_exitcode(status), "stderr": _tail(job.folder / "stderr")}
            if not job.hung_up:
                poll.unregister(fd)
                job.connection.setblocking(False)
                with contextlib.suppress(OSError):
                    job.connection.send(frames.pack(frames.EXIT, json.dumps(report).encode()))
            job.connection.close()
            del self.jobs[fd]
            shutil.rmtree(job.folder, ignore_errors=True)


def _note(signum: int, frame: FrameType | None) -> None:
    """A handler must exist for the wake-up descriptor to be written."""


def _kill_group(pid: int, *, leader: bool = True) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if leader:
        # It may not have made its group yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _STDERR_TAIL))
            return file.read().decode(errors="replace").strip()
    except OSError:
        return ""


def main(argv: list[str]) -> None:
    """`python -m bfcl_rollout.worker.zygote CONTROL_FD FOLDER STORE`, started by the pool."""
    control = socket.socket(fileno=int(argv[0]))
    root = Path(argv[1])
    tempfile.tempdir = str(root)
    os.environ["BFCL_PROJECT_ROOT"] = str(root / "bfcl")
    # BFCL reports its progress on stdout; nothing a zygote does belongs on the user's terminal.
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    zygote = Zygote(control, root, Path(argv[2]))
    try:
        zygote.serve()
    finally:
        zygote.close()


if __name__ == "__main__":
    main(sys.argv[1:])

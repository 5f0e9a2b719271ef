"""Confinement of a worker process: the second wall, for when model output gets past the call guard.

`apply` runs in the process that was forked for a job, before it sees any model output, and cannot be undone:

- it dies with its parent, and its environment keeps only an allow-list of harmless names;
- resource limits bound its address space, the size of a file, open files, processor time and core dumps;
- Landlock (`worker.landlock`) lets it read only what it is told, write only its own folder, connect only to
  the endpoint's TCP port and signal no other process;
- a seccomp filter (`worker.seccomp`) takes away new processes and threads, `exec`, other sockets and much
  else.

What a kernel does not offer is returned in `Applied.missing`, never raised. Gaps that remain on every kernel:

- Landlock knows ports, not addresses: the endpoint's port can be reached on any host.
- Names, sizes and times of files can be asked for everywhere, though not their contents.
- `file_mb` bounds each file and not their number. Whoever owns the folder should watch `disk_use`.
- A fork inherits its parent's memory and descriptors. A parent must hold no secrets (start it with
  `clean_environment`), and name the descriptors that may survive as `keep`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
import os
import resource
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from bfcl_rollout.records import Limits
from bfcl_rollout.worker import landlock, seccomp

MIB = 1 << 20
_PR_SET_PDEATHSIG = 1

_KEPT_VARIABLES = frozenset(
    (
        *(
            "BFCL_PROJECT_ROOT",
            "BFCL_ROLLOUT_CACHE",
            "XDG_CACHE_HOME",
            "HF_HOME",
            "SENTENCE_TRANSFORMERS_HOME",
        ),
        *(
            "HOME",
            "TMPDIR",
            "PATH",
            "LD_LIBRARY_PATH",
            "LANG",
            "LANGUAGE",
            "TZ",
            "SSL_CERT_DIR",
            "SSL_CERT_FILE",
        ),
        *("PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV"),
    )
)
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Numeric libraries start no threads: a zygote must have none when it forks, and a worker may not make any.
One thread is also what BFCL sets for itself (`_llm_response_generation.py:364`), and decides the last bits
of a vector."""


class CallTimeout(Exception):  # noqa: N818 - an alarm, not a fault
    """Tool calls took longer than they may. BFCL shows the text to the model, like any error of a tool."""


@dataclass
class Applied:
    """What confines this process. An entry of `missing` is a name and the reason: `filesystem: no
    Landlock`."""

    applied: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def attempt(self, name: str, action: Callable[[], str | None]) -> None:
        """Run `action`, which returns why it could not act, or None. An exception counts as that reason.

        Every exception: whatever an odd platform answers here, the rest must still be applied.
        """
        try:
            reason = action()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            self.applied.append(name)
        else:
            self.missing.append(f"{name}: {reason}")


def apply(
    limits: Limits,
    *,
    folder: Path,
    readable: Sequence[Path],
    endpoint: str | None,
    hidden: Sequence[Path] = (),
    parent: int | None = None,
    keep: Collection[int] | None = None,
) -> Applied:
    """Confine the calling process, for good. It must have one thread, and be a fork made for one job.

    Args:
        limits: Bounds; `call_s` is left to `call_timer`.
        folder: The only folder it may write to (and read). Becomes `HOME` and `TMPDIR`.
        readable: Files and folders it may read, with all below them. `code_paths()` is what a worker needs.
        endpoint: URL of the only server it may connect to, or None for no network. A host name is resolved
            now, since later there is no DNS.
        hidden: Files and folders that stay unreadable although they lie below `readable`. Their names show.
        parent: Process id of the process that forked this one. Without it, a parent that died before this
            call goes unnoticed.
        keep: Open descriptors to keep beside 0, 1 and 2; all others are closed. None keeps all.
    """
    done = Applied()
    done.attempt("parent-death", lambda: _die_with_parent(parent))
    if keep is not None:
        done.attempt("descriptors", lambda: _close_others(keep))
    done.attempt("environment", lambda: _scrub(folder))
    for name, set_limit in _resource_limits(limits).items():
        done.attempt(name, set_limit)
    port = None
    if endpoint is not None:
        parts = urlsplit(endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        done.attempt("host-name", lambda: _pin_host(parts.hostname or "", port))
    _restrict_access(done, folder, readable, hidden, port)
    done.attempt("system-calls", lambda: _filter_calls(network=endpoint is not None))
    return done


def prepare(readable: Sequence[Path], hidden: Sequence[Path] = ()) -> None:
    """Do once, before forking, what would otherwise cost each fork 30 ms: imports and the list of grants."""
    with suppress(Exception):  # `apply` reports it
        landlock.abi_version()
    "host.name".encode("idna")  # what a look-up of a host name imports
    landlock.grants((*readable, *map(Path, landlock.SYSTEM_FILES)), tuple(hidden))


def clean_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a worker may see, plus `ONE_THREAD`. Start a zygote with it."""
    kept = {k: v for k, v in environ.items() if k in _KEPT_VARIABLES or k.startswith("LC_")}
    return kept | ONE_THREAD


def code_paths() -> tuple[Path, ...]:
    """Where this interpreter's code lies: standard library, installed packages, this package, and BFCL.

    The working directory and `PYTHONPATH` are left out, because a user's own files lie there.
    """
    import bfcl_rollout

    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    installed = [p for p in sys.path if Path(p).name in {"site-packages", "dist-packages", "lib-dynload"}]
    packages = [str(Path(bfcl_rollout.__file__).parent)]
    if (bfcl := importlib.util.find_spec("bfcl_eval")) is not None:
        packages += bfcl.submodule_search_locations or []
    files = [sys.executable, f"{sys.prefix}/pyvenv.cfg"]
    return tuple(sorted({Path(p).resolve() for p in [*named, *installed, *packages, *files]}))


def answer_paths(bfcl_package: Path) -> tuple[Path, ...]:
    """What to hide of an installed `bfcl_eval`: every answer key it ships."""
    data = bfcl_package / "data"
    return (data / "possible_answer", data / "unused_datasets")


def disk_use(folder: Path) -> int:
    """Bytes allocated below `folder`. For whoever bounds it from outside."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(root, name)).st_blocks * 512
    return total


@contextmanager
def call_timer(seconds: float) -> Iterator[None]:
    """Raise `CallTimeout` in the main thread after `seconds`, and again each `seconds` until the block ends.

    Zero means no limit. The repetition ends further calls of the same step that hang, and code that
    swallows the exception. It interrupts Python code and blocking system calls; a single call into C that
    never returns is only ended by the pool's limit on the rollout.
    """
    if seconds <= 0:
        yield
        return
    armed = True

    def expire(signum: int, frame: FrameType | None) -> None:
        if armed:
            raise CallTimeout(f"tool calls took longer than {seconds:g} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        try:
            armed = False
        finally:  # also if the alarm struck right there
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)


def describe() -> dict[str, str]:
    """What would confine a worker here, by name: `applied`, or why not. Never raises.

    It is tried for real, in a process of its own.
    """
    code = "import sys; from bfcl_rollout.worker import limits; limits.report(sys.argv[1])"
    try:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-c", code, folder]
            run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        return {"confinement": f"cannot be tried: {detail.strip()[-300:]}"}
    return dict(line.split(": ", 1) for line in run.stdout.splitlines())


def report(folder: str) -> None:
    """Confine this process and print one line for each part. The other half of `describe`."""
    done = apply(Limits(), folder=Path(folder), readable=code_paths(), endpoint="http://127.0.0.1:1", keep=())
    for line in [*(f"{name}: applied" for name in done.applied), *done.missing]:
        print(line)


def _die_with_parent(parent: int | None) -> str | None:
    if sys.platform != "linux":
        return f"{sys.platform} cannot end a process with its parent"
    expected = os.getppid() if parent is None else parent
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), *[ctypes.c_ulong(0)] * 3) != 0:
        return os.strerror(ctypes.get_errno())
    if os.getppid() != expected:  # it died before the kernel was told
        os.kill(os.getpid(), signal.SIGKILL)
    return None


def _close_others(keep: Collection[int]) -> None:
    edges = sorted({0, 1, 2, *keep})
    highest = max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], edges[-1] + 1)
    for low, high in zip(edges, [*edges[1:], highest], strict=True):
        os.closerange(low + 1, high)


def _scrub(folder: Path) -> None:
    kept = clean_environment(os.environ) | {"HOME": str(folder), "TMPDIR": str(folder)}
    for name in os.environ.keys() - kept.keys():
        del os.environ[name]
    os.environ.update(kept)
    tempfile.tempdir = None


def _resource_limits(limits: Limits) -> dict[str, Callable[[], str | None]]:
    wanted: dict[str, Callable[[], str | None]] = {
        "core-dumps": lambda: _limit(resource.RLIMIT_CORE, 0),
        # Root is exempt from this one. The system-call filter makes no exception.
        "processes": _limit_processes,
    }
    if limits.memory_mb:
        wanted["memory"] = lambda: _limit_memory(limits.memory_mb)
    if limits.file_mb:
        wanted["file-size"] = lambda: _limit(resource.RLIMIT_FSIZE, limits.file_mb * MIB)
    if limits.open_files:
        wanted["open-files"] = lambda: _limit(resource.RLIMIT_NOFILE, limits.open_files)
    if limits.wall_s:  # for a process that outlives whoever was to stop it
        wanted["processor-time"] = lambda: _limit(resource.RLIMIT_CPU, math.ceil(limits.wall_s) + 1)
    return wanted


def _limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _limit_memory(memory_mb: int) -> str | None:
    if sys.platform != "linux":
        return f"{sys.platform} does not enforce a limit on address space"
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory_mb * MIB)
    return None


def _limit_processes() -> str | None:
    _limit(resource.RLIMIT_NPROC, 0)
    exempt = os.geteuid() == 0 and seccomp.unsupported() is not None
    return "root is exempt from the limit on processes" if exempt else None


def _pin_host(host: str, port: int) -> None:
    """Resolve `host` once and let later look-ups of it return the same addresses."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if {str(row[4][0]) for row in found} == {host}:
        return
    original = socket.getaddrinfo

    def getaddrinfo(asked: Any, *args: Any, **kwargs: Any) -> Any:
        name = asked.decode() if isinstance(asked, bytes) else asked
        return found if name == host else original(asked, *args, **kwargs)

    vars(socket)["getaddrinfo"] = getaddrinfo


def _restrict_access(
    done: Applied, folder: Path, readable: Sequence[Path], hidden: Sequence[Path], port: int | None
) -> None:
    """Apply Landlock and book what this kernel's version of it covers."""
    try:
        lacking = landlock.missing(landlock.abi_version())
        landlock.restrict(folder=folder, readable=tuple(readable), hidden=tuple(hidden), port=port)
    except Exception as error:  # the binding has error types of its own; none of them may stop the rest
        lacking = dict.fromkeys(landlock.missing(0), f"no Landlock ({type(error).__name__}: {error})")
    done.applied += [name for name in landlock.missing(0) if name not in lacking]
    done.missing += [f"{name}: {reason}" for name, reason in lacking.items()]


def _filter_calls(*, network: bool) -> str | None:
    if (reason := seccomp.unsupported()) is not None:
        return reason
    seccomp.install(network=network)
    return None

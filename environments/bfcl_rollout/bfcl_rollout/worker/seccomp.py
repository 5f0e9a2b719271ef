"""A seccomp filter for a worker: the kernel refuses every system call that a rollout has no use for.

The filter is an allow-list. What matters most is what it leaves out: new processes *and threads*, `exec`,
`ptrace`, reading another process's memory, io_uring, `memfd`, `chmod` and its kin (which Landlock does not
cover), changing limits, listening, and every kind of socket but TCP. A few calls pass for some arguments
only.

A refused call returns EPERM. Calls newer than the table return ENOSYS, as on a kernel without them, so that a
newer C library falls back to what it did before; so does `clone3`, whose arguments a filter cannot see.

The program is classic BPF, written by hand: `libseccomp` is not installed everywhere, and its Python
binding has had no release since 2021. Layouts and numbers are those of Linux's `linux/seccomp.h`,
`linux/filter.h`, `asm/unistd_64.h` (x86-64) and `asm-generic/unistd.h` (aarch64).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

# Name, number on x86-64, number on aarch64; "-" where an architecture does not have the call.
_ALWAYS = """
read 0 63, write 1 64, readv 19 65, writev 20 66, pread64 17 67, pwrite64 18 68, preadv 295 69,
pwritev 296 70, preadv2 327 286, pwritev2 328 287, lseek 8 62, close 3 57, close_range 436 436,
dup 32 23, dup2 33 -, dup3 292 24, pipe 22 -, pipe2 293 59, open 2 -, openat 257 56, openat2 437 437,
stat 4 -, lstat 6 -, fstat 5 80, newfstatat 262 79, statx 332 291, access 21 -, faccessat 269 48,
faccessat2 439 439, readlink 89 -, readlinkat 267 78, getdents 78 -, getdents64 217 61, getcwd 79 17,
chdir 80 49, fchdir 81 50, mkdir 83 -, mkdirat 258 34, rmdir 84 -, unlink 87 -, unlinkat 263 35,
rename 82 -, renameat 264 38, renameat2 316 276, ftruncate 77 46, fsync 74 82, fdatasync 75 83,
flock 73 32, umask 95 166, statfs 137 43, fstatfs 138 44, sendfile 40 71, copy_file_range 326 285,
fadvise64 221 223, mmap 9 222, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233,
brk 12 214, mincore 27 232, msync 26 227, membarrier 324 283, get_mempolicy 239 236, futex 202 98,
set_robust_list 273 99, get_robust_list 274 100, rseq 334 293, sched_yield 24 124,
sched_getaffinity 204 123, getcpu 309 168, nanosleep 35 101, clock_nanosleep 230 115,
clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169, time 201 -, times 100 153, alarm 37 -,
setitimer 38 103, getitimer 36 102, pause 34 -, rt_sigaction 13 134, rt_sigprocmask 14 135,
rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigsuspend 130 133, rt_sigtimedwait 128 137,
sigaltstack 131 132, restart_syscall 219 128, getpid 39 172, getppid 110 173, gettid 186 178,
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150,
getgroups 115 158, getpgrp 111 -, getpgid 121 155, getsid 124 156, uname 63 160, sysinfo 99 179,
getrusage 98 165, getrlimit 97 163, getrandom 318 278, poll 7 -, ppoll 271 73, select 23 -,
pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -,
epoll_pwait 281 22, epoll_pwait2 441 441, eventfd2 290 19, connect 42 203, shutdown 48 210,
getsockname 51 204, getpeername 52 205, getsockopt 55 209, recvfrom 45 207, recvmsg 47 212, exit 60 93,
exit_group 231 94, wait4 61 260
"""
_SOMETIMES = """
socket 41 198, socketpair 53 199, sendto 44 206, sendmsg 46 211, setsockopt 54 208, kill 62 129,
tgkill 234 131, prctl 157 167, prlimit64 302 261, fcntl 72 25, ioctl 16 29, clone3 435 435
"""
_LAST_KNOWN = 450
"""Highest call number that existed when the table was made (Linux 6.1)."""

_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Column in the tables, and AUDIT_ARCH value."""

_LD_WORD, _JEQ, _JGE, _AND, _RET = 0x20, 0x15, 0x35, 0x54, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_DENY = 0x00050000 | errno.EPERM
_ABSENT = 0x00050000 | errno.ENOSYS
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER_MODE = 38, 22, 2

_AF_UNIX, _AF_INET, _AF_INET6, _SOCK_STREAM, _SOCK_TYPE_MASK, _IPPROTO_TCP = 1, 2, 10, 1, 0xF, 6
_MSG_FASTOPEN, _TCP_ULP = 0x20000000, 31


class _Op(NamedTuple):
    code: int
    jt: int
    jf: int
    k: int


def _low(arg: int) -> _Op:
    return _Op(_LD_WORD, 0, 0, 16 + 8 * arg)


def _high(arg: int) -> _Op:
    return _Op(_LD_WORD, 0, 0, 20 + 8 * arg)


def _one_of(arg: int, values: Sequence[int], mask: int | None = None) -> list[_Op]:
    """Refuse unless the low 32 bits of `arg` (after `mask`) are one of `values`; else go on behind."""
    load = [_low(arg)] if mask is None else [_low(arg), _Op(_AND, 0, 0, mask)]
    tests = [_Op(_JEQ, len(values) - i, 0, value) for i, value in enumerate(values)]
    return [*load, *tests, _Op(_RET, 0, 0, _DENY)]


def _none_of(arg: int, values: Sequence[int]) -> list[_Op]:
    """Refuse if the low 32 bits of `arg` are one of `values`."""
    tests = [_Op(_JEQ, len(values) - 1 - i, int(i == len(values) - 1), v) for i, v in enumerate(values)]
    return [_low(arg), *tests, _Op(_RET, 0, 0, _DENY)]


def _null(arg: int) -> list[_Op]:
    """Refuse unless all 64 bits of `arg` are zero."""
    deny = _Op(_RET, 0, 0, _DENY)
    return [_low(arg), _Op(_JEQ, 1, 0, 0), deny, _high(arg), _Op(_JEQ, 1, 0, 0), deny]


def _conditions(pid: int, *, network: bool) -> dict[str, list[_Op]]:
    """The checks a call of `_SOMETIMES` must pass, by name. Each list ends with the call's fate."""
    allow, deny = _Op(_RET, 0, 0, _ALLOW), _Op(_RET, 0, 0, _DENY)
    checks: dict[str, list[_Op]] = {
        # Plain TCP only: Landlock's port rules do not see UDP, raw, MPTCP, SMC or named Unix sockets.
        "socket": [
            *_one_of(0, [_AF_INET, _AF_INET6]),
            *_one_of(1, [_SOCK_STREAM], mask=_SOCK_TYPE_MASK),
            *_one_of(2, [0, _IPPROTO_TCP]),
            allow,
        ],
        # A stream pair is connected for good; a datagram end could be connected anew to a named socket.
        "socketpair": [*_one_of(0, [_AF_UNIX]), *_one_of(1, [_SOCK_STREAM], mask=_SOCK_TYPE_MASK), allow],
        # TCP fast open connects without passing Landlock's check.
        "sendto": [*_one_of(3, [0], mask=_MSG_FASTOPEN), allow],
        "sendmsg": [*_one_of(2, [0], mask=_MSG_FASTOPEN), allow],
        # SOL_SOCKET and IPPROTO_TCP. TCP_ULP could turn the socket into one of another protocol.
        "setsockopt": [*_one_of(1, [1, _IPPROTO_TCP]), *_none_of(2, [_TCP_ULP]), allow],
        "kill": [*_one_of(0, [pid]), allow],
        "tgkill": [*_one_of(0, [pid]), allow],
        # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA (allocators label their maps). Not PR_SET_PDEATHSIG.
        "prctl": [*_one_of(0, [15, 16, 0x53564D41]), allow],
        # Reading limits only: root could raise them.
        "prlimit64": [*_null(2), *_one_of(0, [0, pid]), allow],
        # Duplicates, flags, locks, pipe size. Not F_SETOWN or F_SETSIG, which can signal any process.
        "fcntl": [*_one_of(1, [0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032]), allow],
        # FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, TCGETS, TIOCGWINSZ. Not TIOCSTI, which types on a terminal.
        "ioctl": [*_one_of(1, [0x541B, 0x5421, 0x5451, 0x5450, 0x5401, 0x5413]), allow],
        "clone3": [_Op(_RET, 0, 0, _ABSENT)],
    }
    if not network:
        checks["socket"] = [deny]
    return checks


def numbers(machine: str) -> dict[str, int]:
    """System call numbers of all names in the table, for `x86_64` or `aarch64`."""
    column = _MACHINES[machine][0]
    rows = [row.split() for row in f"{_ALWAYS},{_SOMETIMES}".split(",")]
    return {name: int(n[column]) for name, *n in rows if n[column] != "-"}


def program(machine: str, pid: int, *, network: bool) -> list[_Op]:
    """The filter for process `pid` as BPF instructions; `network` lets it make TCP sockets.

    Raises KeyError for a machine that is not in the table.
    """
    calls = numbers(machine)
    conditions = _conditions(pid, network=network)
    ops = [
        _Op(_LD_WORD, 0, 0, 4),
        _Op(_JEQ, 1, 0, _MACHINES[machine][1]),
        # Another ABI of the same machine (32-bit calls), where the numbers mean something else.
        _Op(_RET, 0, 0, _KILL),
        _Op(_LD_WORD, 0, 0, 0),
    ]
    for name, number in calls.items():
        fate = conditions.get(name, [_Op(_RET, 0, 0, _ALLOW)])
        ops += [_Op(_JEQ, 0, len(fate), number), *fate]
    # The x32 calls of x86-64 (bit 30) end up here too and are as absent as those yet to come.
    return [*ops, _Op(_JGE, 0, 1, _LAST_KNOWN + 1), _Op(_RET, 0, 0, _ABSENT), _Op(_RET, 0, 0, _DENY)]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(*args: int | ctypes.c_void_p) -> None:
    wide = [a if isinstance(a, ctypes.c_void_p) else ctypes.c_ulong(a) for a in args]
    if _libc().prctl(*wide, *[ctypes.c_ulong(0)] * (5 - len(wide))) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def unsupported() -> str | None:
    """Why no filter can be installed here, or None. Changes nothing."""
    if sys.platform != "linux":
        return f"{platform.system()} has no seccomp"
    if platform.machine() not in _MACHINES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return f"no table of system calls for {platform.machine()}"
    try:
        # With a null program a kernel that knows filters answers EFAULT, any other EINVAL.
        _prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.c_void_p(None))
    except OSError as error:
        return None if error.errno == errno.EFAULT else f"no seccomp filters in this kernel: {error}"
    return "the kernel took an empty seccomp filter"


def install(*, network: bool) -> None:
    """Put the filter on the calling thread, for good. Call it last, in a process with one thread.

    Raises OSError if the kernel refuses, and KeyError on a machine without a table.
    """
    ops = program(platform.machine(), os.getpid(), network=network)
    code = b"".join(struct.pack("HBBI", *op) for op in ops)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    argument = _Program(len(ops), code)
    _prctl(_PR_SET_SECCOMP, _FILTER_MODE, ctypes.cast(ctypes.pointer(argument), ctypes.c_void_p))

"""A Landlock ruleset for a worker: what it may read, the folder it may write, the TCP port it may reach.

The system calls are made by `landlockpy`. This module decides what to grant. Landlock grants add up and cover
everything below a path, so a folder that holds something secret is granted piece by piece, around the secret.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

SYSTEM_FILES = (
    *("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom"),
    *("/etc/hosts", "/etc/host.conf", "/etc/gai.conf", "/etc/nsswitch.conf", "/etc/resolv.conf"),
    *("/etc/localtime", "/etc/timezone", "/usr/share/zoneinfo", "/etc/os-release", "/usr/lib/os-release"),
    *("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf"),
    *("/etc/pki/tls/certs", "/usr/share/ca-certificates"),
    *("/etc/ld.so.cache", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
"""What Python and its libraries may ask for late: clock, host names, certificates, shared libraries, CPU
kind."""

_NEEDS_ABI = {"filesystem": 1, "truncation": 3, "network": 4, "signals": 6}


class Grant(NamedTuple):
    """One path that may be read. Without `contents`, the names below it may be listed and nothing else."""

    path: str
    contents: bool
    directory: bool


@lru_cache(maxsize=8)
def grants(readable: tuple[Path, ...], hidden: tuple[Path, ...]) -> tuple[Grant, ...]:
    """Everything below `readable` but not below `hidden`, as paths to grant. Paths that do not exist are
    dropped.

    Listing the folders takes milliseconds, so the result is kept: a zygote that asks once has its forks
    find it.
    """
    secret = {Path(os.path.realpath(path)) for path in hidden}
    around = {ancestor for path in secret for ancestor in path.parents}
    found: dict[Path, Grant] = {}
    todo = [Path(os.path.realpath(path)) for path in readable]
    while todo:
        path = todo.pop()
        if path in found or path in secret or secret.intersection(path.parents) or not path.exists():
            continue
        found[path] = Grant(str(path), path not in around, path.is_dir())
        if path in around:
            # A link may lead to the secret, so each child is judged by where it really lies.
            todo += [Path(os.path.realpath(child)) for child in path.iterdir()]
    return tuple(found.values())


def abi_version() -> int:
    """Landlock version of this kernel.

    Raises whatever says that there is none: ImportError, OSError, or an error of the binding.
    """
    import landlockpy

    return landlockpy.abi_version()


def missing(abi: int) -> dict[str, str]:
    """What a kernel with Landlock version `abi` cannot restrict, and why."""
    return {name: f"Landlock ABI {abi}, needs {n}" for name, n in _NEEDS_ABI.items() if abi < n}


def restrict(*, folder: Path, readable: tuple[Path, ...], hidden: tuple[Path, ...], port: int | None) -> None:
    """Restrict the calling thread for good, as far as this kernel's Landlock goes.

    Args:
        folder: May be read and written.
        readable: May be read, beside `SYSTEM_FILES`.
        hidden: May not be read although it lies below `readable`.
        port: The TCP port it may connect to, on any host; None for none.

    Raises OSError if the kernel refuses.
    """
    import landlockpy

    access, scope = landlockpy.AccessFS, landlockpy.Scope
    with landlockpy.Ruleset(scoped=scope.SIGNAL | scope.ABSTRACT_UNIX_SOCKET) as rules:
        both = access.READ_FILE | access.READ_DIR
        for path, contents, directory in grants((*readable, *map(Path, SYSTEM_FILES)), hidden):
            if contents:
                rules.allow_path(path, both if directory else access.READ_FILE)
            else:
                rules.allow_path(path, access.READ_DIR)
        rules.allow_path(os.devnull, access.WRITE_FILE | access.TRUNCATE)
        # No links, pipes or sockets in it: whoever reads the folder afterwards must not be led elsewhere.
        files = access.READ_FILE | access.WRITE_FILE | access.TRUNCATE | access.MAKE_REG | access.REMOVE_FILE
        folders = access.READ_DIR | access.MAKE_DIR | access.REMOVE_DIR | access.REFER
        rules.allow_path(folder, files | folders)
        if port is not None:
            rules.allow_port(port, landlockpy.AccessNet.CONNECT_TCP)
        rules.restrict()

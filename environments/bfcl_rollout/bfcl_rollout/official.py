"""The official package: where it is, which version, and its data.

The parity target is one wheel, `bfcl-eval` 2026.3.23. It cannot stand in a requirement list beside verifiers (it
pins numpy 1.26.4), so it is used where it is importable and otherwise installed on its own, without dependencies
and pinned by hash, into a cache folder the first time it is needed.

Nothing here imports `bfcl_eval` except the loading functions at the end, and those only its data loader.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from bfcl_rollout.errors import SetupError

VERSION = "2026.3.23"
WHEEL_SHA256 = "3bb6dfa5f0c68ad403c9ec50b00db2bb3b4cc9b38ab1ff33f48fe30d853d3a0a"
TREE_SHA256 = "b6cb4aa27a42932a83fa2ee15a8c7a52bedf555bddd46224ca64eb9c1753c378"
"""Digest of the installed package's code and data (`tree_sha256`)."""

REQUIREMENT = f"bfcl-eval=={VERSION} --hash=sha256:{WHEEL_SHA256}"
INSTALL_COMMAND = f"pip install --no-deps bfcl-eval=={VERSION}"
CACHE_VARIABLE = "BFCL_ROLLOUT_CACHE"
_LOCK_SECONDS = 600.0


class OfficialPackageError(SetupError):
    """The official package is missing, cannot be installed, or is another version."""


def cache_dir() -> Path:
    """This suite's cache folder: `$BFCL_ROLLOUT_CACHE`, else `bfcl-rollout` in the user's cache folder."""
    if override := os.environ.get(CACHE_VARIABLE):
        return Path(override)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "bfcl-rollout"


@functools.cache
def package_dir() -> Path:
    """Folder of the `bfcl_eval` package, installing it into the cache when it is not importable.

    Raises:
        OfficialPackageError: another version is importable, or the installation failed.
    """
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None:
        target = _install()
        # Last, so that nothing in the cache can shadow a package of the environment.
        sys.path.append(str(target))
        importlib.invalidate_caches()
        spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or not spec.submodule_search_locations:
        raise OfficialPackageError(f"bfcl_eval cannot be imported; install it with: {INSTALL_COMMAND}")
    found = importlib.metadata.version("bfcl-eval")
    if found != VERSION:
        raise OfficialPackageError(
            f"bfcl-eval {found} is installed, but this suite reproduces {VERSION}; replace it with: {INSTALL_COMMAND}"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def _install() -> Path:
    """Install the pinned wheel into the cache and return the folder to put on the path.

    Two processes may do this at once: a lock serialises them, and the folder appears by one rename.
    """
    target = cache_dir() / f"bfcl-eval-{VERSION}"
    lock = target.with_name(f"{target.name}.lock")
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=_LOCK_SECONDS):
            if target.is_dir():
                return target
            print(f"bfcl-rollout: installing bfcl-eval {VERSION} into {target}", file=sys.stderr)
            with tempfile.TemporaryDirectory(dir=target.parent, prefix=".installing-") as scratch:
                staged = Path(scratch) / "site"
                _run_installer(Path(scratch), staged)
                os.replace(staged, target)
    except Timeout:
        raise OfficialPackageError(
            f"another process has been installing bfcl-eval for {_LOCK_SECONDS:.0f} s; remove "
            f"{lock} if none is, or run: {INSTALL_COMMAND}"
        ) from None
    except OSError as error:
        raise OfficialPackageError(
            f"cannot install bfcl-eval into {target.parent} ({error}); set ${CACHE_VARIABLE} to a writable folder, "
            f"or run: {INSTALL_COMMAND}"
        ) from error
    return target


def _run_installer(scratch: Path, target: Path) -> None:
    requirements = scratch / "requirements.txt"
    requirements.write_text(REQUIREMENT + "\n")
    options = ["--quiet", "--no-deps", "--require-hashes", "--target", str(target), "-r", str(requirements)]
    command = [*_installer(), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip().splitlines()
        raise OfficialPackageError(
            f"installing bfcl-eval {VERSION} failed ({reason[-1] if reason else 'no output'}); "
            f"with network, run: {INSTALL_COMMAND}"
        )


def _installer() -> list[str]:
    """An installer to run. The wheel is pure Python, so one of another interpreter will do as well."""
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install"]
    if pip := shutil.which("pip") or shutil.which("pip3"):
        return [pip, "install"]
    raise OfficialPackageError(
        f"bfcl-eval is missing, and neither uv nor pip is here; install it with: {INSTALL_COMMAND}"
    )


def sha256(path: Path) -> str:
    """SHA-256 of a file, as 64 hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def tree_sha256(root: Path | None = None) -> str:
    """One digest over every Python and data file of the installed package (or of another copy at `root`), by path and
    content."""
    root = root or package_dir()
    digest = hashlib.sha256()
    files = (p for p in root.rglob("*") if p.suffix in {".py", ".json"} and p.is_file())
    for path in sorted(files, key=lambda p: p.relative_to(root).as_posix()):
        digest.update(f"{path.relative_to(root).as_posix()} {sha256(path)}\n".encode())
    return digest.hexdigest()


@functools.cache
def verify() -> None:
    """Make sure that code, data and answer key are those of the release.

    Raises:
        OfficialPackageError: a file was changed, added or removed.
    """
    if tree_sha256() != TREE_SHA256:
        raise OfficialPackageError(
            f"the files of {package_dir()} are not those of bfcl-eval {VERSION}; install it again with: "
            f"{INSTALL_COMMAND} --force-reinstall"
        )


def data_sha256(category: str) -> dict[str, str]:
    """SHA-256 of each official data file behind a category, by path inside the package."""
    root = package_dir()
    if category.startswith("memory"):
        paths = [
            root / "data" / "BFCL_v4_memory.json",
            *sorted((root / "data" / "memory_prereq_conversation").glob("*.json")),
        ]
    else:
        paths = [root / "data" / f"BFCL_v4_{category}.json"]
    return {path.relative_to(root).as_posix(): _cached_sha256(path) for path in paths}


@functools.cache
def _cached_sha256(path: Path) -> str:
    return sha256(path)


@contextlib.contextmanager
def project_root() -> Iterator[None]:
    """Point BFCL's project root at our cache while `bfcl_eval` is imported.

    On import it creates `result/`, `score/` and `.file_locks/` there, by default beside the installed package.
    """
    variable = "BFCL_PROJECT_ROOT"
    before = os.environ.get(variable)
    if before is None:
        root = cache_dir() / "project-root"
        root.mkdir(parents=True, exist_ok=True)
        os.environ[variable] = str(root)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(variable, None)


def load_entries(category: str) -> list[dict[str, Any]]:
    """Entries of a category as generation sees them: sessions first, tools with their language hint.

    The list is fresh for each call; BFCL changes entries in place while it plays them.
    """
    return [json.loads(text) for text in _entry_texts(category)]


@functools.cache
def _entry_texts(category: str) -> tuple[str, ...]:
    package_dir()
    with project_root():
        from bfcl_eval.utils import load_dataset_entry

        entries = load_dataset_entry(category)
    return tuple(json.dumps(entry) for entry in entries)

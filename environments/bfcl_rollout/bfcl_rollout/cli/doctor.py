"""`bfcl-rollout doctor`: what is here, and whether each environment could run."""

from __future__ import annotations

import argparse
import asyncio
import platform
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

from bfcl_rollout import official, pool
from bfcl_rollout.errors import SetupError
from bfcl_rollout.worker import limits

CHECKS_GROUP = "bfcl_rollout.checks"
"""Entry points `environment-id = "module:check"`, `check() -> list[str]` with lines about what the environment needs
beyond this package; it raises `SetupError` if the environment could not run."""

_PACKAGES = (
    "verifiers",
    "openai",
    "numpy",
    "faiss-cpu",
    "sentence-transformers",
    "transformers",
    "torch",
)


def main(argv: list[str]) -> int:
    """Print the report. Returns 0 if every installed environment could run, else 1."""
    argparse.ArgumentParser(
        prog="bfcl-rollout doctor", description="Say what is installed and whether each environment could run."
    ).parse_args(argv)
    healthy = True
    for title, section in _sections():
        print(f"\n{title}" if title != "versions" else title)
        try:
            for line in section():
                print(f"  {line}")
        except (SetupError, pool.WorkerError) as error:
            healthy = False
            print(f"  CANNOT RUN: {error}")
    print("\nall environments can run" if healthy else "\nsomething is missing; see CANNOT RUN above")
    return 0 if healthy else 1


def _sections() -> Iterator[tuple[str, Callable[[], Iterator[str] | list[str]]]]:
    yield "versions", _versions
    yield "official package", _official
    yield "process limits of a rollout", _limits
    yield "workers", _workers
    for point in sorted(entry_points(group=CHECKS_GROUP), key=lambda found: found.name):
        yield f"environment {point.name}", partial(_environment, point)


def _environment(point: EntryPoint) -> list[str]:
    lines: list[str] = point.load()()
    return lines


def _versions() -> Iterator[str]:
    yield f"python {platform.python_version()}"
    for name in ("bfcl-rollout", *_PACKAGES):
        try:
            yield f"{name} {version(name)}"
        except PackageNotFoundError:
            yield f"{name} not installed"


def _official() -> Iterator[str]:
    folder = official.package_dir()
    yield f"bfcl-eval {official.VERSION} in {folder}"
    found = official.tree_sha256()
    yield f"code and data sha256 {found}"
    if found != official.TREE_SHA256:
        raise SetupError(f"its files are not those of the release ({official.TREE_SHA256}); install it again")


def _limits() -> Iterator[str]:
    for name, state in limits.describe().items():
        yield f"{name}: {state}"


def _workers() -> Iterator[str]:
    workers = pool.WorkerPool()
    try:
        asyncio.run(workers.start())
    finally:
        workers.close()
    yield "the zygote starts and has BFCL loaded"

"""Fixtures shared by all tests. Everything runs offline, against the embedded model on loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from bfcl_rollout import pool
from bfcl_rollout.scripted import ScriptedServer

# Nothing here may reach a hub or the platform, whatever the machine is set up for.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["PRIME_RUNS_MODE"] = "disabled"


@pytest.fixture(scope="session")
def scripted() -> Iterator[ScriptedServer]:
    """The embedded model, one server for the whole session."""
    with ScriptedServer() as server:
        yield server


@pytest.fixture(scope="session")
def workers() -> Iterator[pool.WorkerPool]:
    """A worker pool of the tests' own."""
    made = pool.WorkerPool()
    yield made
    made.close()

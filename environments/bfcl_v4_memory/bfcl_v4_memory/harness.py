"""The harness bundled with this environment: BFCL's own loop, in a worker process."""

from __future__ import annotations

from bfcl_rollout.harness import BFCLHarness, BFCLHarnessConfig


class MemoryHarness(BFCLHarness[BFCLHarnessConfig]):
    """Plays sessions and questions with BFCL's handler."""

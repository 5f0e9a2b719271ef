"""What this environment needs beyond the common rollout interface, for `bfcl-rollout doctor`."""

from __future__ import annotations

from bfcl_rollout import official
from bfcl_rollout.worker.embeddings import locate_weights


def check() -> list[str]:
    """Lines about the data and the encoder.

    Raises:
        SetupError: the environment could not run.
    """
    lines = [f"{path} sha256 {digest}" for path, digest in official.data_sha256("memory_kv").items()]
    weights = locate_weights()
    return [
        *lines,
        f"encoder weights sha256 {weights.sha256}",
        f"encoder weights from the {weights.source}: {weights.path}",
    ]

"""Whether the environment could run here: every case is built and verified."""

from __future__ import annotations

from bfcl_routing.cases import SUITES, load_cases
from bfcl_routing.manifest import Split


def check() -> list[str]:
    """One line per suite and split.

    Raises:
        SetupError: the installed package's data is not what the manifests were made from.
        LeakError: a training row is also in a pilot.
    """
    lines = [f"{suite}: {len(load_cases(suite))} cases verified" for suite in SUITES]
    splits: tuple[Split, ...] = ("train", "dev")
    return lines + [
        f"{split}: {len(load_cases('v1', split))} cases verified, none of them a pilot's" for split in splits
    ]

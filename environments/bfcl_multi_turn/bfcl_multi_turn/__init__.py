"""BFCL V4 multi-turn: stateful conversations, graded by the official checker, with dense signals beside its verdict.

The classes are imported when they are asked for. Workers and the embedded model import other modules of this package,
and verifiers, which these need, would cost a worker 200 MB.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcl_multi_turn.env import MultiTurnEnv
    from bfcl_multi_turn.harness import MultiTurnHarness
    from bfcl_multi_turn.taskset import MultiTurnTaskset

__all__ = ["MultiTurnEnv", "MultiTurnHarness", "MultiTurnTaskset"]

_MODULES = {"MultiTurnEnv": "env", "MultiTurnHarness": "harness", "MultiTurnTaskset": "taskset"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

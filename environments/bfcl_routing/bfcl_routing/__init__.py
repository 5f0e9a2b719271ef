"""First-step tool choice on BFCL V1 and V4 Live: which function comes first, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bfcl_routing.env import RoutingEnv, RoutingHarness
    from bfcl_routing.taskset import RoutingTaskset

__all__ = ["RoutingEnv", "RoutingHarness", "RoutingTaskset"]


def __getattr__(name: str) -> Any:
    # On demand, because the embedded model imports this package for its policies and needs no verifiers.
    if name in ("RoutingEnv", "RoutingHarness"):
        from bfcl_routing import env

        return getattr(env, name)
    if name == "RoutingTaskset":
        from bfcl_routing.taskset import RoutingTaskset

        return RoutingTaskset
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Runtime-interaction credit: from a group of rollouts to an advantage for every sampled token."""

from bfcl_multi_turn.credit.group import CreditError, GroupCredit, Rollout, credit_group
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.credit.traces import RuntimeInteractionCredit, TraceCredit, credit_episodes

__all__ = [
    "CreditError",
    "CreditOptions",
    "GroupCredit",
    "Rollout",
    "RuntimeInteractionCredit",
    "TraceCredit",
    "credit_episodes",
    "credit_group",
]

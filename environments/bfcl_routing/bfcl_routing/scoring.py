"""Whether a decision is right, which of six things happened, and how good its probabilities are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from bfcl_routing.decision import NO_CALL, Decision
from bfcl_routing.view import is_no_function

Outcome = Literal["right_function", "wrong_function", "under_call", "right_no_function", "over_call", "invalid"]
"""Exactly one holds for each decision. `under_call`: declined although a function applies. `over_call`: called
although none applies."""
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

LOG_FLOOR = 1e-12
"""Probabilities below it count as this much in the log loss."""


def declines(action: str) -> bool:
    """Whether an action calls no function."""
    return action == NO_CALL or is_no_function(action)


def outcome_of(decision: Decision, gold: Sequence[str]) -> Outcome:
    """What happened.

    Args:
        decision: the model's decision.
        gold: functions that are right; empty if none is.
    """
    if decision.action is None:
        return "invalid"
    if declines(decision.action):
        return "under_call" if gold else "right_no_function"
    if not gold:
        return "over_call"
    return "right_function" if decision.action in gold else "wrong_function"


def route_correct(decision: Decision, gold: Sequence[str]) -> bool:
    """The score: the exact function where one is right, any no-function action otherwise. Invalid is wrong."""
    return outcome_of(decision, gold) in ("right_function", "right_no_function")


def exact_action(decision: Decision, gold: Sequence[str]) -> bool | None:
    """Whether the action is exactly the frozen label, which for negatives is `no_tool`.

    A diagnostic: nothing says that `no_tool` is better than the other two no-function actions. None where a
    no-function answer names no action in particular.
    """
    if gold:
        return decision.action in gold
    if decision.action in (NO_CALL, "no_function"):
        return None
    return decision.action == "no_tool"


def right_mass(distribution: Mapping[str, float], gold: Sequence[str]) -> float:
    """Probability of a right route: the right functions', or all no-function actions' together."""
    right = [p for action, p in distribution.items() if (action in gold if gold else declines(action))]
    return min(1.0, math.fsum(right))


def brier(distribution: Mapping[str, float], gold: Sequence[str]) -> float:
    """Summed squared error between probabilities and outcome, 0 (best) to 2 (worst).

    Classes are the offered actions. On negatives the no-function actions are pooled into one class first; where
    several functions are right they are pooled likewise.
    """
    right = right_mass(distribution, gold)
    wrong = [p for action, p in distribution.items() if not (action in gold if gold else declines(action))]
    return (1.0 - right) ** 2 + math.fsum(p * p for p in wrong)


def log_loss(distribution: Mapping[str, float], gold: Sequence[str]) -> float:
    """Negative natural logarithm of the right route's probability, which is floored at `LOG_FLOOR`."""
    return -math.log(max(right_mass(distribution, gold), LOG_FLOOR))


def confidence(distribution: Mapping[str, float], action: str) -> float:
    """Probability the model gave its own route: the chosen function's, or all no-function actions' together."""
    if declines(action):
        return min(1.0, math.fsum(p for a, p in distribution.items() if declines(a)))
    return distribution.get(action, 0.0)


def metrics(decision: Decision, gold: Sequence[str]) -> dict[str, float]:
    """Everything measured about one decision. Quantities that are undefined for it are left out."""
    outcome = outcome_of(decision, gold)
    found = {f"outcome_{name}": float(name == outcome) for name in OUTCOMES}
    found["calls"] = float(decision.calls)
    found["multi_call"] = float(decision.calls > 1)
    if (exact := exact_action(decision, gold)) is not None:
        found["exact_action"] = float(exact)
    if decision.lenient is not None:
        lenient = Decision(action=decision.lenient)
        found["lenient_route_correct"] = float(route_correct(lenient, gold))
    if decision.distribution is not None and decision.action is not None:
        found["brier"] = brier(decision.distribution, gold)
        found["log_loss"] = log_loss(decision.distribution, gold)
        found["right_mass"] = right_mass(decision.distribution, gold)
        found["confidence"] = confidence(decision.distribution, decision.action)
    return found

"""Metrics of credited groups, under the names ToolWeave logs (`rods_matchtir_v1/...`).

Where the source leaves it open: statistics of local and fused advantages are over the local steps, each counted
once; similarities are those of matched calls; standard deviations are population ones; an empty mean is 0.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from bfcl_multi_turn.credit.eligibility import SkipReason
from bfcl_multi_turn.credit.group import GroupCredit, StepCredit

PREFIX = "rods_matchtir_v1/"

LABELS = {
    "multi_turn_base": "Base",
    "multi_turn_miss_func": "Missing_Function",
    "multi_turn_miss_param": "Missing_Parameter",
    "multi_turn_long_context": "Long_Context",
}
"""Category to the label used in metric names."""

_ROLLOUT_SKIPS: tuple[SkipReason, ...] = ("no_provenance", "malformed_rollout", "no_interactions")
_TURN_SKIPS: tuple[SkipReason, ...] = ("no_such_turn", "broken_indices", "misplaced_answer", "unreliable_record")


def credit_metrics(
    groups: Sequence[tuple[str, GroupCredit]], parse_error_tokens: int = 0, span_failures: int = 0
) -> dict[str, float]:
    """All metrics over some credited groups.

    Args:
        groups: BFCL category and credit of each group.
        parse_error_tokens: tokens of parse errors that got a local residual.
        span_failures: interactions that no token was written for.
    """
    members = [credit for _, credit in groups]
    steps = [step for credit in members for step in credit.steps]
    values: dict[str, float] = {
        **_global(members),
        **_calls(members, steps),
        **_interactions(steps, parse_error_tokens),
        **_normalization(steps),
        **_fusion(groups),
        "missing/missing_turn_local_coverage": 0.0,
        "missing/followup_normal_turn_local_coverage": _coverage([s for s in steps if s.follows_empty_turn]),
        **_provenance(members, span_failures),
    }
    by_type: Mapping[str, list[StepCredit]] = defaultdict(list)
    for category, credit in groups:
        by_type[LABELS.get(category, category)].extend(credit.steps)
    for label, credited in by_type.items():
        values[f"by_type/{label}/local_coverage"] = _coverage(credited)
    return {PREFIX + name: float(value) for name, value in values.items()}


def _global(members: Sequence[GroupCredit]) -> dict[str, float]:
    outcomes = [rollout.outcome for credit in members for rollout in credit.rollouts]
    advantages = [advantage for credit in members for advantage in credit.global_advantages]
    return {
        "global/progress_reward_mean": _mean(outcomes),
        "global/progress_reward_std": _std(outcomes),
        "global/A_RODS_mean": _mean(advantages),
        "global/A_RODS_std": _std(advantages),
    }


def _calls(members: Sequence[GroupCredit], steps: Sequence[StepCredit]) -> dict[str, float]:
    turns = [turn for credit in members for turn in credit.turns]
    predicted = sum(len(rewards) for turn in turns for rewards in turn.rewards.call_rewards)
    matched = sum(turn.rewards.matched for turn in turns)
    similarities = [s for turn in turns for s in turn.rewards.similarities]
    returns = [step.local_return for step in steps]
    return {
        "call/num_predicted_calls": predicted,
        "call/num_gt_calls": sum(turn.rewards.gold_calls for turn in turns),
        "call/matched_call_count": matched,
        "call/unmatched_call_count": predicted - matched,
        "call/match_rate": matched / predicted if predicted else 0.0,
        "call/similarity_mean": _mean(similarities),
        "call/similarity_max": max(similarities, default=0.0),
        "step/policy_steps_per_user_turn": _mean([turn.steps for turn in turns]),
        "step/calls_per_policy_step": _mean([len(step.call_rewards) for step in steps]),
        "step/step_reward_mean": _mean([step.step_reward for step in steps]),
        "step/local_return_mean": _mean(returns),
        "step/local_return_std": _std(returns),
    }


def _interactions(steps: Sequence[StepCredit], parse_error_tokens: int) -> dict[str, float]:
    errors = [step for step in steps if step.interaction.response_type == "parse_error"]
    return {
        "interaction/non_answer_runtime_interactions": len(steps),
        "interaction/tool_attempt_interactions": sum(s.interaction.attempted_type == "tool_call" for s in steps),
        "interaction/parsed_tool_interactions": sum(s.interaction.response_type == "tool_call" for s in steps),
        "interaction/parse_error_tool_attempts": sum(s.interaction.attempted_type == "tool_call" for s in errors),
        "interaction/parse_error_runtime_interactions": len(errors),
        "interaction/unparsed_runtime_interactions": sum(not s.interaction.call_parse_reliable for s in steps),
        "interaction/peer_supported_interactions": sum(s.local.active for s in steps),
        "interaction/unsupported_local_interactions": sum(not s.local.active for s in steps),
        "interaction/nonzero_local_advantages": sum(s.local.advantage != 0 for s in steps),
        "interaction/parse_error_interactions_receiving_local_residual": sum(s.local.active for s in errors),
        "interaction/parse_error_tokens_receiving_local_residual": parse_error_tokens,
    }


def _normalization(steps: Sequence[StepCredit]) -> dict[str, float]:
    singles = sum(step.local.support == 1 for step in steps)
    advantages = [step.local.advantage for step in steps]
    depths = Counter(step.interaction.index for step in steps)
    return {
        "normalization/local_support_size": _mean([step.local.support for step in steps]),
        "normalization/singleton_local_count": singles,
        "normalization/singleton_local_rate": singles / len(steps) if steps else 0.0,
        "normalization/zero_variance_local_count": sum(
            step.local.support > 1 and step.local.std == 0 for step in steps
        ),
        "normalization/local_adv_mean": _mean(advantages),
        "normalization/local_adv_std": _std(advantages),
        "normalization/local_coverage": _coverage(steps),
        **{f"normalization/local_support_depth_{depth}": count for depth, count in sorted(depths.items())},
    }


def _fusion(groups: Sequence[tuple[str, GroupCredit]]) -> dict[str, float]:
    pairs = [(credit.global_advantages[step.rollout], step) for _, credit in groups for step in credit.steps]
    fused = [step.advantage for _, step in pairs]
    flips = sum(base * step.advantage < 0 for base, step in pairs)
    return {
        "fusion/A_new_mean": _mean(fused),
        "fusion/A_new_std": _std(fused),
        "fusion/RMS_A_RODS": _rms([base for base, _ in pairs]),
        "fusion/RMS_A_local": _rms([step.local.advantage for _, step in pairs]),
        "fusion/RMS_A_new": _rms(fused),
        "fusion/sign_flip_rate": flips / len(pairs) if pairs else 0.0,
    }


def _provenance(members: Sequence[GroupCredit], span_failures: int) -> dict[str, float]:
    skips = Counter(skip.reason for credit in members for skip in credit.skips)
    return {
        "provenance/unreliable_rollout_count": sum(skips[reason] for reason in _ROLLOUT_SKIPS),
        "provenance/invalid_gt_turn_count": skips["unparsable_gold"],
        "provenance/unreliable_tool_turn_count": sum(skips[reason] for reason in _TURN_SKIPS),
        "provenance/span_assignment_failure_count": span_failures,
    }


def _coverage(steps: Sequence[StepCredit]) -> float:
    return sum(step.local.active for step in steps) / len(steps) if steps else 0.0


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def _std(values: Sequence[float]) -> float:
    return float(np.std(values)) if values else 0.0


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(_mean([value * value for value in values]))

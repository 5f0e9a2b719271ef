"""Credit on verifiers' objects: what is written to the nodes, and what is refused."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest
import verifiers.v1 as vf
from bfcl_multi_turn.credit import CreditError, CreditOptions, RuntimeInteractionCredit, TraceCredit, credit_episodes
from bfcl_multi_turn.credit.metrics import PREFIX
from bfcl_multi_turn.credit.source import TaskGold
from bfcl_multi_turn.interactive.log import unrecorded_log
from bfcl_multi_turn.interactive.records import INFO_KEY, Interaction, InteractionLog
from credit_helpers import (
    answer_step,
    build_episode,
    build_log,
    build_trace,
    call,
    error_step,
    tool_step,
)
from verifiers.v1.trace import Error

GOLD = [["f(a=1)", "g(b=2)"], [], ["f(a=2)"]]
GOOD, BAD = call("f", a=1), call("h")


def gold(entry_id: str) -> TaskGold:
    assert entry_id.startswith("multi_turn_base_")
    return TaskGold(GOLD, {})


def log(*steps: Interaction, scores: tuple[int | None, ...] = (1, None, None), **more: Any) -> InteractionLog:
    return build_log(steps, scores, **more)


def pair(**more: Any) -> list[vf.Episode]:
    """A rollout that gets turn 0 right at once and one that needs a second go; both answer turn 1."""
    right = log(tool_step(0, 0, GOOD), answer_step(0, 1), answer_step(1, 0), scores=(1, 1, None))
    wrong = log(error_step(0, 0), tool_step(0, 1, GOOD), answer_step(0, 2), tool_step(1, 0, GOOD), scores=(0, 0, None))
    return [build_episode(build_trace(member, **more)) for member in (right, wrong)]


def run(episodes: list[vf.Episode], group_size: int | None = None, **options: Any) -> TraceCredit:
    return credit_episodes(episodes, CreditOptions(**options), gold=gold, group_size=group_size)


def advantages(node: vf.graph.MessageNode) -> list[float]:
    assert node.advantages is not None
    return node.advantages


def sampled(episode: vf.Episode) -> list[vf.graph.MessageNode]:
    return [node for node in episode.traces[0].nodes if node.sampled]


def test_every_sampled_token_gets_the_credit_of_its_interaction() -> None:
    episodes = pair()
    result = run(episodes)
    base = result.credit.global_advantages
    steps = {(s.rollout, s.interaction.node): s for s in result.credit.steps}
    for rollout, episode in enumerate(episodes):
        for position, node in enumerate(episode.traces[0].nodes):
            if not node.sampled:
                assert node.advantages is None
                continue
            step = steps.get((rollout, position))
            wanted = step.advantage if step else base[rollout]
            assert node.advantages == [wanted] * 3
    # Turn 0, index 0 is the only place with two different returns.
    assert [node.advantages != [base[0]] * 3 for node in sampled(episodes[0])] == [True, False, False]
    assert [node.advantages != [base[1]] * 3 for node in sampled(episodes[1])] == [True, False, False, False]
    assert (result.tokens_written, result.residual_tokens, result.tokenless_nodes) == (21, 6, 0)
    assert result.metrics[PREFIX + "interaction/parse_error_tokens_receiving_local_residual"] == 3


def test_no_residual_outside_sampled_tokens() -> None:
    episodes = pair()
    result = run(episodes)
    for rollout, episode in enumerate(episodes):
        (branch,) = episode.traces[0].branches
        spread = branch.advantages
        assert spread is not None
        assert all(value == 0.0 for value, own in zip(spread, branch.sampled_mask, strict=True) if not own)
        residual = [
            value - result.credit.global_advantages[rollout]
            for value, own in zip(spread, branch.sampled_mask, strict=True)
            if own
        ]
        assert sum(map(bool, residual)) == 3


def test_answers_get_the_global_advantage_exactly() -> None:
    episodes = pair()
    base = run(episodes).credit.global_advantages
    assert sampled(episodes[0])[1].advantages == [base[0]] * 3
    assert sampled(episodes[1])[2].advantages == [base[1]] * 3


def test_weight_zero_writes_the_global_advantage() -> None:
    episodes = pair()
    result = run(episodes, weight=0.0)
    for rollout, episode in enumerate(episodes):
        assert {v for node in sampled(episode) for v in node.advantages or []} == {
            result.credit.global_advantages[rollout]
        }
    assert result.residual_tokens == 0


def test_leave_one_out_credits_the_answer_too() -> None:
    episodes = pair()
    result = run(episodes, local_baseline="leave_one_out")
    base = result.credit.global_advantages
    # The other rollout still has the return 1.0 at index 1 when this one answers.
    assert advantages(sampled(episodes[0])[1]) == pytest.approx([base[0] - 1.0] * 3)
    assert advantages(sampled(episodes[1])[2]) == pytest.approx([base[1]] * 3)


def test_nodes_without_tokens_are_skipped_and_counted() -> None:
    episodes = pair()
    episodes[0].traces[0].nodes[2].mask = []
    episodes[0].traces[0].nodes[2].token_ids = []
    result = run(episodes)
    assert episodes[0].traces[0].nodes[2].advantages is None
    assert (result.tokenless_nodes, result.tokens_written, result.residual_tokens) == (1, 18, 3)
    assert result.metrics[PREFIX + "provenance/span_assignment_failure_count"] == 1
    # The step stays a peer, and its own advantage is still computed.
    assert result.credit.steps[0].local.active
    assert result.credit.steps[0].local.support == 2


def test_an_api_model_has_no_tokens_at_all() -> None:
    episodes = pair(tokens=None)
    result = run(episodes)
    assert (result.tokens_written, result.tokenless_nodes) == (0, 7)
    assert all(node.advantages is None for episode in episodes for node in sampled(episode))


def test_generations_without_a_record_get_the_global_advantage() -> None:
    truncated = build_trace(log(tool_step(0, 0, GOOD), answer_step(0, 1), scores=(1, None, None)))
    stored = truncated.info[INFO_KEY]
    stored["interactions"].pop()
    stored["turn_scores"] = [None, None, None]
    episodes = [build_episode(truncated), pair()[1]]
    result = run(episodes)
    assert sampled(episodes[0])[1].advantages == [result.credit.global_advantages[0]] * 3


@pytest.mark.parametrize("baseline", ["peers", "leave_one_out"])
def test_a_rollout_without_a_record_leaves_the_credit_of_the_others_alone(baseline: str) -> None:
    unrecorded = build_trace(log(tool_step(0, 0, GOOD), answer_step(0, 1)), reward=0.0)
    unrecorded.info[INFO_KEY] = unrecorded_log("multi_turn_base_0", 3).model_dump(mode="json")
    alone, episodes = pair(), [build_episode(unrecorded), *pair()]
    before = run(alone, local_baseline=baseline).credit
    result = run(episodes, local_baseline=baseline)
    assert [step.local for step in result.credit.steps] == [step.local for step in before.steps]
    assert {node.advantages[0] for node in sampled(episodes[0]) if node.advantages} == {
        result.credit.global_advantages[0]
    }
    assert result.credit.rollouts[0].outcome == 0.0
    assert [skip.reason for skip in result.credit.skips if skip.rollout == 0] == ["no_interactions"]
    assert result.metrics[PREFIX + "provenance/unreliable_rollout_count"] == 1


def test_interactive_and_official_logs_are_credited_alike() -> None:
    both = [
        [tool_step(0, 0, GOOD, code=-1), answer_step(0, 1, code=1)],
        [error_step(0, 0, code=-3), answer_step(0, 1, code=0)],
    ]
    results = []
    for protocol in ("interactive", "official"):
        episodes = [
            build_episode(build_trace(log(*steps, scores=(1 - index, None, None), protocol=protocol)))
            for index, steps in enumerate(both)
        ]
        run(episodes)
        results.append([node.advantages for episode in episodes for node in sampled(episode)])
    assert results[0] == results[1]


def test_untrainable_traces_are_left_alone() -> None:
    episodes = pair()
    bystander = build_trace(log(tool_step(0, 0, GOOD)), trainable=False)
    episodes[0].traces.insert(0, bystander)
    run(episodes)
    assert all(node.advantages is None for node in bystander.nodes)


def test_outcome_can_be_the_reward() -> None:
    episodes = pair()
    assert run(episodes, outcome="reward").credit.global_advantages == [0.0, 0.0]
    assert run(episodes).credit.global_advantages[0] > 0


def drop_log(trace: vf.Trace) -> None:
    del trace.info[INFO_KEY]


def stored(change: Callable[[dict[str, Any]], Any]) -> Callable[[vf.Trace], Any]:
    return lambda trace: change(trace.info[INFO_KEY])


def set_step(number: int, **values: Any) -> Callable[[vf.Trace], Any]:
    return stored(lambda log: log["interactions"][number].update(values))


def stop(trace: vf.Trace) -> None:
    trace.ok = False


def fail(trace: vf.Trace) -> None:
    trace.ok = False
    trace.errors.append(Error(type="E", message="boom"))


def set_argument(trace: vf.Trace) -> None:
    trace.info[INFO_KEY]["interactions"][0]["calls"][0]["arguments"]["a"] = math.nan


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop_log, "trace {id}: no interactions"),
        (stored(lambda log: log.update(version=2)), "trace {id}: malformed interactions: version: log version 2"),
        (stored(lambda log: log.update(extra=1)), "trace {id}: malformed interactions: extra"),
        (stored(lambda log: log.pop("turn_scores")), "trace {id}: malformed interactions: turn_scores: Field required"),
        (stored(lambda log: log["turn_scores"].pop()), "trace {id}: 2 turn scores for the 3 user turns"),
        (
            stored(lambda log: log["interactions"].pop(0)),
            "{id}: malformed interactions: user turn 0: interaction 1",
        ),
        (set_step(2, user_turn=3), "trace {id}: malformed interactions: user turn 3: the task has 3 user turns"),
        (
            set_step(1, response_type="?"),
            "{id}: malformed interactions: user turn 0: interactions.1.response_type",
        ),
        (set_step(0, code=2), "trace {id}: malformed interactions: user turn 0: interactions.0.code"),
        (set_step(2, node=99), "trace {id}, user turn 1: interaction 0 points at node 99, but there are 8 nodes"),
        (set_step(2, node=1), "trace {id}, user turn 1: interaction 0 points at node 1, which no model call produced"),
        (set_step(2, node=2), "trace {id}: malformed interactions: user turn 1: node 2 is used twice"),
        (set_argument, "trace {id}: malformed interactions: user turn 0: interactions.0.calls.0.arguments"),
        (stored(lambda log: log.update(entry_id="multi_turn_base_7")), "mixes the tasks multi_turn_base_0"),
        (stop, "trace {id}: it failed (it did not complete)"),
        (fail, "trace {id}: it failed (boom)"),
    ],
)
def test_bad_members_are_named_and_nothing_is_written(damage: Callable[[vf.Trace], Any], message: str) -> None:
    episodes = pair()
    damage(episodes[0].traces[0])
    with pytest.raises(CreditError) as caught:
        run(episodes)
    assert message.format(id=episodes[0].traces[0].id) in str(caught.value)
    assert all(node.advantages is None for episode in episodes for node in sampled(episode))


def test_missing_members_and_traces() -> None:
    episodes = pair()
    with pytest.raises(CreditError, match="2 members in a group of 3"):
        run(episodes, group_size=3)
    with pytest.raises(CreditError, match="without episodes"):
        run([])
    episodes[1].traces.clear()
    with pytest.raises(CreditError, match=f"episode {episodes[1].id}: 0 trainable traces"):
        run(episodes)


def test_unscored_and_nan_rewards() -> None:
    episodes = pair(reward=None)
    with pytest.raises(CreditError, match="it was not scored"):
        run(episodes, outcome="reward")
    episodes = pair(reward=math.nan)
    with pytest.raises(CreditError, match="its reward is nan"):
        run(episodes, outcome="reward")


def test_codes_must_agree_with_the_scores() -> None:
    steps = [tool_step(0, 0, GOOD, code=-1), answer_step(0, 1, code=0)]
    with pytest.raises(ValueError, match="user turn 0: score 1, but its closing code is 0"):
        log(*steps, protocol="interactive")
    with pytest.raises(ValueError, match="user turn 0: interaction 0 has no code"):
        log(tool_step(0, 0, GOOD, code=None), protocol="interactive")
    with pytest.raises(ValueError, match="interaction 1 after the turn closed"):
        log(answer_step(0, 0, code=1), answer_step(0, 1, code=1), protocol="interactive")


def test_adapter_scores_a_group_awaited_or_not() -> None:
    scorer = RuntimeInteractionCredit(CreditOptions(), gold=gold, group_size=2)
    episodes = pair()
    scorer.score_group(episodes)
    written = [node.advantages for episode in episodes for node in sampled(episode)]
    assert all(written)

    async def trainer() -> None:
        await scorer.score_group(pair())

    asyncio.run(trainer())
    assert scorer.last is not None
    assert scorer.last.metrics[PREFIX + "normalization/local_coverage"] == pytest.approx(2 / 3)


def test_credit_survives_the_wire() -> None:
    episodes = pair()
    run(episodes)
    again = vf.WireEpisode.model_validate(episodes[0].model_dump(mode="python"))
    assert [n.advantages for n in again.traces[0].nodes] == [n.advantages for n in episodes[0].traces[0].nodes]


def test_metrics_of_a_group() -> None:
    metrics = run(pair()).metrics
    expected = {
        "global/progress_reward_mean": 1 / 3,
        "call/num_predicted_calls": 2,
        "call/num_gt_calls": 4,
        "call/matched_call_count": 2,
        "call/unmatched_call_count": 0,
        "call/match_rate": 1.0,
        "call/similarity_max": 1.0,
        "step/policy_steps_per_user_turn": 1.5,
        "interaction/non_answer_runtime_interactions": 3,
        "interaction/parse_error_runtime_interactions": 1,
        "interaction/unparsed_runtime_interactions": 1,
        "interaction/peer_supported_interactions": 2,
        "interaction/unsupported_local_interactions": 1,
        "normalization/singleton_local_count": 1,
        "normalization/local_support_depth_0": 2,
        "normalization/local_support_depth_1": 1,
        "missing/missing_turn_local_coverage": 0,
        "provenance/unreliable_tool_turn_count": 0,
        "by_type/Base/local_coverage": 2 / 3,
    }
    assert {name: metrics[PREFIX + name] for name in expected} == pytest.approx(expected)
    assert all(math.isfinite(value) for value in metrics.values())

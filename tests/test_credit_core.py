"""The credit core against published numbers, and its properties."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from bfcl_multi_turn.credit.baselines import global_advantages, leave_one_out_advantages, peer_advantages
from bfcl_multi_turn.credit.gold import GoldCall, GoldError, parse_gold
from bfcl_multi_turn.credit.group import CreditError, GroupCredit, Rollout, credit_group
from bfcl_multi_turn.credit.matching import assign, call_similarity, discounted_returns, turn_rewards
from bfcl_multi_turn.credit.options import CreditOptions
from bfcl_multi_turn.interactive.records import Interaction, ParsedCall
from credit_helpers import answer_step, call, error_step, near, oracles, tool_step, vectors
from hypothesis import given
from hypothesis import strategies as st


def as_call(raw: dict[str, Any], idx: int = 0) -> ParsedCall:
    return ParsedCall(call_idx=idx, **raw)


# --- published numbers ---------------------------------------------------------------


def test_published_similarities() -> None:
    for vector in vectors("call_similarity"):
        gold = vector["input"]["ground_truth"]
        found = call_similarity(as_call(vector["input"]["predicted"]), GoldCall(gold["name"], gold["arguments"]))
        assert found == pytest.approx(vector["expected"], abs=vector["tolerance"]), vector["id"]


def test_published_assignments() -> None:
    for vector in vectors("assignment"):
        found = assign(np.array(vector["input"]["score_matrix"]))
        assert found.columns == vector["expected"]["assignment"], vector["id"]
        assert near(found.rewards, vector["expected"]["rewards"], vector["tolerance"]), vector["id"]


def test_published_turns() -> None:
    for vector in vectors("turn_credit"):
        given_, expected, tolerance = vector["input"], vector["expected"], vector["tolerance"]
        steps = [[as_call(raw, i) for i, raw in enumerate(step["calls"])] for step in given_["interactions"]]
        found = turn_rewards(steps, [parse_gold(text, {}) for text in given_["ground_truth"]], repeats="match")
        assert near(found.step_rewards, expected["step_rewards"], tolerance), vector["id"]
        for rewards, wanted in zip(found.call_rewards, expected.get("call_rewards", found.call_rewards), strict=True):
            assert near(rewards, wanted, tolerance), vector["id"]
        if "returns" in expected:
            returns = discounted_returns(found.step_rewards, given_["gamma"])
            assert near(returns, expected["returns"], tolerance), vector["id"]


def test_published_local_advantages() -> None:
    for vector in vectors("local_advantage"):
        found = peer_advantages(
            vector["input"]["returns"],
            epsilon=vector["input"]["epsilon"],
            min_group_size=vector["input"]["min_group_size"],
        )
        for row, wanted in zip(found, vector["expected"], strict=True):
            assert [step.support for step in row] == [step["peer_support"] for step in wanted], vector["id"]
            assert near([s.advantage for s in row], [s["local_advantage"] for s in wanted], vector["tolerance"])
    for vector in vectors("local_advantage_first_step"):
        last = peer_advantages(vector["input"]["returns"])[-1]
        assert last[0].advantage == pytest.approx(vector["expected"], abs=vector["tolerance"])


def test_published_global_advantages() -> None:
    for vector in vectors("global_advantage_float32"):
        found = global_advantages(vector["input"]["R_P"], equal_group_guard=False)
        assert near(found, [vector["expected"]] * len(found), vector["tolerance"]), vector["id"]
        assert global_advantages(vector["input"]["R_P"]) == [0.0] * len(found)


def test_published_table_from_typed_in_records() -> None:
    """All 36 rows. The records are written down here from the description, not played: `R_P` is an input."""
    study = oracles()["k16_group"]
    credit = credit_group(study["ground_truth"], typed_in_group(study), CreditOptions.published())
    assert len(credit.steps) == len(study["rows"]) == 36
    for step, row in zip(credit.steps, study["rows"], strict=True):
        assert (step.rollout, step.interaction.index) == (row["rollout_offset"], row["runtime_interaction_index"])
        assert [c.name for c in step.interaction.calls] == row["parsed_calls"]
        found = {
            "r_j": step.step_reward,
            "R_j": step.local_return,
            "peer_support": step.local.support,
            "peer_mean_R": step.local.mean,
            "peer_sample_std_R": step.local.std,
            "A_local": step.local.advantage,
            "A_RODS": credit.global_advantages[step.rollout],
            "A_TW": step.advantage,
        }
        for name, value in found.items():
            printed = len(str(row["published"][name]).partition(".")[2])
            assert value == pytest.approx(row["published"][name], abs=0.5 * 10**-printed + 1e-12), (row, name)
            assert value == pytest.approx(row["recomputed"][name], abs=1e-12), (row, name)
    headline = {entry["name"]: entry for entry in study["headline"]}
    special = [step for step in credit.steps if step.rollout == 9]
    for name, values in {
        "special local returns": [step.local_return for step in special],
        "special local advantages": [step.local.advantage for step in special],
        "special fused advantages": [step.advantage for step in special],
    }.items():
        assert near(values, headline[name]["published"], max(headline[name]["tolerance"], 5e-11)), name
    assert credit.global_advantages[9] == headline["special global advantage"]["recomputed"]


def typed_in_group(study: dict[str, Any]) -> list[Rollout]:
    login, create = (parse_gold(text, {}) for text in study["ground_truth"][3])
    first = ParsedCall(call_idx=0, name=login.name, arguments=login.arguments)
    second = ParsedCall(call_idx=0, name=create.name, arguments=create.arguments)
    third = ParsedCall(call_idx=0, name=create.name, arguments={**create.arguments, "description": ""})
    rollouts = []
    for offset, progress in enumerate(study["R_P_by_offset"]):
        if offset == 9:
            last = second.model_copy(update={"call_idx": 1})
            steps = [*(error_step(3, index) for index in range(5)), tool_step(3, 5, first, last, code=1)]
        else:
            steps = [tool_step(3, 0, first), tool_step(3, 1, third if offset == 14 else second), answer_step(3, 2)]
        rollouts.append(Rollout(f"rollout-{offset}", progress, steps))
    return rollouts


def test_float32_path_is_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX"):
        pytest.skip("the published digits come from an AVX kernel")
    rng = np.random.default_rng(0)
    for size in [*range(2, 34), 64]:
        for _ in range(20):
            turns = int(rng.integers(1, 9))
            outcomes = (rng.integers(0, turns + 1, size) / turns).tolist()
            tensor = torch.tensor(outcomes, dtype=torch.float32)
            wanted = ((tensor - tensor.mean()) / (tensor.std() + 1e-6)).tolist()
            assert global_advantages(outcomes, equal_group_guard=False) == wanted


def test_equal_returns_abstain_whatever_rounding_leaves() -> None:
    assert np.full(3, 0.7).std(ddof=1) > 0
    for row in peer_advantages([[0.7]] * 3):
        assert (row[0].advantage, row[0].active, row[0].support) == (0.0, False, 3)


# --- gold calls ----------------------------------------------------------------------


def test_positional_gold_is_bound_by_default() -> None:
    names = {"sort": ["file_name"]}
    gold = parse_gold("sort('final_report.pdf')", names)
    assert gold == GoldCall("sort", {"file_name": "final_report.pdf"})
    lossy = parse_gold("sort('final_report.pdf')", names, "drop")
    right, wrong = call("sort", file_name="final_report.pdf"), call("sort")
    assert [call_similarity(right, gold), call_similarity(wrong, gold)] == [1.0, pytest.approx(1 / 3)]
    assert [call_similarity(right, lossy), call_similarity(wrong, lossy)] == [0.5, 1.0]


@pytest.mark.parametrize(
    "text",
    ["f(", "f", "f(**x)", "f(1)", "g(1, 2)", "g(1, a=2)", "f(a=open('x'))", "f(a=b)", "(lambda: 1)()", "f(a=1); g()"],
)
def test_unreadable_gold(text: str) -> None:
    with pytest.raises(GoldError):
        parse_gold(text, {"g": ["a"]})


def test_gold_containers_become_json() -> None:
    assert parse_gold("f(a=(1, 2), b={1: (3,)}, c=-1)", {}).arguments == {"a": [1, 2], "b": {"1": [3]}, "c": -1}


# --- rules of a group ----------------------------------------------------------------

GOLD = [["f(a=1)", "g(b=2)"], [], ["f(a=2)"]]
GOOD, BETTER, BAD = call("f", a=1), call("g", b=2), call("h")


def group(*rollouts: list[Interaction], outcomes: list[float] | None = None, **options: Any) -> GroupCredit:
    outcomes = outcomes or [index / 2 for index in range(len(rollouts))]
    members = [Rollout(f"r{i}", o, steps) for i, (o, steps) in enumerate(zip(outcomes, rollouts, strict=True))]
    return credit_group(GOLD, members, CreditOptions(**options))


def values(credit: GroupCredit) -> dict[tuple[int, int, int], float]:
    return {(s.rollout, s.interaction.user_turn, s.interaction.index): s.advantage for s in credit.steps}


def test_ragged_supports() -> None:
    long = [*(error_step(0, j) for j in range(5)), tool_step(0, 5, GOOD)]
    credit = group(long, [tool_step(0, 0, GOOD), tool_step(0, 1, BETTER), answer_step(0, 2)])
    assert [s.local.support for s in credit.steps if s.rollout == 0] == [2, 2, 1, 1, 1, 1]
    assert [s.local.active for s in credit.steps if s.rollout == 0] == [True, True, False, False, False, False]


def test_answers_get_the_global_advantage_exactly() -> None:
    credit = group([tool_step(0, 0, GOOD), answer_step(0, 1)], [tool_step(0, 0, BAD), answer_step(0, 1)])
    assert [answer.advantage for answer in credit.answers] == credit.global_advantages
    assert all(step.advantage != credit.global_advantages[step.rollout] for step in credit.steps)


def test_empty_gold_turn_changes_nothing_and_the_next_stands_alone() -> None:
    base = [tool_step(0, 0, GOOD), answer_step(0, 1)], [tool_step(0, 0, BAD), answer_step(0, 1)]
    plain = group(*base)
    more = group(
        [*base[0], answer_step(1, 0), tool_step(2, 0, call("f", a=2))],
        [*base[1], tool_step(1, 0, GOOD), tool_step(2, 0, BAD)],
    )
    assert {key: value for key, value in values(more).items() if key[1] == 0} == values(plain)
    assert not [key for key in values(more) if key[1] == 1]
    assert [skip.reason for skip in more.skips] == ["empty_gold", "empty_gold"]
    assert [step.follows_empty_turn for step in more.steps] == [False, False, True, True]


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([tool_step(0, 0, GOOD, temporal_reliable=False)], "unreliable_record"),
        ([tool_step(0, 0, GOOD).model_copy(update={"call_parse_reliable": False})], "unreliable_record"),
        ([error_step(0, 0, call_parse_reliable=True)], "unreliable_record"),
        ([answer_step(0, 0, code=-1), tool_step(0, 1, GOOD)], "misplaced_answer"),
        ([answer_step(0, 0), answer_step(0, 1)], "misplaced_answer"),
        ([tool_step(0, 1, GOOD)], "broken_indices"),
        ([tool_step(0, 0, GOOD), tool_step(0, 0, GOOD)], "broken_indices"),
        ([tool_step(3, 0, GOOD)], "no_such_turn"),
    ],
)
def test_one_bad_record_removes_its_turn_and_nothing_else(steps: list[Interaction], reason: str) -> None:
    other_turn = [tool_step(2, 0, call("f", a=2))]
    peers = [tool_step(0, 0, GOOD), *other_turn], [tool_step(0, 0, BAD), tool_step(2, 0, BAD)]
    credit = group([*steps, *other_turn], *peers)
    assert [(skip.rollout, skip.reason) for skip in credit.skips] == [(0, reason)]
    assert {(s.rollout, s.interaction.user_turn) for s in credit.steps} == {(0, 2), (1, 0), (2, 0), (1, 2), (2, 2)}
    without = group(other_turn, *peers)
    assert values(credit) == values(without)


def test_unparsable_gold_removes_the_turn_for_all() -> None:
    members = [Rollout("a", 1.0, [tool_step(0, 0, GOOD)]), Rollout("b", 0.0, [tool_step(0, 0, BAD)])]
    credit = credit_group([["f(("]], members)
    assert ([skip.reason for skip in credit.skips], credit.steps) == (["unparsable_gold"] * 2, [])


def test_missing_and_malformed_provenance() -> None:
    steps = [tool_step(0, 0, GOOD)], [tool_step(0, 0, BAD)]
    malformed = credit_group(GOLD, [*_members(*steps), Rollout("x", 0.5, None, "not a list")])
    assert [(skip.rollout, skip.user_turn, skip.reason) for skip in malformed.skips] == [(2, None, "malformed_rollout")]
    assert [step.local.support for step in malformed.steps] == [2, 2]
    missing = credit_group(GOLD, [*_members(*steps), Rollout("x", 0.5, None)])
    assert ({skip.reason for skip in missing.skips}, missing.steps) == ({"no_provenance"}, [])
    assert missing.global_advantages == malformed.global_advantages


def _members(*steps: list[Interaction]) -> list[Rollout]:
    return [Rollout(f"r{i}", float(i), member) for i, member in enumerate(steps)]


def test_tool_attempt_index_influences_nothing() -> None:
    credit = group(
        [tool_step(0, 0, GOOD, tool_attempt_index=17)],
        [tool_step(0, 0, BAD, tool_attempt_index=91)],
    )
    assert [step.local.support for step in credit.steps] == [2, 2]


def test_a_call_that_failed_in_execution_still_scores() -> None:
    failed = tool_step(0, 0, GOOD, code=-2, results=["Error during execution: x"])
    assert group([failed], [tool_step(0, 0, BAD)]).steps[0].step_reward == 1.0


def test_weight_zero_is_the_global_advantage() -> None:
    rollouts = [tool_step(0, 0, GOOD), answer_step(0, 1)], [tool_step(0, 0, BAD), answer_step(0, 1)]
    for baseline in ("peers", "leave_one_out"):
        credit = group(*rollouts, weight=0.0, local_baseline=baseline)
        assert [s.advantage for s in credit.steps] == [credit.global_advantages[s.rollout] for s in credit.steps]
        assert [a.advantage for a in credit.answers] == credit.global_advantages


@pytest.mark.parametrize("outcome", [float("nan"), float("inf")])
def test_outcomes_must_be_numbers(outcome: float) -> None:
    with pytest.raises(CreditError, match=r"rollout r1: its outcome is (nan|inf)"):
        group([], [], outcomes=[0.0, outcome])
    with pytest.raises(CreditError, match="without rollouts"):
        credit_group(GOLD, [])


@pytest.mark.parametrize(
    "options",
    [{"gamma": 1.1}, {"gamma": -0.1}, {"epsilon": 0}, {"min_group_size": 1}, {"weight": float("nan")}, {"mode": "x"}],
)
def test_options_are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        CreditOptions(**options)


# --- properties ----------------------------------------------------------------------

CALLS = st.sampled_from([call("f", a=1), call("f", a=3), call("g", b=2), call("G", b=2, c=0), call("h")])
STEP = st.one_of(st.lists(CALLS, max_size=3), st.none())
TURN = st.tuples(st.lists(STEP, max_size=6), st.booleans())
ROLLOUT = st.tuples(TURN, TURN, TURN, st.integers(0, 3))


def build(turns: Any) -> list[Interaction]:
    interactions = []
    for user_turn, (steps, answered) in enumerate(turns):
        for index, calls in enumerate(steps):
            interactions.append(error_step(user_turn, index) if calls is None else tool_step(user_turn, index, *calls))
        if answered:
            interactions.append(answer_step(user_turn, len(steps)))
    return interactions


@given(st.lists(ROLLOUT, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_permuting_rollouts_permutes_the_result(group_: list[Any], random: Any) -> None:
    order = list(range(len(group_)))
    random.shuffle(order)
    members = [build(turns[:3]) for turns in group_]
    outcomes = [turns[3] / 3 for turns in group_]
    plain = group(*members, outcomes=outcomes)
    moved = group(*(members[i] for i in order), outcomes=[outcomes[i] for i in order])
    for position, original in enumerate(order):
        # The float32 sum follows the order of the group, so the last bit may differ.
        assert moved.global_advantages[position] == pytest.approx(plain.global_advantages[original], rel=1e-5, abs=1e-6)
    there = {(s.rollout, s.interaction.user_turn, s.interaction.index): s.local for s in plain.steps}
    for step in moved.steps:
        twin = there[order[step.rollout], step.interaction.user_turn, step.interaction.index]
        assert (step.local.support, step.local.active) == (twin.support, twin.active)
        assert step.local.advantage == pytest.approx(twin.advantage, rel=1e-6, abs=1e-6)
    assert len(moved.steps) == len(plain.steps)


GOLDS = st.lists(
    st.builds(lambda name, value: GoldCall(name, {"a": value}), st.sampled_from("fg"), st.integers(0, 2)), max_size=4
)


@given(st.lists(STEP, max_size=5), GOLDS, st.integers(0, 4), st.integers(0, 2))
def test_duplicates_never_raise_a_reward(steps: list[Any], golds: list[GoldCall], which: int, copies: int) -> None:
    """Repeating a call adds nothing to what the turn earns, unless the gold calls hold it several times too."""
    calls = [step or [] for step in steps]
    repeated = [list(step) for step in calls]
    if calls and calls[which % len(calls)]:
        again = calls[which % len(calls)][0]
        made = sum((other.name, other.arguments) == (again.name, again.arguments) for step in calls for other in step)
        if made < sum((gold.name, gold.arguments) == (again.name, again.arguments) for gold in golds):
            return
        repeated.append([again] * (copies + 1))
    before, after = turn_rewards(calls, golds), turn_rewards(repeated, golds)
    assert sum(map(sum, after.call_rewards)) == pytest.approx(sum(map(sum, before.call_rewards)))


def test_a_repeat_may_take_another_gold_call_only_as_published() -> None:
    golds = [GoldCall("f", {"a": 1}), GoldCall("f", {"a": 2})]
    made = ParsedCall(call_idx=0, name="f", arguments={"a": 1})
    assert turn_rewards([[made], [made]], golds).step_rewards == [1.0, 0.0]
    assert turn_rewards([[made], [made]], golds, repeats="match").step_rewards == [1.0, pytest.approx(2 / 3)]
    twice = [GoldCall("f", {"a": 1}), GoldCall("f", {"a": 1})]
    assert turn_rewards([[made], [made], [made]], twice).step_rewards == [1.0, 1.0, 0.0]


@given(st.lists(ROLLOUT, min_size=1, max_size=5))
def test_answers_and_inactive_steps_get_the_global_advantage(group_: list[Any]) -> None:
    credit = group(*(build(turns[:3]) for turns in group_), outcomes=[turns[3] / 3 for turns in group_])
    assert all(a.advantage == credit.global_advantages[a.rollout] for a in credit.answers)
    for step in credit.steps:
        base = credit.global_advantages[step.rollout]
        assert step.advantage == (base + step.local.advantage if step.local.active else base)
        assert step.interaction.user_turn != 1


@given(st.lists(st.lists(st.floats(0, 3), max_size=6), min_size=1, max_size=8))
def test_peer_advantages_sum_to_zero(returns: list[list[float]]) -> None:
    found = peer_advantages(returns)
    for index in range(max(map(len, returns), default=0)):
        column = [row[index].advantage for row in found if len(row) > index]
        assert sum(column) == pytest.approx(0, abs=1e-6)


@given(st.lists(st.lists(st.floats(0, 3), max_size=4), min_size=2, max_size=6), st.floats(0, 3))
def test_leave_one_out_baseline_ignores_the_rollout_itself(returns: list[list[float]], other: float) -> None:
    changed = [[other] * len(returns[0]), *returns[1:]]
    for before, after in zip(leave_one_out_advantages(returns)[0], leave_one_out_advantages(changed)[0], strict=True):
        assert before.mean == pytest.approx(after.mean, abs=1e-9)


def test_optimum_over_all_assignments() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        matrix = np.round(rng.random((3, 3)), 1)
        best = max(sum(matrix[i, p[i]] for i in range(3)) for p in itertools.permutations(range(3)))
        assert sum(assign(matrix).rewards) == pytest.approx(best)

"""The progress reward and the stage-1 score, from codes."""

from pathlib import Path

import pytest
from bfcl_multi_turn.credit.boundary import boundary
from bfcl_multi_turn.interactive.rewards import progress_reward, stage1_score
from credit_helpers import near, oracles, vectors


def test_published_progress_rewards() -> None:
    for vector in vectors("progress_reward"):
        codes, turns = vector["input"]["user_turn_rewards"], vector["input"]["expected_user_turns"]
        if vector["expected"] == "ValueError":
            with pytest.raises(ValueError, match="3 terminal codes"):
                progress_reward(codes, turns)
        else:
            assert progress_reward(codes, turns).reward == pytest.approx(vector["expected"], abs=1e-12)


def test_published_boundary() -> None:
    for vector in vectors("boundary_decision"):
        given, wanted = vector["input"], vector["expected"]
        found = boundary(given["R_P"], given["low"], given["high"])
        assert found.kind == wanted["classification"], vector["id"]
        assert near([found.mean, found.priority], [wanted["mean"], wanted["phi"]], vector["tolerance"]), vector["id"]


@pytest.mark.parametrize(
    ("progress", "kind"),
    [
        ([0.0, 0.39], "too_hard"),
        ([0.2], "boundary"),
        ([0.75, 0.95], "boundary"),
        ([0.86], "mastered"),
        ([1.0], "mastered"),
    ],
)
def test_both_ends_belong_to_the_boundary(progress: list[float], kind: str) -> None:
    assert boundary(progress).kind == kind
    assert boundary([0.5]).priority == 1.0
    with pytest.raises(ValueError, match="without rollouts"):
        boundary([])


def test_every_kind_of_published_vector_is_checked_somewhere() -> None:
    sources = "".join(path.read_text() for path in Path(__file__).parent.glob("test_credit_*.py"))
    kinds = {vector["kind"] for vector in oracles()["vectors"]}
    assert {kind for kind in kinds if f'vectors("{kind}")' not in sources} == set()


def test_published_stage1_scores() -> None:
    for vector in vectors("stage1_reward"):
        score = stage1_score(vector["input"]["user_turn_rewards"])
        assert score._asdict() == pytest.approx(vector["expected"], abs=1e-12), vector["id"]


@pytest.mark.parametrize(
    ("codes", "turns", "reward", "missing"),
    [
        ([], 0, 0.0, 0),
        ([], 3, 0.0, 3),
        ([1, 1, 1], 3, 1.0, 0),
        ([-3, -2, -1], 2, 0.0, 2),
        ([-1, 1, -3, 0, 1], 5, 0.4, 2),
    ],
)
def test_denominator_is_fixed(codes: list[int], turns: int, reward: float, missing: int) -> None:
    progress = progress_reward(codes, turns)
    assert (progress.reward, progress.missing_terminal_turns) == (reward, missing)
    assert progress.incomplete_trajectory == (missing > 0)
    assert sum(progress.code_counts.values()) == len(codes)


def test_unknown_codes_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown step codes"):
        progress_reward([2], 1)
    with pytest.raises(ValueError, match="unknown step codes"):
        stage1_score([-4])


def test_no_tool_step_scores_nothing() -> None:
    assert stage1_score([1, 1]).score == 0.0

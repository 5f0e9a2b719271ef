"""Scores on hand-made decisions: the six outcomes, proper scores, intervals, tests, calibration, order effects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from bfcl_rollout.errors import SetupError
from bfcl_routing.decision import NO_CALL, Decision
from bfcl_routing.report.calibration import auroc, calibration, coverage_at, ece, risk_coverage
from bfcl_routing.report.compare import compare, render_comparison
from bfcl_routing.report.latency import comparable, latency
from bfcl_routing.report.order import by_gold_position, order_report, repeat_report
from bfcl_routing.report.runs import Row, Run
from bfcl_routing.report.stats import bootstrap_means, holm, mcnemar, percentile, share
from bfcl_routing.report.summary import selection
from bfcl_routing.scoring import (
    OUTCOMES,
    brier,
    confidence,
    exact_action,
    log_loss,
    metrics,
    outcome_of,
    right_mass,
    route_correct,
)
from routing_helpers import row


@pytest.mark.parametrize(
    ("action", "gold", "outcome", "right", "exact"),
    [
        ("f", ("f",), "right_function", True, True),
        ("g", ("f",), "wrong_function", False, False),
        ("no_tool", ("f",), "under_call", False, False),
        ("clarify", ("f",), "under_call", False, False),
        (NO_CALL, ("f",), "under_call", False, False),
        ("no_tool", (), "right_no_function", True, True),
        ("clarify", (), "right_no_function", True, False),
        ("cannot_answer", (), "right_no_function", True, False),
        ("no_function", (), "right_no_function", True, None),
        (NO_CALL, (), "right_no_function", True, None),
        ("f", (), "over_call", False, False),
        (None, ("f",), "invalid", False, False),
        (None, (), "invalid", False, False),
        ("g", ("f", "g"), "right_function", True, True),
    ],
)
def test_outcomes(action: str | None, gold: tuple[str, ...], outcome: str, right: bool, exact: bool | None) -> None:
    decision = Decision(action=action, invalid=None if action else "unknown")
    assert outcome_of(decision, gold) == outcome
    assert route_correct(decision, gold) == right
    assert exact_action(decision, gold) is exact
    found = metrics(decision, gold)
    assert [name for name in OUTCOMES if found[f"outcome_{name}"]] == [outcome]
    assert found.get("exact_action") == (None if exact is None else float(exact))


def test_proper_scores() -> None:
    p = {"no_tool": 0.2, "clarify": 0.1, "cannot_answer": 0.1, "f": 0.5, "g": 0.1}
    assert right_mass(p, ("f",)) == 0.5
    assert math.isclose(right_mass(p, ()), 0.4)
    # Positives: every action is a class of its own.
    assert math.isclose(brier(p, ("f",)), 0.25 + 0.04 + 0.01 + 0.01 + 0.01)
    # Negatives: the three no-function actions are one class.
    assert math.isclose(brier(p, ()), 0.36 + 0.25 + 0.01)
    assert math.isclose(log_loss(p, ("f",)), math.log(2))
    assert math.isclose(log_loss({"f": 0.0, "g": 1.0}, ("f",)), -math.log(1e-12))
    assert math.isclose(confidence(p, "clarify"), 0.4)
    assert confidence(p, "f") == 0.5
    assert brier({"f": 1.0, "g": 0.0}, ("f",)) == 0
    assert brier({"f": 0.0, "g": 1.0}, ("f",)) == 2
    found = metrics(Decision(action="f", distribution=p, calls=2, lenient="g"), ("f",))
    assert (found["multi_call"], found["calls"], found["lenient_route_correct"]) == (1, 2, 0)
    assert found["brier"] == brier(p, ("f",))
    assert "brier" not in metrics(Decision(action="f"), ("f",))


def test_wilson_intervals_of_the_published_scores() -> None:
    def interval(right: int, n: int) -> list[float]:
        found = share({str(i): [i < right] for i in range(n)})
        assert found.method == "wilson"
        return [round(100 * end, 1) for end in found.interval]

    assert interval(248, 250) == [97.1, 99.8]
    assert interval(241, 250) == [93.3, 98.1]
    assert interval(88, 250) == [29.5, 41.3]
    assert interval(250, 250) == [98.5, 100.0]
    assert interval(200, 200) == [98.1, 100.0]
    assert interval(50, 50) == [92.9, 100.0]


def test_cases_played_several_times_count_once() -> None:
    found = share({"a": [True, False], "b": [True, True], "c": [False, False]})
    assert (found.right, found.n, found.value, found.method) == (1.5, 3, 0.5, "bootstrap")
    assert found.interval.low < 0.5 < found.interval.high
    assert bootstrap_means([[1.0] * 5, [0.0] * 5]) == (0.5, 0.5)
    assert bootstrap_means([[]]) == (0.0, 1.0)


def test_mcnemar_is_exact() -> None:
    # Six discordant cases all one way are the fewest that are significant.
    six = mcnemar([True] * 10, [True] * 4 + [False] * 6)
    assert (six.both, six.only_first, six.only_second, six.neither) == (4, 6, 0, 0)
    assert math.isclose(six.p_value, 2 / 64)
    five = mcnemar([True] * 10, [True] * 5 + [False] * 5)
    assert math.isclose(five.p_value, 2 / 32)
    assert mcnemar([True, False], [True, False]) == (1, 0, 0, 1, 1.0)
    with pytest.raises(ValueError, match="shorter"):
        mcnemar([True], [])


def test_holm_adjusts_in_order() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_percentiles_are_linear() -> None:
    assert percentile([1, 2, 3, 4], 0.5) == 2.5
    assert percentile(list(range(101)), 0.95) == 95
    assert math.isclose(percentile([10, 20], 0.95), 19.5)


def test_calibration_measures() -> None:
    sure, right = np.array([0.95, 0.95, 0.55, 0.55]), np.array([True, True, True, False])
    assert math.isclose(ece(sure, right, equal_mass=False), 0.05)
    assert auroc(sure, right) == (2 + 0.5) / 3
    assert auroc(sure, np.array([True] * 4)) is None
    curve = risk_coverage(sure, right)
    assert [(p.coverage, p.risk) for p in curve] == [(0.5, 0.0), (1.0, 0.25)]
    assert coverage_at(curve, 0.01) == 0.5
    assert coverage_at(curve, 0.25) == 1.0
    assert coverage_at([], 0.5) == 0.0
    # The mass variant splits equal confidences over bins of one answer each.
    assert math.isclose(ece(sure, right, equal_mass=True), (0.05 + 0.05 + 0.45 + 0.55) / 4)


def test_calibration_of_rollouts() -> None:
    flat = {"no_tool": 0.0, "clarify": 0.0, "cannot_answer": 0.0, "f": 0.9, "g": 0.1}
    rows = [row("a", "f", ("f",), distribution=flat), row("b", "f", ("g",), distribution=flat), row("c", "f", ("f",))]
    found = calibration(rows)
    assert found is not None
    assert found["n"] == 2
    assert found["wrong_above_gate"] == {"0.8": 1, "0.9": 1}
    assert math.isclose(found["right_mass"], 0.5)
    assert calibration([row("a", "f", ("f",))]) is None


def test_order_effects() -> None:
    rows = [
        row("a", "f", ("f",), rotation=0),
        row("a", "g", ("f",), rotation=1),
        row("a", "f", ("f",), rotation=2),
        row("b", "g", ("g",), rotation=0),
        row("b", "g", ("g",), rotation=1),
        row("c", "f", (), rotation=0, stratum="one_tool_no_call"),
    ]
    found = order_report(rows)
    assert found is not None
    assert (found["cases"], found["cases_in_several_orders"], found["flipped"]) == (3, 2, 1)
    assert found["same_action_everywhere"] == 0.5
    assert math.isclose(found["accuracy_mean"], (2 / 3 + 1 + 0) / 3)
    assert found["by_rotation"] == pytest.approx([2 / 3, 1 / 3, 2 / 3])
    assert found["accuracy_range"] == pytest.approx([1 / 3, 2 / 3])
    assert math.isclose(found["majority"], 2 / 3)
    assert found["averaged"] is None
    assert order_report(rows[-1:]) is None
    tied = order_report([row("a", "f", ("f",)), row("a", "g", ("f",), rotation=1)])
    assert tied is not None
    assert tied["majority"] == 0.0
    assert by_gold_position(rows) == {"1": {"right": 2, "n": 3}, "2": {"right": 2, "n": 2}}


def test_averaged_probabilities_decide_over_orders() -> None:
    one = {"no_tool": 0.0, "f": 0.6, "g": 0.4}
    two = {"no_tool": 0.0, "f": 0.1, "g": 0.9}
    rows = [row("a", "f", ("g",), distribution=one), row("a", "g", ("g",), distribution=two, rotation=1)]
    found = order_report(rows)
    assert found is not None
    # Tied actions make no majority; the mean probability is .65 for g.
    assert (found["majority"], found["averaged"]) == (0.0, 1.0)


def test_repeats_are_told_apart_from_orders() -> None:
    assert repeat_report([row("a", "f", ("f",)), row("a", "g", ("f",), rotation=1)]) is None
    rows = [row("a", "f", ("f",)), row("a", "g", ("f",)), row("b", "f", ("f",)), row("b", "f", ("f",))]
    assert repeat_report(rows) == {"tasks": 2, "changed": 1, "share": 0.5}


def make_run(name: str, rows: list[Row], *, view: str = "v", **declared: str | None) -> Run:
    everything: dict[str, str | None] = {"boundary": "http", "hardware": "h", "precision": "p", "serving": "s"}
    return Run(
        name=name,
        model=name,
        suite="v1",
        split="test",
        view=view,
        view_sha256=view,
        form="id_text",
        rollouts=1,
        expected=len(rows),
        concurrency=1,
        declared={**everything, **declared},
        rows=rows,
        tasks={},
    )


def test_selection_reports_every_denominator() -> None:
    rows = [row(str(i), "f" if i < 3 else "g", ("f",)) for i in range(4)]
    rows += [row("one", "f", ("f",), stratum="one_tool_call"), row("neg", "no_tool", ())]
    found = selection(rows, lambda r: r.correct)
    assert {k: (v["right"], v["n"]) for k, v in found.items() if "n" in v} == {
        "multi_tool_call": (3, 4),
        "one_tool_call": (1, 1),
        "one_tool_no_call": (1, 1),
        "positives": (4, 5),
        "negatives": (1, 1),
        "pooled": (5, 6),
    }
    assert math.isclose(found["macro"]["share"], (0.75 + 1 + 1) / 3)
    assert selection([], lambda r: r.correct) == {}


def test_comparison_pairs_cases() -> None:
    first = make_run("a", [row(str(i), "f", ("f",)) for i in range(8)] + [row("n", "no_tool", ())])
    second = make_run("b", [row(str(i), "f" if i < 2 else "g", ("f",)) for i in range(8)] + [row("n", None, ())])
    third = make_run("c", [*first.rows[:-1], row("n", "no_tool", (), failed=True)])
    found = compare([first, second, third])
    pooled = found["pairs"][0]["tests"]["pooled"]
    assert (pooled["both"], pooled["only_first"], pooled["only_second"], pooled["neither"]) == (2, 7, 0, 0)
    assert math.isclose(pooled["p_value"], 2 / 2**7)
    assert math.isclose(pooled["p_holm"], 3 * 2 / 2**7)
    assert math.isclose(found["pairs"][0]["macro_difference"]["share"], (6 / 8 + 1) / 2)
    # A failed rollout is no wrong answer: its case is left out of the pair.
    assert (found["pairs"][1]["cases"], found["pairs"][1]["only_in_one"]) == (8, 1)
    text = render_comparison(found)
    assert "PARTIAL" in text
    assert "1 cases are graded in one run only" in text
    assert "not comparable" not in text


def test_what_must_not_be_compared_is_refused() -> None:
    rows = [row("a", "f", ("f",))]
    with pytest.raises(SetupError, match="different views"):
        compare([make_run("a", rows), make_run("b", rows, view="other")])
    with pytest.raises(SetupError, match="at least two"):
        compare([make_run("a", rows)])
    with pytest.raises(SetupError, match="several times"):
        compare([make_run("a", rows), make_run("b", rows * 2)])
    with pytest.raises(SetupError, match="in common"):
        compare([make_run("a", rows), make_run("b", [row("z", "f", ("f",))])])


def test_latency_says_when_it_cannot_be_compared() -> None:
    rows = [row("a", "f", ("f",))._replace(started=2.0, wall_s=0.2), row("b", "f", ("f",))._replace(started=1.0)]
    run = make_run("a", rows)
    found = latency(run)
    assert found is not None
    assert (found["first_ms"], found["mean_ms"], found["p50_ms"]) == (10.0, 105.0, 105.0)
    assert found["caveats"] == []
    assert comparable([run, make_run("b", rows)]) == []
    assert comparable([run, make_run("b", rows, hardware="other")]) == ["hardware differs: h, other"]
    undeclared = make_run("b", rows, precision=None)._replace(concurrency=None)
    assert "b: precision not declared" in comparable([run, undeclared])
    assert "b: unbounded requests at once instead of 1" in comparable([run, undeclared])
    assert latency(make_run("a", [row("a", "f", ("f",))._replace(wall_s=None)])) is None

"""What the demonstration and the benchmark print is true."""

from __future__ import annotations

import numpy as np
import pytest
from bfcl_multi_turn.credit import bench, bias_demo
from bfcl_multi_turn.credit.group import credit_group


def test_leave_one_out_is_unbiased_and_the_published_baseline_is_not() -> None:
    found = {bias.name: bias for bias in bias_demo.biases(group=3)}
    assert found["leave_one_out"].error < 1e-12
    assert found["leave_one_out, answers left out"].error > 0.1
    # Among peers the advantages sum to zero, so on average nothing moves the decision to answer.
    for name in ("peers (published)", "peers, not divided by the std"):
        assert found[name].direction_error > 0.3
        assert found[name].expected[:, bias_demo.ANSWER] == pytest.approx([0, 0], abs=1e-12)
    assert abs(bias_demo.true_gradient()[0, bias_demo.ANSWER]) > 0.1


def test_true_gradient_is_that_of_the_expected_return() -> None:
    """With one decision the target is the plain policy gradient: checked by finite differences."""
    logits = np.array([[0.2, 0.5, -0.3]])

    def value(at: np.ndarray) -> float:
        weights = np.exp(at[0]) / np.exp(at[0]).sum()
        return float(weights[bias_demo.RIGHT])

    for action in range(3):
        step = np.zeros_like(logits)
        step[0, action] = 1e-6
        slope = (value(logits + step) - value(logits - step)) / 2e-6
        assert bias_demo.true_gradient(logits)[0, action] == pytest.approx(slope, abs=1e-8)


def test_demo_prints_its_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bias_demo, "biases", lambda: [bias_demo.Bias("x", np.ones((2, 3)), 0.5, 0.25)])
    bias_demo.main()
    out = capsys.readouterr().out
    assert "true gradient" in out
    assert "50.0%" in out


def test_benchmark_runs_what_it_says(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    credit = credit_group(bench.GOLD, bench.make_group())
    assert {step.rollout for step in credit.steps} == set(range(16))
    assert {step.interaction.user_turn for step in credit.steps} == set(range(5))
    assert not credit.skips
    measured = bench.measure(3)
    monkeypatch.setattr(bench, "measure", lambda: measured)
    bench.main()
    assert "ms CPU" in capsys.readouterr().out

"""The report of one run: `summary.json` and the table that is printed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from bfcl_rollout import official
from bfcl_rollout.scripted.reply import completion

from bfcl_routing import policies
from bfcl_routing.baselines import abstention_threshold, uniform_expectation
from bfcl_routing.decision import decide
from bfcl_routing.report.calibration import calibration
from bfcl_routing.report.latency import latency
from bfcl_routing.report.order import by_gold_position, order_report, repeat_report
from bfcl_routing.report.runs import Row, Run, read_run
from bfcl_routing.report.stats import Share, bootstrap_means, share
from bfcl_routing.report.table import render
from bfcl_routing.scoring import OUTCOMES, declines, exact_action, route_correct

SUMMARY_VERSION = 1
STRATA = ("multi_tool_call", "one_tool_call", "multi_tool_no_call", "one_tool_no_call")

BASELINES = {
    "first function": policies.choose_first,
    "last function": policies.choose_last,
    "longest card": policies.choose_longest,
    "no function": policies.choose_none,
    "word overlap": policies.choose_words,
    "word overlap or none": policies.choose_words_or_none,
}


def summarize(run_dir: Path) -> dict[str, Any]:
    """Report a run: write `summary.json` beside its traces and return it with the printed table under `table`.

    Raises:
        SetupError: the directory holds no routing traces, or traces of several views.
    """
    summary = summary_of(read_run(run_dir))
    (run_dir / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return {**summary, "table": render(summary)}


def summary_of(run: Run) -> dict[str, Any]:
    """Everything measured about a run, as stored."""
    graded = run.graded
    hits = baseline_hits(run)
    return {
        "version": SUMMARY_VERSION,
        "environment": "bfcl-routing",
        "model": run.model,
        "suite": run.suite,
        "split": run.split,
        "view": run.view,
        "view_sha256": run.view_sha256,
        "bfcl_eval": official.VERSION,
        "rollouts_per_task": run.rollouts,
        "tasks": {"expected": run.expected, "graded": len({row.key for row in graded})},
        "rollouts": {"recorded": len(run.rows), "graded": len(graded), "failed": len(run.rows) - len(graded)},
        "errors": dict(Counter(row.error for row in run.rows if row.error)),
        "complete": run.complete,
        "selection": selection(graded, lambda row: row.correct),
        "exact_action": _exact(graded),
        "outcomes": {name: sum(row.outcome == name for row in graded) for name in OUTCOMES},
        "invalid": _count(row.decision.invalid for row in graded if row.decision),
        "lenient_right": sum(_lenient(row) for row in graded),
        "several_calls": sum(row.decision.calls > 1 for row in graded if row.decision),
        "actions_on_negatives": _count(
            row.decision.action
            for row in graded
            if row.decision and not row.gold and row.outcome == "right_no_function"
        ),
        "by_functions": _slice(graded, lambda row: sum(not declines(a) for a in row.actions)),
        "by_gold_position": by_gold_position(graded),
        "lexically_hard": _hard(graded, hits["word overlap"]),
        "calibration": calibration(graded),
        "order": order_report(graded),
        "repeats": repeat_report(graded),
        "latency": latency(run),
        "baselines": {
            **{name: selection(graded, _lookup(hit)) for name, hit in hits.items()},
            "uniform (expected)": _uniform(graded),
        },
        "word_overlap_threshold": abstention_threshold(),
    }


def selection(rows: Sequence[Row], right: Callable[[Row], bool]) -> dict[str, Any]:
    """Shares of right routes: by stratum, over positives and negatives, pooled, and the mean of the strata.

    Args:
        rows: rollouts that count. A case's rollouts are averaged first.
        right: whether a rollout is right.
    """
    strata: dict[str, Share] = {}
    for stratum in STRATA:
        if found := [row for row in rows if row.stratum == stratum]:
            strata[stratum] = _share(found, right)
    result: dict[str, Any] = {name: value.to_json() for name, value in strata.items()}
    for name, positive in (("positives", True), ("negatives", False)):
        if found := [row for row in rows if bool(row.gold) == positive]:
            result[name] = _share(found, right).to_json()
    if rows:
        result["pooled"] = _share(rows, right).to_json()
        means = [_case_means([r for r in rows if r.stratum == name], right) for name in strata]
        interval = bootstrap_means(means)
        macro = sum(sum(m) / len(m) for m in means) / len(means)
        result["macro"] = {"share": macro, "interval_95": [interval.low, interval.high], "method": "bootstrap"}
    return result


def _by_case(rows: Iterable[Row], right: Callable[[Row], bool]) -> dict[str, list[bool]]:
    found: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        found[row.case_id].append(right(row))
    return found


def _share(rows: Iterable[Row], right: Callable[[Row], bool]) -> Share:
    return share(_by_case(rows, right))


def _case_means(rows: Iterable[Row], right: Callable[[Row], bool]) -> list[float]:
    return [sum(values) / len(values) for values in _by_case(rows, right).values()]


def baseline_hits(run: Run) -> dict[str, dict[str, bool]]:
    """Per baseline and task, whether it is right on the very request that the model got."""
    return {
        name: {key: _plays_right(choose, data) for key, data in run.tasks.items()} for name, choose in BASELINES.items()
    }


def _lookup(hit: dict[str, bool]) -> Callable[[Row], bool]:
    return lambda row: hit[row.key]


def _plays_right(choose: policies.Chooser, data: dict[str, Any]) -> bool:
    messages = [
        {"role": "system", "content": data["system_prompt"]},
        {"role": "user", "content": data["prompt"]},
    ]
    body = {"model": "baseline", "messages": messages, **data.get("request", {})}
    choice = completion(policies.answer(choose, body), body)["choices"][0]
    return route_correct(decide(data["form"], data["codes"], data["actions"], choice), data["gold"])


def _uniform(rows: Sequence[Row]) -> dict[str, Any]:
    tasks = {row.key: row for row in rows}.values()
    result = {}
    for stratum in STRATA:
        if found := [r for r in tasks if r.stratum == stratum]:
            result[stratum] = _expected(found)
    return {**result, "pooled": _expected(list(tasks))} if tasks else {}


def _expected(rows: Sequence[Row]) -> dict[str, Any]:
    per_case: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        per_case[row.case_id].append(uniform_expectation(list(row.actions), list(row.gold)))
    right = sum(sum(values) / len(values) for values in per_case.values())
    return {"right": right, "n": len(per_case), "share": right / len(per_case)}


def _exact(rows: Sequence[Row]) -> dict[str, Any]:
    values = [exact_action(row.decision, row.gold) for row in rows if row.decision]
    known = [value for value in values if value is not None]
    return {"right": sum(known), "n": len(known), "undefined": len(values) - len(known)}


def _lenient(row: Row) -> bool:
    if row.decision is None or row.decision.lenient is None:
        return row.correct
    return route_correct(row.decision.model_copy(update={"action": row.decision.lenient}), row.gold)


def _count(values: Iterable[str | None]) -> dict[str, int]:
    return dict(Counter(value for value in values if value is not None).most_common())


def _slice(rows: Sequence[Row], place: Callable[[Row], int]) -> dict[str, dict[str, int]]:
    found: dict[int, list[bool]] = defaultdict(list)
    for row in rows:
        found[place(row)].append(row.correct)
    return {str(key): {"right": sum(values), "n": len(values)} for key, values in sorted(found.items())}


def _hard(rows: Sequence[Row], words_right: dict[str, bool]) -> dict[str, int]:
    """Multi-tool positives that word overlap gets wrong."""
    hard = [row for row in rows if row.stratum == "multi_tool_call" and not words_right[row.key]]
    return {"right": sum(row.correct for row in hard), "n": len(hard)}

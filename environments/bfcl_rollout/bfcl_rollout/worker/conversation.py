"""Grade a multi-turn conversation with the official checker, from what executing its calls gave.

The process that does this holds the accepted calls and executes them, and nothing else: wherever the checker asks for
a model's calls to be executed, it is handed the results and the tool states that another process recorded
(`worker.execution`).

Beside the official verdict, which stops at the first bad turn, the same two checks are made for every user turn.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

from bfcl_rollout import jsonl, official
from bfcl_rollout.records import ExecutedTurn, Execution, GradeSpec, Verdict
from bfcl_rollout.worker import execution, states, upstream

Golds = list[list[str]]
"""Accepted calls as Python text, per user turn; a turn without any is one where no call is right."""


class TurnVerdict(NamedTuple):
    """The official checks of one user turn. None: not checked, because nothing is or the turn was never reached."""

    passed: bool | None
    """False where the official checker would stop at this turn; None if the turn was never reached."""
    state: bool | None
    response: bool | None


class InconsistentVerdictError(RuntimeError):
    """The official verdict and the checks turn by turn contradict each other."""


def load_golds(category: str) -> dict[str, Golds]:
    """The accepted calls of a category, by test id."""
    path = official.package_dir() / "data" / "possible_answer" / f"BFCL_v4_{category}.json"
    return {row["id"]: row["ground_truth"] for row in jsonl.read(path)}


def grade(spec: GradeSpec, golds: Golds, entry: dict[str, Any]) -> Verdict:
    """The official verdict, and in its details the verdict of every user turn.

    Raises:
        ValueError: the calls have not been executed yet.
        InconsistentVerdictError: the two ways of checking disagree.
    """
    if spec.execution is None:
        raise ValueError("a conversation is graded from its execution")
    model = upstream.safe_model_name(spec.model)
    turns = _check_turns(spec.execution, golds, entry, model, idle_gold=spec.idle_gold)
    outcome = _official(spec, golds, entry, model)
    valid = bool(outcome["valid"])
    # BFCL skips turns without accepted calls, and counts a conversation with other than the right number of turns as
    # wrong; otherwise it is right if no turn is wrong.
    if spec.idle_gold and valid != (len(spec.execution.turns) == len(golds) and all(turn.passed for turn in turns)):
        raise InconsistentVerdictError(f"{spec.entry_id}: official verdict {valid}, turns {turns}")
    details = {
        "turn_pass": [turn.passed for turn in turns],
        "state_pass": [turn.state for turn in turns],
        "response_pass": [turn.response for turn in turns],
    }
    if valid:
        return Verdict(valid=True, details=details)
    message = outcome["error"]["error_message"]
    return Verdict(
        valid=False,
        error_type=outcome["error"]["error_type"],
        error_message=message if isinstance(message, str) else " ".join(message),
        details=details,
    )


def selftest(spec: GradeSpec, golds: Golds, entry: dict[str, Any]) -> bool:
    """Whether the checker passes the accepted calls and fails what is wrong for sure.

    Wrong for sure are a conversation without calls, and the accepted functions with an argument that does not exist;
    and of the conversations with one such call, some must be wrong. A checker whose tools cannot be reached, for
    instance because the model's name makes no identifier, sees the same error everywhere and passes all but the
    first.
    """
    silent: Golds = [[] for _ in golds]
    wrong = [[_misused(call) for call in turn] for turn in golds]
    if not _passes(spec, golds, golds, entry) or _passes(spec, silent, golds, entry):
        return False
    if _passes(spec, wrong, golds, entry):
        return False
    # From the end: a call there is seldom made up for by a later one.
    places = [(turn, index) for turn, calls in enumerate(golds) for index in range(len(calls))][::-1]
    return any(not _passes(spec, _with_mistake(golds, *place), golds, entry) for place in places)


def _passes(spec: GradeSpec, turns: Golds, golds: Golds, entry: dict[str, Any]) -> bool:
    forget_tools()
    steps = [[calls] if calls else [] for calls in turns]
    done = execution.run_turns(steps, entry, upstream.safe_model_name(spec.model))
    return grade(spec.model_copy(update={"result": steps, "execution": done}), golds, entry).valid


def _with_mistake(golds: Golds, turn: int, index: int) -> Golds:
    changed = [list(calls) for calls in golds]
    changed[turn][index] = _misused(changed[turn][index])
    return changed


def _misused(call: str) -> str:
    return f"{call.split('(')[0]}(no_such_argument=1)"


def _check_turns(
    done: Execution, golds: Golds, entry: dict[str, Any], model: str, *, idle_gold: bool
) -> list[TurnVerdict]:
    """The official state and response checks after every turn, whatever came of the turns before.

    Args:
        done: the model's turns, executed.
        golds: the accepted calls.
        entry: the official test entry.
        model: name of the model in BFCL's instance names.
        idle_gold: execute the accepted calls of a turn even if the model called nothing in it.
    """
    from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import response_checker, state_checker

    with _GoldTools(entry, model) as gold_tools:
        so_far: list[str] = []
        verdicts = []
        for turn, calls in enumerate(golds):
            if turn >= len(done.turns):
                verdicts.append(TurnVerdict(None, None, None))
                continue
            played = done.turns[turn]
            so_far += _results(played)
            world = None if played.state is None else states.unpack(played.state)
            if world is not None:
                states.set_tables(world.tables)
            expected: list[str] = []
            if calls and (idle_gold or world is not None):
                expected = gold_tools.run(calls)
            if not calls:
                verdicts.append(TurnVerdict(True, None, None))
            elif world is None:
                verdicts.append(TurnVerdict(False, None, None))
            else:
                state = bool(state_checker(states.revive(world), gold_tools.instances)["valid"])
                response = bool(response_checker(so_far, expected, turn)["valid"])
                verdicts.append(TurnVerdict(state and response, state, response))
    return verdicts


def _results(turn: ExecutedTurn) -> list[str]:
    return [result for step in turn.steps for result in step.results]


def _official(spec: GradeSpec, golds: Golds, entry: dict[str, Any], model: str) -> dict[str, Any]:
    """What BFCL's evaluation says, with the model's execution replayed."""
    from bfcl_eval.eval_checker.eval_runner import _evaluate_single_multi_turn_entry
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker

    assert spec.execution is not None
    result: list[Any] | str = [[step.calls for step in turn.steps] for turn in spec.execution.turns]
    if isinstance(spec.result, str) and spec.calls is None:
        result = spec.result
    real = multi_turn_checker.execute_multi_turn_func_call
    with _GoldTools(entry, model) as gold_tools:
        replay = _Replay(spec.execution, model, gold_tools)
        multi_turn_checker.execute_multi_turn_func_call = replay
        try:
            outcome: dict[str, Any] = _evaluate_single_multi_turn_entry(
                _Decoded(), spec.entry_id, result, golds, copy.copy(entry), model, spec.category
            )
        finally:
            multi_turn_checker.execute_multi_turn_func_call = real
    return outcome


class _Decoded:
    """Stands in for the handler where the replies have been decoded already."""

    def decode_execute(self, result: list[str], has_tool_call_tag: bool) -> list[str]:
        return result


class _GoldTools(execution.Toolbox):
    """Fresh tools for the accepted calls, which are trusted: BFCL's executor without the call guard."""

    def __init__(self, entry: dict[str, Any], model: str) -> None:
        super().__init__(entry, f"{model}_ground_truth", grading=True)

    def __enter__(self) -> _GoldTools:
        forget_tools()
        return self

    def __exit__(self, *exception: object) -> None:
        forget_tools()

    def run(self, calls: list[str]) -> list[str]:
        from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_utils import execute_multi_turn_func_call

        results, self.instances = execute_multi_turn_func_call(calls, **self._arguments)
        return [str(result) for result in results]


class _Replay:
    """Stands in for the executor while the official checker runs: recorded results for the model's calls."""

    def __init__(self, done: Execution, model: str, gold_tools: _GoldTools) -> None:
        self._model = model
        self._gold_tools = gold_tools
        self._steps = _recorded(done)

    def __call__(
        self, func_call_list: list[str], model_name: str, **arguments: Any
    ) -> tuple[list[str], dict[str, Any]]:
        if model_name != self._model:
            return self._gold_tools.run(func_call_list), self._gold_tools.instances
        calls, results, world = next(self._steps)
        if calls != func_call_list:
            raise InconsistentVerdictError("the checker asks for other calls than were executed")
        if world is None:
            return results, {}
        # Only the tools as they stand after a turn's last step are looked at.
        states.set_tables(world.tables)
        return results, states.revive(world)


def _recorded(done: Execution) -> Iterator[tuple[list[str], list[str], states.World | None]]:
    for turn in done.turns:
        for position, step in enumerate(turn.steps, 1):
            last = position == len(turn.steps) and turn.state is not None
            yield step.calls, step.results, states.unpack(turn.state or "") if last else None


def forget_tools() -> None:
    """Drop every tool instance that BFCL keeps in this process, and set the shared tables as shipped."""
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils

    for name in [name for name in vars(multi_turn_utils) if name.endswith("_instance")]:
        delattr(multi_turn_utils, name)
    states.set_tables({})

"""A small in-process player of the interactive protocol, on BFCL's own tool classes.

For tests of the turn machine and of credit only: the actions are ours, so tools are called as methods and no
text is evaluated. It stands in for the environment, which runs tools in a worker process.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bfcl_multi_turn.interactive import machine
from bfcl_multi_turn.interactive.parser import parse_response
from bfcl_multi_turn.interactive.records import Code, Interaction, InteractionLog
from bfcl_rollout import official


def load_entry(entry_id: str) -> dict[str, Any]:
    category = entry_id.rsplit("_", 1)[0]
    return next(entry for entry in official.load_entries(category) if entry["id"] == entry_id)


def load_gold(entry_id: str) -> list[list[str]]:
    category = entry_id.rsplit("_", 1)[0]
    path = official.package_dir() / "data/possible_answer" / f"BFCL_v4_{category}.json"
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["id"] == entry_id:
            turns: list[list[str]] = row["ground_truth"]
            return turns
    raise LookupError(entry_id)


class World:
    """The tool instances of one rollout."""

    def __init__(self, entry: dict[str, Any]) -> None:
        official.package_dir()
        with official.project_root():
            from bfcl_eval.constants.executable_backend_config import (
                CLASS_FILE_PATH_MAPPING,
                STATELESS_CLASSES,
            )
        self.instances: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            instance = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                instance._load_scenario(
                    copy.deepcopy(entry["initial_config"].get(name, {})),
                    long_context="long_context" in entry["id"],
                )
            self.instances[name] = instance

    def run(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        for instance in self.instances.values():
            if not name.startswith("_") and hasattr(instance, name):
                try:
                    result = getattr(instance, name)(*args, **kwargs)
                except Exception as error:  # what BFCL's executor reports to the model
                    return f"{machine.EXECUTION_ERROR_PREFIX} {error}"
                if isinstance(result, str):
                    return result
                return json.dumps(result) if isinstance(result, dict) else str(result)
        return f"{machine.EXECUTION_ERROR_PREFIX} name '{name}' is not defined"

    def state(self) -> dict[str, dict[str, Any]]:
        return {
            name: {key: value for key, value in vars(instance).items() if not key.startswith("_")}
            for name, instance in self.instances.items()
        }


def play(entry_id: str, actions: Sequence[str], first_node: int = 2) -> InteractionLog:
    """Play assistant texts against an entry until they, or the user turns, run out.

    Each reply is the assistant node at `first_node`, `first_node + 2`, ... of its trace.
    """
    entry, gold = load_entry(entry_id), load_gold(entry_id)
    model_world, gold_world = World(entry), World(entry)
    state = machine.TurnState()
    interactions: list[Interaction] = []
    scores: list[Any] = [None] * len(gold)
    all_results: list[str] = []
    turn_called = False
    for position, text in enumerate(actions):
        if state.user_turn >= len(gold):
            raise ValueError("the rollout ended before its actions did")
        turn = state.user_turn
        reply = parse_response(text)
        step = machine.plan(state, reply, gold_is_empty=not gold[turn])
        results: list[str] = []
        after, code, closes = step.state, step.code, step.kind == "close"
        if step.kind == "execute":
            results = [model_world.run(call.name, (), call.arguments) for call in step.calls]
            all_results += results
            turn_called = True
            settled = machine.settle(step.state, results)
            after, code, closes = settled.state, settled.code, settled.closes
        if closes:
            expected = [gold_world.run(*_gold_call(call)) for call in gold[turn]]
            if code is None:
                matches = gold_world.state() == model_world.state()
                contained = not (Counter(expected) - Counter(all_results))
                code = 1 if turn_called and matches and contained else 0
            scores[turn] = code
            turn_called = False
        assert code is not None
        interactions.append(machine.record(state, reply, code=code, node=first_node + 2 * position, results=results))
        state = after
    return InteractionLog(protocol="interactive", entry_id=entry_id, turn_scores=scores, interactions=interactions)


def codes(entry_id: str, actions: Sequence[str]) -> list[Code]:
    return play(entry_id, actions).codes


def _gold_call(text: str) -> tuple[str, list[Any], dict[str, Any]]:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    assert isinstance(node.func, ast.Name)
    kwargs = {keyword.arg or "": ast.literal_eval(keyword.value) for keyword in node.keywords}
    return node.func.id, [ast.literal_eval(arg) for arg in node.args], kwargs


def gold_objects(entry_id: str, turn: int) -> list[tuple[str, dict[str, Any]]]:
    """The gold calls of one turn as `(name, arguments)`; they must all be keyword calls."""
    calls = [_gold_call(text) for text in load_gold(entry_id)[turn]]
    assert not any(args for _, args, _ in calls)
    return [(name, kwargs) for name, _, kwargs in calls]

"""Find entries that no model can be expected to solve, from the official data alone.

An entry is listed if its accepted calls

- use a function that is not on offer in their user turn, or an argument that its documents do not have;
- name an identifier (an id, a token, a password, ...) that can be known from nothing: not from the user's words so far
  (whole or in its parts), not from the function documents, not from a result so far, and not from calling any function
  on offer that needs no argument, or one argument that the user's words could fill. It counts only if another value
  leads elsewhere;
- are none, in a user turn that is asked in the same words, after the same conversation, as in `base`, where calls are
  right: one of the two must fail.

Whether accepted calls pass their own checker is another question, which `vf-validate` answers: all 800 do.

The accepted calls are trusted and are executed here as method calls; nothing is evaluated.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bfcl_rollout import official

from bfcl_multi_turn import source
from bfcl_multi_turn.splits import CATEGORIES

_IDENTIFIER = re.compile(r"(_id|_token|_number|^username|^password|^client_secret)$")
_PLACEHOLDER = "no-such-value"

State = dict[str, dict[str, Any]]


class GoldCall(NamedTuple):
    """An accepted call, read."""

    name: str
    args: list[Any]
    kwargs: dict[str, Any]

    def bound(self) -> dict[str, Any]:
        """Arguments by name; positional ones without a name are left out."""
        return dict(zip(source.parameter_names().get(self.name, []), self.args, strict=False)) | self.kwargs


class World:
    """The tools of one conversation."""

    def __init__(self, entry: dict[str, Any], variant: str) -> None:
        official.package_dir()
        with official.project_root():
            from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING, STATELESS_CLASSES
        self.tools: dict[str, Any] = {}
        for name in entry["involved_classes"]:
            tool = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                config = copy.deepcopy(entry["initial_config"].get(name, {}))
                tool._load_scenario(config, long_context=variant == "long_context")
            self.tools[name] = tool

    def run(self, name: str, args: Iterable[Any], kwargs: dict[str, Any]) -> str:
        """Call a public method and return its result as text, an error's text included."""
        tool = next((tool for tool in self.tools.values() if not name.startswith("_") and hasattr(tool, name)), None)
        if tool is None:
            return ""
        try:
            return str(getattr(tool, name)(*args, **kwargs))
        except Exception as error:  # what BFCL's executor tells the model
            return f"Error during execution: {error}"

    def state(self) -> State:
        """What the official checker compares, copied."""
        return {
            name: copy.deepcopy({key: value for key, value in vars(tool).items() if not key.startswith("_")})
            for name, tool in self.tools.items()
        }


def find() -> dict[str, str]:
    """The reason by test id of every entry that is listed."""
    found = {}
    base = list(zip(source.raw_entries("base"), source.gold_calls("base"), strict=True))
    for variant in CATEGORIES:
        entries = zip(source.raw_entries(variant), source.gold_calls(variant), strict=True)
        for family, (entry, golds) in enumerate(entries):
            reason = next(_problems(entry, variant, golds), None)
            if reason is None and variant == "miss_param":
                reason = _contradiction(entry, golds, *base[family])
            if reason is not None:
                found[entry["id"]] = reason
    return found


def _problems(entry: dict[str, Any], variant: str, golds: list[list[str]]) -> Iterator[str]:
    docs = {doc["name"]: doc for name in entry["involved_classes"] for doc in source.function_docs(name)}
    world = World(entry, variant)
    known, words = [json.dumps(list(docs.values()))], ""
    for turn, texts in enumerate(golds):
        asked = " ".join(message["content"] for message in entry["question"][turn])
        known.append(asked)
        words += " " + asked
        held_out = {
            name for when, names in entry.get("missed_function", {}).items() if int(when) > turn for name in names
        }
        offered = {name: doc for name, doc in docs.items() if name not in held_out}
        for index, text in enumerate(texts):
            call = read(text)
            if call.name not in offered:
                yield f"turn {turn}: {call.name} is not on offer"
            for name, value in call.bound().items():
                if name not in source.parameter_names().get(call.name, []):
                    yield f"turn {turn}: {call.name} has no argument {name}"
                elif _IDENTIFIER.search(name) and not (_mentions(known, value) or _spelled(words, value)):
                    unknown = not _mentions(_explore(world, offered, words), value)
                    if unknown and _matters(entry, variant, golds, turn, index, name):
                        yield f"turn {turn}: the {name} of {call.name} can be known from nothing"
            known.append(world.run(*call))


def _contradiction(
    entry: dict[str, Any], golds: list[list[str]], base: dict[str, Any], base_golds: list[list[str]]
) -> str | None:
    for turn, (question, base_question) in enumerate(zip(entry["question"], base["question"], strict=False)):
        if question != base_question:
            return None
        if not golds[turn] and base_golds[turn]:
            return f"turn {turn}: asked in the same words as in {base['id']}, where calls are right"
    return None


def _mentions(texts: Iterable[str], value: Any) -> bool:
    wanted = _letters(str(value))
    return any(wanted in _letters(text) for text in texts)


def _spelled(words: str, value: Any) -> bool:
    """Whether the words hold all the runs of letters and of digits that a value is made of."""
    return all(part in words.lower() for part in re.findall(r"[a-z]+|[0-9]+", str(value).lower()))


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _explore(world: World, offered: dict[str, Any], words: str) -> Iterator[str]:
    """Results of every function that needs no argument, or one text that could be a word of the user's."""
    candidates = sorted(set(re.findall(r"[A-Za-z][\w']+", words)))
    for name, doc in offered.items():
        required = doc["parameters"].get("required") or []
        if not required:
            yield copy.deepcopy(world).run(name, (), {})
        elif len(required) == 1 and doc["parameters"]["properties"][required[0]]["type"] == "string":
            for word in candidates:
                yield copy.deepcopy(world).run(name, (), {required[0]: word})


def _matters(entry: dict[str, Any], variant: str, golds: list[list[str]], turn: int, index: int, argument: str) -> bool:
    """Whether a conversation with another value of one argument gives other results or another state."""
    outcomes = []
    for replaced in (False, True):
        world = World(entry, variant)
        results = []
        for t, texts in enumerate(golds):
            for i, text in enumerate(texts):
                call = read(text)
                if replaced and (t, i) == (turn, index):
                    call = GoldCall(call.name, [], call.bound() | {argument: _PLACEHOLDER})
                results.append(world.run(*call))
        outcomes.append((results, world.state()))
    return outcomes[0] != outcomes[1]


def read(text: str) -> GoldCall:
    """Read an accepted call."""
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call), text
    kwargs = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords if keyword.arg}
    return GoldCall(ast.unparse(node.func), [ast.literal_eval(value) for value in node.args], kwargs)

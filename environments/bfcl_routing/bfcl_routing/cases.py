"""Cases: a request, the functions offered with it, and the function that is right as a first step.

A case is the label side of the environment. What a model sees of it is decided by a view (`bfcl_routing.view`).
"""

from __future__ import annotations

import functools
from typing import Any, get_args

from bfcl_rollout.errors import SetupError
from pydantic import BaseModel, ConfigDict

from bfcl_routing import labels, source
from bfcl_routing.hashing import request_key, sha256_json
from bfcl_routing.manifest import ManifestCase, Split, Stratum, Suite, load_manifest

META_IDS = ("no_tool", "clarify", "cannot_answer")
"""The three no-function actions of the pilots, in their order."""
SUITES: tuple[Suite, ...] = get_args(Suite)


class Case(BaseModel):
    """One routing decision with its label."""

    model_config = ConfigDict(frozen=True)

    id: str
    category: str
    split: Split
    stratum: Stratum
    request: str
    functions: tuple[dict[str, Any], ...]
    """Offered functions as the official package has them: name, description, parameters."""
    gold: tuple[str, ...]
    """Functions that are right; empty if none of them is."""
    reviewed: bool = True
    """Somebody looked at the label. False for negatives outside the pilots."""

    @property
    def positive(self) -> bool:
        """Whether a function should be called."""
        return bool(self.gold)

    @property
    def names(self) -> list[str]:
        """Names of the offered functions, in order."""
        return [str(f["name"]) for f in self.functions]

    def content_sha256(self) -> str:
        """Hash of everything the case was built from."""
        return sha256_json({"request": self.request, "functions": self.functions, "gold": self.gold})


def stratum_of(n_functions: int, positive: bool) -> Stratum:
    """The stratum of a case with so many functions."""
    if positive:
        return "one_tool_call" if n_functions == 1 else "multi_tool_call"
    return "one_tool_no_call" if n_functions == 1 else "multi_tool_no_call"


def gold_functions(category: str, reference: Any, offered: list[str]) -> tuple[str, ...]:
    """Functions that are right as a first step, in offered order, each once.

    Rows with several calls (the parallel categories) accept each function they call.

    Raises:
        ValueError: the reference calls a function that is not offered.
    """
    if category.endswith("irrelevance"):
        return ()
    called = labels.called_functions(reference)
    missing = [name for name in called if name not in offered]
    if missing or not called:
        raise ValueError(f"the reference calls {missing or 'nothing'}, which is not offered")
    return tuple(name for name in offered if name in called)


def build_case(entry: ManifestCase, *, check_content: bool = True) -> Case:
    """The case of a manifest entry, from the installed package, checked against the entry.

    Args:
        entry: the manifest entry.
        check_content: compare the content hash too. Off only where the manifest is being made.

    Raises:
        SourceMismatchError: the row, its label or its content differ; the message names the case.
    """
    rows = source.package_rows(source.question_file(entry.category))
    where = f"case {entry.id} ({source.question_file(entry.category)}, row {entry.row_number})"
    if entry.row_number > len(rows) or rows[entry.row_number - 1]["id"] != entry.row_id:
        raise source.SourceMismatchError(f"{where}: row {entry.row_id} is not there")
    row = rows[entry.row_number - 1]
    request = source.request_text(row)
    if entry.drop_text is not None:
        if request.count(entry.drop_text) != 1:
            raise source.SourceMismatchError(f"{where}: the recorded edit does not apply")
        request = request.replace(entry.drop_text, "")
    functions = tuple(row["function"])
    try:
        gold = gold_functions(
            entry.category, _answers(entry.category).get(entry.row_id), [f["name"] for f in functions]
        )
    except ValueError as error:
        raise source.SourceMismatchError(f"{where}: {error}") from error
    case = Case(
        id=entry.id,
        category=entry.category,
        split=entry.split,
        stratum=stratum_of(len(functions), bool(gold)),
        request=request,
        functions=functions,
        gold=gold,
        reviewed=entry.split == "test" or bool(gold),
    )
    if (case.gold, case.stratum) != (entry.gold, entry.stratum):
        raise source.SourceMismatchError(f"{where}: label {case.gold or 'none'}, expected {entry.gold or 'none'}")
    if check_content and case.content_sha256() != entry.content_sha256:
        raise source.SourceMismatchError(f"{where}: request, functions or label have changed")
    return case


@functools.cache
def _answers(category: str) -> dict[str, Any]:
    return source.answers(category)


@functools.cache
def load_cases(suite: Suite, split: Split = "test") -> tuple[Case, ...]:
    """The cases of one split, built from the installed package and verified.

    Args:
        suite: which pilot (`split="test"` only).
        split: `test` is the frozen pilot; `train` and `dev` are other rows, the same for both suites.

    Raises:
        SourceMismatchError: a file or a case is not what the manifest was made from.
        LeakError: a training or development row is also in a pilot.
    """
    manifest = load_manifest(suite if split == "test" else "pool")
    source.verify_files(manifest.files)
    cases = tuple(build_case(entry) for entry in manifest.cases if entry.split == split)
    if split != "test":
        refuse_leaks(cases)
    return cases


class LeakError(SetupError):
    """A held-out case is among the training or development rows."""


def refuse_leaks(cases: tuple[Case, ...]) -> None:
    """Check that no training or development case repeats a pilot's row, request or function.

    Raises:
        LeakError: one does; the message names it.
    """
    pilots = [case for suite in SUITES for case in load_cases(suite)]
    rows = {entry.row_id for suite in SUITES for entry in load_manifest(suite).cases}
    requests = {request_key(case.request) for case in pilots}
    names = {name for case in pilots for name in case.names}
    for case in cases:
        if case.split == "test" or case.id in rows or request_key(case.request) in requests:
            raise LeakError(f"case {case.id} of split {case.split} is a pilot case")
        if shared := names.intersection(case.names):
            raise LeakError(f"case {case.id} offers {sorted(shared)[0]}, which a pilot case offers")

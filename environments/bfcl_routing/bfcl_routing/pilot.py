"""How the V1 pilot was made: conversion of the V1 files and selection of 250 cases, both reproducible.

The conversion turns every row of a V1 source into a record with options, label and warnings; the selection applies
the pilot's rules. The source is a checkout of the Gorilla repository at the pinned commit, or the installed official
package, whose files hold the same rows in another shape. References are parsed as syntax and never executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from bfcl_routing import labels, source
from bfcl_routing.cards import short_card
from bfcl_routing.cases import META_IDS
from bfcl_routing.hashing import compact_json, rank_key, request_key
from bfcl_routing.wording import Wording

SEED = "bfcl-v1-jev-routing-250-v1"
QUOTAS = {
    "multiple_function": 120,
    "executable_multiple_function": 30,
    "relevance": 50,
    "simple": 35,
    "executable_simple": 15,
}
"""Cases per category, in the order in which categories are selected and written."""
EXCLUDED = {
    "simple_305": "the offered function does not do what is asked",
    "simple_363": "its V1 reference names no offered function; the package repaired that, V1's rules drop the row",
}

PACKAGE_CATEGORIES = {
    "multiple_function": "multiple",
    "executable_multiple_function": "exec_multiple",
    "relevance": "irrelevance",
    "simple": "simple_python",
    "executable_simple": "exec_simple",
}
"""The official package's name for each selected V1 category. Row i of one is row i of the other."""
_ONE_FUNCTION = ("relevance", "simple", "executable_simple")
_PREFIX = "gorilla_openfunctions_v1_test_"
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

Record = dict[str, Any]


class SourceRow(NamedTuple):
    """One V1 row, whatever it was read from."""

    category: str
    row_number: int
    id: str
    question: str
    functions: Any
    """As in the source: an object, a list, or an empty string."""
    reference: Any
    execution_result_type: Any
    question_file: str
    answer_file: str | None

    @property
    def offered(self) -> list[dict[str, Any]]:
        """The functions as a list."""
        if isinstance(self.functions, dict):
            return [self.functions]
        return list(self.functions or [])


def source_inventory() -> dict[str, str]:
    """SHA-256 of each V1 source file, by path inside the checkout's data folder."""
    text = resources.files("bfcl_routing").joinpath("data", "gorilla_v1.json").read_text(encoding="utf-8")
    files: dict[str, str] = json.loads(text)["files"]
    return files


def checkout_rows(folder: Path) -> Iterator[SourceRow]:
    """All 2,000 rows of a V1 data folder, file by file in alphabetical order, after checking every file's hash.

    Raises:
        SourceMismatchError: a file is missing or differs.
    """
    inventory = {n: h for n, h in source_inventory().items() if n.endswith(".json")}
    source.verify_files(inventory, folder)
    for name in sorted(n for n in inventory if "/" not in n):
        category = name.removeprefix(_PREFIX).removesuffix(".json")
        answer_file = f"possible_answer/{name}" if f"possible_answer/{name}" in inventory else None
        answers = {r["id"]: r["ground_truth"] for r in source.read_rows(folder / answer_file)} if answer_file else {}
        for number, row in enumerate(source.read_rows(folder / name), start=1):
            case_id = row.get("id", f"{category}_{number - 1}")
            yield SourceRow(
                category,
                number,
                case_id,
                row["question"],
                row["function"],
                answers.get(case_id, row.get("ground_truth")),
                row.get("execution_result_type"),
                name,
                answer_file,
            )


def package_rows() -> Iterator[SourceRow]:
    """The rows of the five selected categories as the installed package has them, in V1's shape."""
    for category, theirs in PACKAGE_CATEGORIES.items():
        answers = source.answers(theirs)
        for number, row in enumerate(source.package_rows(source.question_file(theirs)), start=1):
            functions = row["function"][0] if category in _ONE_FUNCTION else row["function"]
            yield SourceRow(
                category,
                number,
                f"{category}_{number - 1}",
                source.request_text(row),
                functions,
                answers.get(row["id"]),
                None,
                source.question_file(theirs),
                source.answer_file(theirs),
            )


class Label(NamedTuple):
    """What a reference says about the first step."""

    names: list[str]
    """Called functions, one a call."""
    calls: list[Record]
    warnings: list[str]


def read_label(row: SourceRow) -> Label:
    """Resolve a row's reference against the offered functions. A repaired or unknown name is a warning."""
    offered = [str(f["name"]) for f in row.offered]
    names, calls, warnings = [], [], []
    for key, arguments, expression in _reference_entries(row.reference):
        name, resolution = _resolve(key, offered)
        if resolution == "unresolved" or resolution == "last_part":
            warnings.append(f"reference name {key!r}: {resolution}")
        names.append(name)
        calls.append(
            {
                "source_key": key,
                "tool_id": name,
                "arguments": arguments,
                "expression": expression,
                "resolution": resolution,
            }
        )
    bad = [n for n in offered if not _NAME.fullmatch(n) or n in META_IDS]
    if bad or len(set(offered)) != len(offered):
        warnings.append(f"unusable function names: {bad or offered}")
    return Label(names, calls, warnings)


def _reference_entries(reference: Any) -> Iterator[tuple[str, Any, str | None]]:
    if isinstance(reference, dict):
        yield from ((key, value, None) for key, value in reference.items())
        return
    for entry in reference or []:
        if isinstance(entry, str):
            yield labels.called_name(entry), None, entry
        else:
            yield from ((key, value, None) for key, value in entry.items())


def _resolve(key: str, offered: list[str]) -> tuple[str, str]:
    if key in offered:
        return key, "exact"
    # V1 numbers repeated calls: `name_1`, `name 1`, `name_2`.
    if (stem := re.sub(r"[_ ]\d+$", "", key)) in offered:
        return stem, "numbered"
    tails = [name for name in offered if name.rpartition(".")[2] == key]
    return (tails[0], "last_part") if len(tails) == 1 else (key, "unresolved")


def convert_row(row: SourceRow, wording: Wording) -> Record:
    """One converted record, its keys in the order of the original format.

    `jev` holds the decision as the pilot's two families of decision models read it; the rest is provenance and label.
    """
    label, functions = read_label(row), row.offered
    negative = row.category == "relevance"
    if negative:
        kind, next_ids = "no_call", [META_IDS[0]]
    else:
        kind = {0: "no_reference", 1: "single_call"}.get(len(label.names), "several_calls")
        next_ids = list(dict.fromkeys(label.names))
    names = [str(f["name"]) for f in functions]
    unique = len(next_ids) == 1 and (negative or next_ids[0] in names)
    return {
        "id": row.id,
        "category": row.category,
        "kind": kind,
        "scope": "first_action_only",
        "score_eligible": bool(unique and functions and not label.warnings),
        "label_source": _label_source(row),
        "source": {
            "question_file": row.question_file,
            "answer_file": row.answer_file,
            "row_number": row.row_number,
            "source_id": row.id,
            "question": row.question,
            "functions": row.functions,
            "ground_truth": row.reference,
            "execution_result_type": row.execution_result_type,
        },
        "adapter": "single_user_text",
        "jev": _decision(row, functions, wording),
        "gold_next_action_ids": next_ids,
        "gold_call_names": label.names,
        "gold_calls": label.calls,
        "warnings": label.warnings,
    }


def _label_source(row: SourceRow) -> str:
    if row.category == "relevance":
        return "benchmark_no_tool_category"
    if row.reference is None:
        return "none"
    return "possible_answer" if row.answer_file else "inline_ground_truth"


def _decision(row: SourceRow, functions: list[dict[str, Any]], wording: Wording) -> Record:
    cards = dict(wording.meta)
    cards |= {f["name"]: short_card(f.get("description") or "", f["name"], len(functions)) for f in functions}
    state = wording.state(row.question)
    options = [
        {"id": i, "label": i, "description": card, "kind": "meta" if i in META_IDS else "tool"}
        for i, card in cards.items()
    ]
    question = {"type": "choice", "instructions": wording.instruction, "criteria": cards}
    request = " ".join(row.question.split())
    return {
        "option_ids": list(cards),
        "options": options,
        "laya": {"state": state, "questions": {"next": question}},
        "macjev": {
            "state": {"request": request, "actions_this_turn": [], "time_zone": "UTC"},
            "question": {"t": "choice", "ins": wording.instruction, "crit": cards},
        },
    }


def allowlist() -> frozenset[str]:
    """Ids of the `relevance` rows that the pilot's author reviewed and kept."""
    text = resources.files("bfcl_routing").joinpath("data", "gorilla_v1.json").read_text(encoding="utf-8")
    return frozenset(json.loads(text)["relevance_allowlist"])


def select(records: Iterable[Record]) -> list[Record]:
    """The pilot's 250 of the converted records, in its order.

    Category by category: eligible rows by rank of their id, skipping requests already taken in any category, until
    the quota is full; written in source order.

    Raises:
        ValueError: a category cannot fill its quota.
    """
    allowed, taken = allowlist(), set[str]()
    pools: dict[str, list[Record]] = {category: [] for category in QUOTAS}
    for record in records:
        usable = record["score_eligible"] and record["id"] not in EXCLUDED
        if record["category"] in pools and usable:
            pools[record["category"]].append(record)
    chosen: list[Record] = []
    for category, quota in QUOTAS.items():
        picked: list[Record] = []
        for record in sorted(pools[category], key=lambda r: (rank_key(SEED, r["id"]), r["id"])):
            if category == "relevance" and record["id"] not in allowed:
                continue
            key = request_key(record["source"]["question"])
            if key not in taken and len(picked) < quota:
                taken.add(key)
                picked.append(record)
        if len(picked) < quota:
            raise ValueError(f"{category}: {len(picked)} eligible rows for a quota of {quota}")
        chosen += sorted(picked, key=lambda r: r["source"]["row_number"])
    return chosen


def to_jsonl(records: Iterable[Record]) -> str:
    """Records in the original file format: compact JSON, UTF-8, one line feed a row."""
    return "".join(compact_json(record) + "\n" for record in records)

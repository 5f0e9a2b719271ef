"""How the committed manifests are made. Needed to change them; loading a suite does not come here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bfcl_rollout import official

from bfcl_routing import pilot, source
from bfcl_routing.cases import Case, build_case, gold_functions, load_cases, stratum_of
from bfcl_routing.hashing import sha256_text, word_key
from bfcl_routing.lexical import CATEGORIES
from bfcl_routing.manifest import Manifest, ManifestCase, Split, Suite
from bfcl_routing.view import View, show, visible_sha256
from bfcl_routing.wording import frozen_wording, read_frozen_rows

DROPPED_TEXT = {"multiple_function_64": ", June01 2023"}
"""Text that the official package added to a V1 request, by case id."""
DEV_SHARE = 5
"""One catalogue family in so many becomes development data."""


def build_pilot(suite: Suite, frozen_file: Path) -> Manifest:
    """The manifest of a pilot, from its original cases and the installed package.

    V1's ids come from the pilot's selection rules; V4 Live's are those of the original file, whose review list is not
    public.
    """
    wording = frozen_wording(suite, frozen_file)
    ids = (
        [record["id"] for record in pilot.select(pilot.convert_row(r, wording) for r in pilot.package_rows())]
        if suite == "v1"
        else [str(row["id"]) for row in read_frozen_rows(frozen_file)]
    )
    entries = []
    for case_id in ids:
        category, number = _locate(suite, case_id)
        entry, case = _entry(case_id, category, number, DROPPED_TEXT.get(case_id), "test", None)
        shown = show(case, View(suite=suite, wording="frozen"), wording).shown
        entries.append(entry.model_copy(update={"visible_sha256": visible_sha256(shown)}))
    aggregate = sha256_text("".join(f"{e.id}\t{e.visible_sha256}\n" for e in entries))
    return _manifest(suite, entries, aggregate)


def _locate(suite: Suite, case_id: str) -> tuple[str, int]:
    prefix, _, number = case_id.rpartition("_")
    if suite == "v1":
        return pilot.PACKAGE_CATEGORIES[prefix], int(number) + 1
    rows = source.package_rows(source.question_file(prefix))
    return prefix, next(i for i, row in enumerate(rows, start=1) if row["id"] == case_id)


def build_pool() -> Manifest:
    """The manifest of the training and development rows.

    Every labelled single-turn row with one message and at least one function, except: requests that a pilot has or
    that came before, and whole catalogue families that a pilot offers a function of. A family holds the rows that
    share a function name, directly or through other rows; families go to `dev` or `train` as a whole, by hash.
    """
    pilots = [*load_cases("v1"), *load_cases("v4_live")]
    pilot_names = {name for case in pilots for name in case.names}
    families = _families()
    barred = {families[name] for name in pilot_names}
    seen = {word_key(case.request) for case in pilots}
    entries = []
    for category, number, row in _usable_rows():
        key = word_key(source.request_text(row))
        if key in seen:
            continue
        seen.add(key)
        family = families[row["function"][0]["name"]]
        if family in barred or category == "live_relevance":
            # `live_relevance` says that some function applies, not which.
            continue
        digest = sha256_text(f"bfcl-routing-pool\0{family}")
        split: Split = "dev" if int(digest[:8], 16) % DEV_SHARE == 0 else "train"
        try:
            entries.append(_entry(row["id"], category, number, None, split, digest[:12])[0])
        except ValueError:
            # A reference that calls a function which is not offered labels nothing.
            continue
    return _manifest("pool", entries, None)


def _usable_rows() -> list[tuple[str, int, dict[str, Any]]]:
    return [
        (category, number, row)
        for category in CATEGORIES
        for number, row in enumerate(source.package_rows(source.question_file(category)), start=1)
        if row.get("function") and [m["role"] for m in source.messages(row)] == ["user"]
    ]


def _families() -> dict[str, str]:
    """The family of each function name: the smallest name it is linked to by sharing rows."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        while parent.setdefault(name, name) != name:
            name = parent[name]
        return name

    for category in CATEGORIES:
        for row in source.package_rows(source.question_file(category)):
            roots = sorted({root(f["name"]) for f in row.get("function") or ()})
            for other in roots[1:]:
                parent[other] = roots[0]
    members: dict[str, list[str]] = defaultdict(list)
    for name in list(parent):
        members[root(name)].append(name)
    return {name: min(group) for group in members.values() for name in group}


def _entry(
    case_id: str, category: str, number: int, drop_text: str | None, split: Split, family: str | None
) -> tuple[ManifestCase, Case]:
    row = source.package_rows(source.question_file(category))[number - 1]
    names = [f["name"] for f in row["function"]]
    gold = gold_functions(category, source.answers(category).get(row["id"]), names)
    entry = ManifestCase(
        id=case_id,
        category=category,
        row_number=number,
        row_id=row["id"],
        stratum=stratum_of(len(names), bool(gold)),
        gold=gold,
        content_sha256="",
        drop_text=drop_text,
        split=split,
        family=family,
    )
    case = build_case(entry, check_content=False)
    return entry.model_copy(update={"content_sha256": case.content_sha256()}), case


def _manifest(name: str, entries: Sequence[ManifestCase], aggregate: str | None) -> Manifest:
    categories = dict.fromkeys(entry.category for entry in entries)
    names = [source.question_file(c) for c in categories]
    names += [a for c in categories if (a := source.answer_file(c)) is not None]
    return Manifest(
        name=name,
        bfcl_eval=official.VERSION,
        files={n: official.sha256(source.data_dir() / n) for n in names},
        visible_aggregate_sha256=aggregate,
        cases=tuple(entries),
    )

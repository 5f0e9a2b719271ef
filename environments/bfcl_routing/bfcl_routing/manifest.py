"""The committed manifests: which rows make up a suite, their labels and hashes. They hold no BFCL text.

`v1.json` and `v4_live.json` are the two frozen pilots, `pool.json` the rows for training and development. One
exception to "no text": a recorded edit that restores the one V1 request which the official package has reworded.
"""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Literal

from pydantic import BaseModel, ConfigDict

from bfcl_routing.hashing import compact_json

Suite = Literal["v1", "v4_live"]
Split = Literal["test", "train", "dev"]
Stratum = Literal["multi_tool_call", "one_tool_call", "one_tool_no_call", "multi_tool_no_call"]
MANIFESTS = ("v1", "v4_live", "pool")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ManifestCase(_Model):
    """One row of a suite."""

    id: str
    """Stable case id. For V1 the id of the original dataset, which differs from the package's row id."""
    category: str
    """The official package's category that holds the row."""
    row_number: int
    """Position in the category's file, from 1."""
    row_id: str
    """The row's id in the official package."""
    stratum: Stratum
    gold: tuple[str, ...]
    """Functions that are right as a first step; empty if none is. More than one only in the training pool."""
    content_sha256: str
    """Hash of request, functions and gold, as `content_sha256()` of the case."""
    visible_sha256: str | None = None
    """Hash of the frozen view: `{state, instruction, options: [{id, description, kind}]}` (pilots only)."""
    drop_text: str | None = None
    """Text that the official package added to the request and that is taken out again."""
    split: Split = "test"
    family: str | None = None
    """Catalogue family: rows that share a function name, directly or through others (pool only)."""


class Manifest(_Model):
    """A suite's rows and what they were made from."""

    name: str
    bfcl_eval: str
    """Version of the official package."""
    files: dict[str, str]
    """SHA-256 by path inside the official package's data folder."""
    visible_aggregate_sha256: str | None = None
    """SHA-256 over the lines `id TAB visible_sha256 LF` in order (pilots only)."""
    cases: tuple[ManifestCase, ...]

    def dump(self) -> str:
        """The committed form: a header line, then one case a line."""
        header = self.model_dump(mode="json", exclude={"cases"}, exclude_none=True)
        lines = [c.model_dump(mode="json", exclude_defaults=True, exclude_none=True) for c in self.cases]
        body = ",\n".join(compact_json(line) for line in lines)
        return f'{compact_json(header)[:-1]},"cases":[\n{body}\n]}}\n'


@functools.cache
def load_manifest(name: str) -> Manifest:
    """The committed manifest `v1`, `v4_live` or `pool`.

    Raises:
        ValueError: there is no manifest of that name.
    """
    if name not in MANIFESTS:
        raise ValueError(f"no manifest {name!r}; there are {', '.join(MANIFESTS)}")
    text = resources.files("bfcl_routing").joinpath("data", f"{name}.json").read_text(encoding="utf-8")
    return Manifest.model_validate(json.loads(text))

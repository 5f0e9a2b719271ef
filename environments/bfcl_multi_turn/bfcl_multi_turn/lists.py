"""`bfcl-rollout multi-turn-lists`: make the shipped split and the list of unsolvable entries again, and compare."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bfcl_rollout import official

from bfcl_multi_turn import source, splits, unsolvable

_FOLDER = Path(__file__).parent


def main(argv: list[str]) -> int:
    """Exit status 0 if what is shipped is what the rules give, 1 if not."""
    parser = argparse.ArgumentParser(prog="bfcl-rollout multi-turn-lists", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the lists instead of comparing them")
    arguments = parser.parse_args(argv)
    different = False
    for name, made in make().items():
        path = _FOLDER / name
        text = json.dumps(made, indent=1) + "\n"
        if arguments.write:
            path.write_text(text)
        same = path.read_text() == text
        different |= not same
        print(f"{name}: {'as the rules give' if same else 'DIFFERENT from what the rules give'}")
    return int(different)


def make() -> dict[str, dict[str, Any]]:
    """Contents of the two files by name, from the installed official package."""
    split = splits.derive(source.all_entries())
    return {
        "splits.json": {
            "bfcl_eval": official.VERSION,
            "rule": "bfcl_multi_turn.splits",
            "sha256": split.sha256,
            "families": split.families,
            "family_sha256": split.family_sha256,
        },
        "unsolvable.json": {
            "bfcl_eval": official.VERSION,
            "rule": "bfcl_multi_turn.unsolvable",
            "entries": unsolvable.find(),
        },
    }

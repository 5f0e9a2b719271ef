"""Files of one JSON value a line.

A line ends at a line feed and nowhere else. `str.splitlines` also cuts at U+2028 and U+0085, which JSON leaves as they
are inside its strings, and models do write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bfcl_rollout.errors import SetupError


def read(path: Path, *, unfinished: bool = False) -> Iterator[Any]:
    """The values of a file, one at a time; blank lines are skipped.

    Args:
        path: the file.
        unfinished: whether the last line may be cut short, as a killed run leaves it; it is then left out.

    Raises:
        SetupError: the file cannot be read, or a line is not JSON.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    value = json.loads(line)
                except ValueError:
                    if unfinished and not line.endswith(b"\n"):
                        return
                    raise SetupError(f"{path}, line {number}: not JSON") from None
                yield value
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None

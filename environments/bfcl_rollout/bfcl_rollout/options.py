"""Checks shared by the environments' options."""

from __future__ import annotations

from collections.abc import Sequence


def known_names(what: str, names: Sequence[str], known: Sequence[str]) -> list[str]:
    """`names` in the order of `known`, each once.

    Raises:
        ValueError: a name is not known, or there is none; the message lists the known ones.
    """
    if not names:
        raise ValueError(f"no {what} selected; known: {', '.join(known)}")
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
    return [name for name in known if name in names]

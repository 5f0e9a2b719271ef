"""Which function a reference calls first. References are read as data or parsed as syntax, never executed.

BFCL writes references in three ways: a map from function name to argument options (V1), a list of such one-key maps
(V4), and, for the executable categories, Python call strings.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any


class UnreadableReferenceError(ValueError):
    """A reference string is not a plain call expression."""


def called_name(expression: str) -> str:
    """The dotted name that a Python call string calls.

    The text is parsed as one expression and only its outermost target is looked at.

    Raises:
        UnreadableReferenceError: it does not parse, is not a call, or its target is more than a dotted name.
    """
    try:
        node = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnreadableReferenceError(f"not an expression: {expression[:80]!r}") from error
    if not isinstance(node, ast.Call):
        raise UnreadableReferenceError(f"not a call: {expression[:80]!r}")
    parts: list[str] = []
    target: ast.expr = node.func
    while isinstance(target, ast.Attribute):
        parts.append(target.attr)
        target = target.value
    if not isinstance(target, ast.Name):
        raise UnreadableReferenceError(f"the call's target is not a name: {expression[:80]!r}")
    return ".".join([target.id, *reversed(parts)])


def called_functions(reference: Any) -> list[str]:
    """Names called by a reference, in order, one entry a call.

    Args:
        reference: a map `{name: arguments}`, a list of one-key maps, a list of call strings, or None.

    Raises:
        UnreadableReferenceError: an entry has another shape.
    """
    if reference is None:
        return []
    if isinstance(reference, Mapping):
        return [str(name) for name in reference]
    if not isinstance(reference, Sequence) or isinstance(reference, str):
        raise UnreadableReferenceError(f"unexpected reference: {type(reference).__name__}")
    names: list[str] = []
    for entry in reference:
        if isinstance(entry, str):
            names.append(called_name(entry))
        elif isinstance(entry, Mapping) and len(entry) == 1:
            names.extend(str(name) for name in entry)
        else:
            raise UnreadableReferenceError(f"unexpected entry in a reference: {str(entry)[:80]!r}")
    return names

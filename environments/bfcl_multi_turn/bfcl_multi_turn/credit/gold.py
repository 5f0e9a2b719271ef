"""Gold calls: from BFCL's Python call strings to names and arguments. Parsed with `ast`, never evaluated."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

_SCALARS = frozenset({str, int, float, bool, type(None)})

ParameterNames = Mapping[str, Sequence[str]]
"""Parameter names, in order, by function name."""


class GoldError(ValueError):
    """A gold call that cannot be read."""


class GoldCall(NamedTuple):
    """One reference call."""

    name: str
    arguments: dict[str, Any]
    """Plain JSON values by parameter name."""


def parse_gold(text: str, parameters: ParameterNames, positional: Literal["bind", "drop"] = "bind") -> GoldCall:
    """Read one call string such as `sort('final_report.pdf')`.

    Args:
        text: a Python call of a plain name with literal arguments.
        parameters: where positional arguments find their names; used only if there are any.
        positional: bind positional arguments to parameter names, or lose them as the published code does.

    Raises:
        GoldError: the text is no such call, or a positional argument has no parameter to go to.
    """
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise GoldError(f"gold call {text!r}: {error}") from error
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        raise GoldError(f"gold call {text!r} is not a call of a named function")
    name = ast.unparse(node.func)
    arguments: dict[str, Any] = {}
    try:
        if positional == "bind" and node.args:
            arguments.update(_bind(name, [ast.literal_eval(value) for value in node.args], parameters))
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg in arguments:
                raise GoldError(f"argument {keyword.arg!r} is unpacked or given twice")
            arguments[keyword.arg] = ast.literal_eval(keyword.value)
    except (ValueError, TypeError, SyntaxError) as error:
        raise GoldError(f"gold call {text!r}: {error}") from error
    return GoldCall(name, {key: plain(value) for key, value in arguments.items()})


def plain(value: Any) -> Any:
    """The value in JSON's terms: tuples become lists, object keys become strings."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value


def _bind(name: str, values: Sequence[Any], parameters: ParameterNames) -> dict[str, Any]:
    names = parameters.get(name)
    if names is None:
        raise GoldError(f"no parameter names known for {name}")
    if len(values) > len(names):
        raise GoldError(f"{len(values)} positional arguments for {len(names)} parameters")
    return dict(zip(names, values, strict=False))

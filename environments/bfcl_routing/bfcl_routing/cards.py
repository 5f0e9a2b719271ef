"""What a model is told about one function: its card."""

from __future__ import annotations

from typing import Any, Literal

from bfcl_routing.hashing import collapse, compact_json

CardPolicy = Literal["suite", "short120", "full", "schema", "name"]
"""`suite`: the pilot's own (`short120` for V1, `full` for V4 Live). `short120`: the description cut as V1 cuts it.
`full`: the whole description. `schema`: the whole description and the parameter schema. `name`: nothing."""

_LONGEST, _SHORTEST, _BUDGET = 120, 48, 2400
_TYPES = {"dict": "object", "float": "number", "tuple": "array"}


def card_limit(n_tools: int) -> int:
    """Characters of a V1 card: 2400 shared by the functions, at least 48 and at most 120 each."""
    return min(_LONGEST, max(_SHORTEST, _BUDGET // max(1, n_tools)))


def short_card(description: str, name: str, n_tools: int) -> str:
    """A description cut to V1's limit, back to the last space, without trailing punctuation.

    An empty description becomes a line that names the function; a first word longer than the limit is cut hard.
    """
    text = collapse(description) or f"Call the function {name}."
    limit = card_limit(n_tools)
    if len(text) <= limit:
        return text
    cut = text[:limit].rpartition(" ")[0].rstrip(" ,;:")
    return cut or text[:limit]


def render_card(function: dict[str, Any], policy: CardPolicy, n_tools: int) -> str:
    """The text of a function's card. `policy` must not be `suite`."""
    name, description = str(function["name"]), str(function.get("description") or "")
    if policy == "name":
        return ""
    if policy == "short120":
        return short_card(description, name, n_tools)
    full = collapse(description) or f"Call the function {name}."
    if policy == "schema":
        return f"{full} Parameters: {compact_json(json_schema(function.get('parameters') or {}))}"
    return full


def json_schema(schema: Any) -> Any:
    """BFCL's parameter schema as JSON Schema: Python type names replaced, `any` dropped, `optional` dropped.

    Only the value of a `type` key that is text is a type: a parameter may itself be called `type`.
    """
    if isinstance(schema, list):
        return [json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            out[key] = {name: json_schema(item) for name, item in value.items()}
        elif key == "type" and isinstance(value, str):
            if value.lower() != "any":
                out[key] = _TYPES.get(value.lower(), value.lower())
        elif key in ("default", "enum", "const", "example", "examples"):
            out[key] = value
        elif key != "optional":
            out[key] = json_schema(value)
    return out

"""The call guard: which of a model's calls BFCL may evaluate.

BFCL turns calls into Python text and evaluates it. Argument values are quoted, but tool names and argument names are
not, so a name can be any expression. The guard reads the text as syntax, after BFCL's own rewriting, and lets it
through only if it is a call of a public method of the instances in play, with keyword names and literal arguments.
Anything else is answered here, with the text that BFCL would have produced for the same call if nothing but those
methods existed: every call that a well-meaning model can make behaves exactly as it does officially.

Pure functions: no BFCL import, nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

DENIED = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
"""Function names that BFCL itself refuses by name (`multi_turn_utils.py:75`)."""

PREFIX = "Error during execution: "
_MAX_DIGITS = 4300
_MAX_TEXT = 100_000
_MAX_POWER = 256


def refusal(call: str, methods: Mapping[str, Collection[str]], *, nested: bool) -> str | None:
    """The tool result for a call that must not be evaluated, or None if it may be.

    Args:
        call: Python text of the call, with instance names in front of method names as BFCL puts them.
        methods: public method names by instance name.
        nested: whether a literal may contain further calls of those methods; BFCL's prompting decoder makes such
            text, its native decoder never does.
    """
    name = call.split("(")[0]
    if "." in name:
        name = name.split(".")[1]
    if name in DENIED:
        return f"{PREFIX}Function call {name} is not allowed."
    source = call.lstrip(" \t")
    try:
        tree = ast.parse(source, "<string>", "eval")
    except Exception as error:  # whatever the parser says about this text is what eval() would say
        return f"{PREFIX}{error}"
    problem = _call_problem(tree.body, methods, nested=nested)
    if problem is None:
        return None
    try:
        # Some syntax errors (a keyword given twice, an assignment inside) only show when compiled.
        compile(source, "<string>", "eval")
    except Exception as error:
        return f"{PREFIX}{error}"
    return f"{PREFIX}{problem}"


def _call_problem(node: ast.expr, methods: Mapping[str, Collection[str]], *, nested: bool) -> str | None:
    if not isinstance(node, ast.Call):
        return _name_problem(node)
    function = node.func
    known = (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.attr in methods.get(function.value.id, ())
    )
    if not known:
        return _name_problem(function)
    for value in node.args:
        if problem := _literal_problem(value, methods, nested=nested):
            return problem
    for keyword in node.keywords:
        if keyword.arg is None:
            return _name_problem(keyword.value)
        if problem := _literal_problem(keyword.value, methods, nested=nested):
            return problem
    return None


def _literal_problem(node: ast.expr, methods: Mapping[str, Collection[str]], *, nested: bool) -> str | None:
    match node:
        case ast.Constant():
            return None
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() | complex())):
            return None
        case ast.List() | ast.Tuple() | ast.Set():
            children: list[ast.expr | None] = list(node.elts)
        case ast.Dict():
            children = [child for pair in zip(node.keys, node.values, strict=True) for child in pair]
        case ast.Call() if nested:
            return _call_problem(node, methods, nested=True)
        case _:
            return _name_problem(node)
    for child in children:
        if child is None:
            return "invalid syntax (<string>, line 1)"
        if problem := _literal_problem(child, methods, nested=nested):
            return problem
    return None


def _name_problem(node: ast.AST) -> str:
    """What evaluation says about the first name it would meet, as if that name did not exist."""
    names = [child for child in ast.walk(node) if isinstance(child, ast.Name)]
    if not names:
        return "invalid syntax (<string>, line 1)"
    first = min(names, key=lambda name: (name.lineno, name.col_offset))
    return f"name {first.id!r} is not defined"


def arithmetic_problem(node: ast.expr) -> str | None:
    """Why an arithmetic expression must not be evaluated while decoding, or None if it may be.

    BFCL's prompting decoder evaluates any binary operation it finds in an argument (`model_handler/utils.py`,
    `resolve_ast_by_type`), names and calls included. Numbers of sane size may be computed; the rest may not.
    """
    try:
        _magnitude(node)
    except ValueError as error:
        return str(error)
    return None


def _magnitude(node: ast.expr) -> int:
    """An upper bound for the digits (numbers) or characters (texts) of a literal expression's value.

    Raises:
        ValueError: the expression holds something other than literals, or would grow out of bounds.
    """
    match node:
        case ast.Constant(value=bool() | int() | float() | complex() | str() as value):
            size = len(value) if isinstance(value, str) else len(repr(value))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Invert(), operand=operand):
            size = _magnitude(operand) + 1
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)) if power <= _MAX_POWER:
            size = _magnitude(left) * max(abs(power), 1)
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if _holds_text(left) or _holds_text(right):
            counts = [side.value for side in (left, right) if isinstance(side, ast.Constant)]
            numbers = [value for value in counts if isinstance(value, int)]
            if len(numbers) != 1:
                raise ValueError("can't multiply sequence by non-int of this size")
            size = max(_magnitude(left), _magnitude(right)) * max(numbers[0], 1)
        case ast.BinOp(
            left=left,
            op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Mod(),
            right=right,
        ):
            if isinstance(node.op, ast.Mod) and _holds_text(left):
                raise ValueError("not enough arguments for format string")
            size = _magnitude(left) + _magnitude(right) + 1
        case _:
            raise ValueError(_name_problem(node))
    if size > (_MAX_TEXT if _holds_text(node) else _MAX_DIGITS):
        raise ValueError("Exceeds the limit for an argument of a call")
    return size


def _holds_text(node: ast.AST) -> bool:
    return any(isinstance(child, ast.Constant) and isinstance(child.value, str) for child in ast.walk(node))

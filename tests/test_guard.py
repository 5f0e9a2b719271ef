"""The call guard against what models can write, and against BFCL's own executor for what they should."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from bfcl_rollout.worker import guard

METHODS = {"inst": frozenset({"add", "memory_clear", "replace"})}


def refusal(call: str, *, nested: bool = False) -> str | None:
    return guard.refusal(call, METHODS, nested=nested)


@pytest.mark.parametrize(
    "call",
    [
        "inst.add()",
        "inst.add(key='a',value='b')",
        "inst.add(key='it\\'s', value=\"q\")",
        "inst.add(x=1,y=-2.5,z=1e400)",
        "inst.add(x=[1, 'a', None, True],y={'k': [False, {'deep': -1}]})",
        "inst.add('positional', 3)",
        "  inst.add(x=1)",
        "inst.add(x='inst.memory_clear(now)')",
        "inst.add(x='__import__(\"os\")')",
        "inst.add(\u00e9='non-ascii name')",
    ],
)
def test_calls_a_model_may_make_pass(call: str) -> None:
    assert refusal(call) is None


@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("foo(a=1)", "name 'foo' is not defined"),
        ("open(file='x',mode='w')", "name 'open' is not defined"),
        ("_flush_memory_to_local_file()", "name '_flush_memory_to_local_file' is not defined"),
        ("inst.__init__()", "name 'inst' is not defined"),
        ("inst._load_scenario(a=1)", "name 'inst' is not defined"),
        ("inst.add.__globals__()", "name 'inst' is not defined"),
        ("exit()", "Function call exit is not allowed."),
        ("os.remove(path='x')", "Function call remove is not allowed."),
        ("(exit)()", "name 'exit' is not defined"),
        ("__import__('os').system('true')()", "name '__import__' is not defined"),
        ("globals()()", "name 'globals' is not defined"),
        ("inst.add(text=open('x','w') or 'a'='x')", "invalid syntax (<string>, line 1)"),
        ("inst.add(text=__import__('os') or 'a')", "name '__import__' is not defined"),
        ("inst.add(x=nan)", "name 'nan' is not defined"),
        ("inst.add(x=inst.memory_clear())", "name 'inst' is not defined"),
        ("inst.add(*[1])", "invalid syntax (<string>, line 1)"),
        ("inst.add(**{'a': 1})", "invalid syntax (<string>, line 1)"),
        ("inst.add(x=[y for y in ().__class__.__bases__])", "name 'y' is not defined"),
        ("inst.add(x=f'{open}')", "name 'open' is not defined"),
        ("inst.add(x=(lambda: 1)())", "invalid syntax (<string>, line 1)"),
        ("inst.add(x={**{}})", "invalid syntax (<string>, line 1)"),
        ("inst.add(x=1 if True else 2)", "invalid syntax (<string>, line 1)"),
        ("inst.add(x:=1)", "name 'x' is not defined"),
        ("[inst.add()]", "name 'inst' is not defined"),
        ("inst", "name 'inst' is not defined"),
        ("1", "invalid syntax (<string>, line 1)"),
    ],
)
def test_everything_else_is_answered_without_being_evaluated(call: str, answer: str) -> None:
    assert refusal(call) == f"Error during execution: {answer}"


@pytest.mark.parametrize(
    "call",
    ["f(", "two words()", "a-b()x", "inst.add(class=1)", "", "\x00()", "inst.add('\ud800'", "f(" * 300],
)
def test_syntax_errors_read_as_they_do_officially(call: str) -> None:
    with pytest.raises(Exception, match=r"(?s).*") as raised:
        eval(call, {"__builtins__": {}})
    assert refusal(call) == f"Error during execution: {raised.value}"


def test_a_keyword_given_twice_is_left_to_the_official_executor() -> None:
    # The parser accepts it; BFCL's own evaluation refuses it with its own words.
    assert refusal("inst.add(a=1, a=2)") is None


def test_nested_calls_pass_only_where_the_decoder_writes_them() -> None:
    call = "inst.add(x=inst.replace(old='a', new=[inst.memory_clear()]))"
    assert refusal(call, nested=True) is None
    assert refusal(call) is not None
    assert refusal("inst.add(x=open())", nested=True) == "Error during execution: name 'open' is not defined"


def _value(source: str) -> ast.expr:
    return ast.parse(source, mode="eval").body


@pytest.mark.parametrize("source", ["1 + 2", "3 * 0.5", "-1 - 2", "2 ** 10", "7 // 2 % 2", "'a' + 'b'", "'ab' * 3"])
def test_plain_arithmetic_may_be_computed_while_decoding(source: str) -> None:
    assert guard.arithmetic_problem(_value(source)) is None


@pytest.mark.parametrize(
    "source",
    [
        "__import__('os') + 1",
        "open('x') + 1",
        "x + 1",
        "9 ** 9 ** 9",
        "9 ** 9999",
        "'a' * 10 ** 9",
        "'a' * 999999999",
        "10 ** 256 ** 2",
        "'%s' % x",
        "'%999999999d' % 1",
        "1 << 99999999",
        "[1] * 999999999",
        "(1).__class__ + 1",
    ],
)
def test_any_other_arithmetic_is_refused(source: str) -> None:
    assert guard.arithmetic_problem(_value(source)) is not None


def _official_value(call: dict[str, Any]) -> str:
    """The text BFCL's native decoder writes for a call (`convert_to_function_call`)."""
    return f"inst.add({','.join(f'{k}={v!r}' for k, v in call.items())})"


@pytest.mark.parametrize(
    "arguments",
    ['{"a": 1e400}', '{"a": -0.0}', '{"a": [[], {}]}', '{"a": "\\u0000\\n\\t"}', '{"a": 12345678901234567890}'],
)
def test_json_values_survive_as_literals(arguments: str) -> None:
    call = _official_value(json.loads(arguments))
    expected = None if "inf" not in call else "Error during execution: name 'inf' is not defined"
    assert refusal(call) == expected

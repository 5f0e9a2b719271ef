"""BFCL inside a worker: imported with stubs for what only drags in vendor SDKs, and with the call guard in place.

Everything that is replaced in BFCL is replaced here, in the zygote, before any rollout:

- `constants.model_config` (every vendor's SDK, 3 s and 200 MB) and the Java/JavaScript parsers are stubs while the
  modules that name them are imported. No category played here parses Java or JavaScript.
- `base_handler.execute_multi_turn_func_call` asks the guard about each call before BFCL evaluates it.
- `MemoryAPI_rec_sum.memory_replace` refuses to grow a memory beyond any use.
- `model_handler.utils.resolve_ast_by_type` refuses arithmetic that is not plain numbers, which BFCL evaluates while
  it decodes the prompting form.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import os
import re
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from bfcl_rollout import official
from bfcl_rollout.records import Mode
from bfcl_rollout.worker import guard, limits

REGISTRY_NAME = "bfcl-rollout"
"""Name the handlers carry in BFCL's registry. Must not contain `FC`, which BFCL reads as the mode."""
_PLACEHOLDER_URL = "http://127.0.0.1:9/v1"

_STUBS: dict[str, dict[str, Any]] = {
    "bfcl_eval.constants.model_config": {"MODEL_CONFIG_MAPPING": {}},
    "bfcl_eval.model_handler.parser.java_parser": {"parse_java_function_call": None},
    "bfcl_eval.model_handler.parser.js_parser": {"parse_javascript_function_call": None},
    # Only used by official report writing.
    "dotenv": {"load_dotenv": lambda *args, **kwargs: None},
    "pandas": {},
}

blocked_calls: list[list[int]] = []
"""Per executed step of the rollout in this process, the indices of calls that the guard answered."""


@contextmanager
def _stub_modules() -> Iterator[None]:
    """Stand-ins in `sys.modules`, removed again: a leftover stub breaks later look-ups of the real package."""
    added = []
    for name, attributes in _STUBS.items():
        if name not in sys.modules:
            module = types.ModuleType(name)
            vars(module).update(attributes)
            sys.modules[name] = module
            added.append(name)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def load() -> None:
    """Import BFCL's handler, executor and graders, and install the guard. Needs `BFCL_PROJECT_ROOT` to be set."""
    official.package_dir()
    if "BFCL_PROJECT_ROOT" not in os.environ:
        raise RuntimeError("BFCL_PROJECT_ROOT is not set; BFCL would write beside its installed package")
    with _stub_modules():
        import bfcl_eval.eval_checker.eval_runner
        import bfcl_eval.model_handler.api_inference.openai_completion  # noqa: F401
    _import_tools()
    _install_guard()


def _import_tools() -> None:
    """Import the tool classes, which BFCL leaves to their first use: every fork would do it again."""
    from bfcl_eval.constants.executable_backend_config import CLASS_FILE_PATH_MAPPING

    for name, module in CLASS_FILE_PATH_MAPPING.items():
        # The encoder is loaded where it is needed, and the web category is not played here.
        if name not in ("MemoryAPI_vector", "WebSearchAPI"):
            importlib.import_module(module)


def _install_guard() -> None:
    from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_checker, multi_turn_utils
    from bfcl_eval.model_handler import base_handler
    from bfcl_eval.model_handler import utils as handler_utils

    guarded = _guarded_executor(multi_turn_utils)
    base_handler.execute_multi_turn_func_call = guarded
    _bound_rec_sum()
    multi_turn_checker.execute_multi_turn_func_call = guarded

    original_resolve = handler_utils.resolve_ast_by_type

    def resolve_ast_by_type(value: ast.expr) -> Any:
        if isinstance(value, ast.BinOp) and (problem := guard.arithmetic_problem(value)):
            raise ValueError(problem)
        return original_resolve(value)

    handler_utils.resolve_ast_by_type = resolve_ast_by_type


nested_calls = False
"""Whether the rollout in this process is of the mode whose decoder writes nested calls. Set once after the fork."""
call_seconds = 0.0
"""Wall-clock seconds for the calls of one step in this process, 0 for no limit. Set once after the fork."""
MAX_MEMORY_TEXT = 1_000_000
"""Characters that `rec_sum` memory may reach; BFCL's own limit of 10,000 can be got round (see `_bound_rec_sum`)."""


def _guarded_executor(utils: Any) -> Callable[..., tuple[list[str], dict[str, Any]]]:
    original = utils.execute_multi_turn_func_call
    signature = inspect.signature(original)

    def execute_multi_turn_func_call(*args: Any, **kwargs: Any) -> tuple[list[str], dict[str, Any]]:
        bound = signature.bind(*args, **kwargs)
        calls: list[str] = bound.arguments["func_call_list"]
        bound.arguments["func_call_list"] = []
        # An empty list creates the instances, which says what may be called.
        results, instances = original(*bound.args, **bound.kwargs)
        if not calls:
            return results, instances
        names = instance_names(bound.arguments, instances)
        owner = {method: names[key] for key, found in instances.items() for method in public_methods(found)}
        methods = {names[key]: public_methods(found) for key, found in instances.items()}
        blocked = []
        with limits.call_timer(call_seconds):
            for index, call in enumerate(calls):
                text = utils._process_method_calls(call, owner)
                refusal = guard.refusal(text, methods, nested=nested_calls)
                if refusal is None:
                    bound.arguments["func_call_list"] = [call]
                    one, instances = original(*bound.args, **bound.kwargs)
                    results.extend(one)
                else:
                    results.append(refusal)
                    blocked.append(index)
        blocked_calls.append(blocked)
        return results, instances

    return execute_multi_turn_func_call


def _bound_rec_sum() -> None:
    """Refuse a `memory_replace` that would let the memory outgrow `MAX_MEMORY_TEXT`.

    BFCL checks only the length of the new text, and an empty old text inserts it between all characters: each such
    call multiplies the memory, and a handful of them exhausts a machine.
    """
    from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.memory_rec_sum import MemoryAPI_rec_sum

    original = MemoryAPI_rec_sum.memory_replace

    @functools.wraps(original)
    def memory_replace(self: Any, old_text: Any, new_text: Any) -> Any:
        old, new = str(old_text), str(new_text)
        if len(self.memory) + self.memory.count(old) * (len(new) - len(old)) > MAX_MEMORY_TEXT:
            raise MemoryError
        return original(self, old_text, new_text)

    MemoryAPI_rec_sum.memory_replace = memory_replace


def instance_names(arguments: dict[str, Any], instances: dict[str, Any]) -> dict[str, str]:
    """BFCL's global name of each instance, by class (`multi_turn_utils.py:33`)."""
    model = arguments["model_name"] + ("_eval" if arguments.get("is_evaL_run") else "")
    test_id = arguments["test_entry_id"]
    return {name: re.sub(r"[-./:]", "_", f"{model}_{test_id}_{name}_instance") for name in instances}


def public_methods(instance: object) -> frozenset[str]:
    """Names of an instance's methods that BFCL lets a call reach."""
    members = inspect.getmembers(instance, predicate=inspect.ismethod)
    return frozenset(name for name, _ in members if not name.startswith("_"))


def safe_model_name(model: str) -> str:
    """`model` where BFCL can put it into an identifier, else a name that it can.

    BFCL builds an instance name from the model name and evaluates it. `/`, `-`, `.` and `:` are replaced there;
    with any other odd character, or a digit in front, every call would fail with a syntax or name error.
    """
    name = re.sub(r"[-./:]", "_", model)
    if name.isascii() and name.isidentifier():
        return model
    name = re.sub(r"[^A-Za-z0-9_]", "_", model)
    return name if name.isidentifier() else f"model_{name}"


def make_handler(mode: Mode) -> Any:
    """BFCL's generic chat-completions handler. Built and warmed once in the zygote, pointed at a rollout by `aim`.

    Building the SDK client costs tens of milliseconds and most of a worker's memory; the first request of a fresh
    SDK costs as much again. Both are paid here, against a transport that opens no connection.
    """
    from bfcl_eval.model_handler.api_inference.openai_completion import OpenAICompletionsHandler

    os.environ["OPENAI_BASE_URL"] = _PLACEHOLDER_URL
    os.environ["OPENAI_API_KEY"] = "unset"
    try:
        handler = OpenAICompletionsHandler(REGISTRY_NAME, 0.001, REGISTRY_NAME, mode == "fc")
    finally:
        del os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
    _warm(handler)
    return handler


def aim(handler: Any, *, model: str, endpoint: str, secret: str, temperature: float) -> None:
    """Point a prepared handler at one rollout's endpoint."""
    handler.model_name = model
    handler.model_name_underline_replaced = safe_model_name(model).replace("/", "_").replace("-", "_").replace(".", "_")
    handler.temperature = temperature
    handler.client.base_url = endpoint
    handler.client.api_key = secret


_WARM_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "warm",
            "description": "warm",
            "parameters": {"type": "object", "properties": {"warm": {"type": "string"}}, "required": ["warm"]},
        },
    }
]
"""The SDK resolves the types of what a request may hold the first time it sees them."""


def _warm(handler: Any) -> None:
    reply = {
        "id": "warm",
        "object": "chat.completion",
        "created": 0,
        "model": "warm",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": "warm", "type": "function", "function": {"name": "warm", "arguments": "{}"}}],
                },
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
    body = json.dumps(reply).encode()

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=body, headers={"content-type": "application/json"})

    real = handler.client
    with httpx.Client(transport=httpx.MockTransport(answer)) as local:
        handler.client = real.with_options(http_client=local)
        try:
            messages: list[Any] = [{"role": "user", "content": "warm"}]
            for _ in range(2):
                response, _ = handler._query_FC({"message": messages, "tools": _WARM_TOOLS})
                messages.append(response.choices[0].message)
                messages.append({"role": "tool", "content": "warm", "tool_call_id": "warm"})
        finally:
            handler.client = real

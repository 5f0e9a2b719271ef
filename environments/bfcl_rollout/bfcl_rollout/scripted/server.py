"""The HTTP side of the embedded model: OpenAI-compatible chat completions over loopback."""

from __future__ import annotations

import asyncio
import json
from typing import Any, NamedTuple, NoReturn

from aiohttp import web

from bfcl_rollout.scripted.faults import Behaviour, Fault
from bfcl_rollout.scripted.policies import (
    PREFIX,
    ModelNameError,
    Policy,
    UnknownPolicyError,
    is_ours,
    names,
    parse_model,
    resolve,
)
from bfcl_rollout.scripted.reply import Body, Reply, chunks, completion

_MAX_BODY = 256 * 2**20
_DEFAULT = web.AppKey("default", str)


class Listening(NamedTuple):
    """A running server."""

    runner: web.AppRunner
    port: int


async def serve(host: str = "127.0.0.1", port: int = 0, default: str | None = None) -> Listening:
    """Listen on `host` and `port` (0 picks a free one) until `runner.cleanup()` is awaited.

    Args:
        default: Policy for model names that are none of ours; without it they get a 404.

    Raises:
        OSError: The address cannot be bound.
        ModelNameError: `default` names no policy, or its options are not well-formed.
    """
    app = web.Application(client_max_size=_MAX_BODY)
    if default is not None:
        resolve(default)
        app[_DEFAULT] = default
    app.router.add_post("/v1/chat/completions", _chat_completions)
    app.router.add_get("/v1/models", _models)
    # A stalled request must end when its client leaves.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return Listening(runner, runner.addresses[0][1])


async def _models(request: web.Request) -> web.Response:
    listed = [{"id": PREFIX + name, "object": "model", "created": 0, "owned_by": "scripted"} for name in names()]
    return web.json_response({"object": "list", "data": listed})


async def _chat_completions(request: web.Request) -> web.StreamResponse:
    body = _parse_body(await request.read())
    policy, behaviour = _find_policy(request.app, body["model"])
    fault = behaviour.fault_for(body)
    if behaviour.delay_s:
        await asyncio.sleep(behaviour.delay_s)
    if fault is not None and fault.kind in ("status", "stall", "drop", "malformed"):
        return await _fail(request, fault)
    reply = Reply("x" * fault.size) if fault is not None and fault.kind == "huge" else policy(body)
    if body.get("stream"):
        return await _stream(request, reply, body, fault)
    answer = completion(reply, body)
    if fault is not None and fault.kind == "empty":
        answer["choices"] = []
    if fault is not None and fault.kind == "nousage":
        del answer["usage"]
    text = json.dumps(answer).encode()
    if fault is not None and fault.kind == "truncated":
        return await _truncate(request, text)
    return web.Response(body=text, content_type="application/json")


def _parse_body(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except ValueError as error:
        _refuse(400, f"the request body is not JSON: {error}")
    if not isinstance(body, dict):
        _refuse(400, "the request body is not a JSON object")
    if not isinstance(body.get("model"), str):
        _refuse(400, "the request names no model")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        _refuse(400, "the request needs a non-empty list of messages")
    return body


def _find_policy(app: web.Application, model: str) -> tuple[Policy, Behaviour]:
    default = app.get(_DEFAULT)
    if default is not None and not is_ours(model):
        model = default
    try:
        return resolve(model), parse_model(model).behaviour
    except UnknownPolicyError as error:
        _refuse(404, str(error), code="model_not_found")
    except ModelNameError as error:
        _refuse(400, str(error))


async def _stream(request: web.Request, reply: Reply, body: Body, fault: Fault | None) -> web.StreamResponse:
    options = body.get("stream_options") or {}
    wanted = bool(options.get("include_usage")) and (fault is None or fault.kind != "nousage")
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    events = list(chunks(reply, body, include_usage=wanted))
    if fault is not None and fault.kind == "empty":
        events = []
    if fault is not None and fault.kind == "truncated":
        await response.write(_event(events[0])[:-8])
        _cut(request)
        return response
    await response.write(b"".join(map(_event, events)) + b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def _event(chunk: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


async def _fail(request: web.Request, fault: Fault) -> web.StreamResponse:
    if fault.kind == "status":
        _refuse(fault.status, f"scripted fault {fault.status}", code="scripted_fault")
    if fault.kind == "stall":
        await asyncio.Event().wait()
    if fault.kind == "malformed":
        return web.Response(text='{"id": "chatcmpl-', content_type="application/json")
    _cut(request)
    return web.Response()


async def _truncate(request: web.Request, text: bytes) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(text))})
    await response.prepare(request)
    await response.write(text[: len(text) // 2])
    _cut(request)
    return response


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()


def _refuse(status: int, message: str, code: str | None = None) -> NoReturn:
    """Answer with an error in OpenAI's shape."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    text = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
    raise _Refusal(status, text)


class _Refusal(web.HTTPException):
    def __init__(self, status: int, text: str) -> None:
        self.status_code = status
        super().__init__(text=text, content_type="application/json")

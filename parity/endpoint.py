"""The endpoint both sides talk to: answers, and records every request with its answer."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

from parity.answers import Answer, Answerer, refusal
from parity.exchange import Exchange, ExchangeWriter

_MAX_BODY = 256 * 2**20
_SESSION_HEADER = "X-Session-ID"


@asynccontextmanager
async def serve(answerer: Answerer, exchanges: Path) -> AsyncIterator[str]:
    """Listen on a free loopback port, writing each exchange to a file. Yields the base URL, ending in `/v1`."""
    with ExchangeWriter(exchanges) as writer:
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/v1/chat/completions", _Handler(answerer, writer).handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


class _Handler:
    def __init__(self, answerer: Answerer, writer: ExchangeWriter) -> None:
        self._answerer = answerer
        self._writer = writer
        self._arrived = 0

    async def handle(self, request: web.Request) -> web.Response:
        number, self._arrived = self._arrived, self._arrived + 1
        try:
            body = json.loads(await request.read())
        except ValueError:
            body = None
        if not isinstance(body, dict):
            return _response(refusal(400, "the request body is not a JSON object"))
        answer = await self._answer(body)
        self._writer.add(Exchange(number, request.headers.get(_SESSION_HEADER), body, answer.status, answer.reply))
        return _response(answer)

    async def _answer(self, body: dict[str, object]) -> Answer:
        if body.get("stream"):
            # BFCL never streams. The comparison shows the field; a reply in another form would only hide it.
            return refusal(400, "this endpoint does not stream")
        try:
            return await self._answerer(body)
        except (TimeoutError, aiohttp.ClientError) as error:
            return refusal(502, f"the upstream endpoint failed: {type(error).__name__}: {error}")


def _response(answer: Answer) -> web.Response:
    return web.json_response(answer.reply, status=answer.status)

"""Where an answer comes from: a policy in this process, an upstream endpoint, or a recording."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import aiohttp
from bfcl_rollout.errors import SetupError
from bfcl_rollout.scripted import resolve
from bfcl_rollout.scripted.policies import PREFIX, ModelNameError, parse_model
from bfcl_rollout.scripted.reply import completion

from parity.exchange import Body, request_key
from parity.policies import POLICIES
from parity.recording import Recording, RecordingWriter

_UNSAFE = "hostile"


class Answer(NamedTuple):
    """An HTTP status and a JSON body."""

    status: int
    reply: Any


Answerer = Callable[[Body], Awaitable[Answer]]
"""Answers a request. May raise aiohttp.ClientError or TimeoutError, which the endpoint turns into a 502."""


def refusal(status: int, message: str) -> Answer:
    """An error in OpenAI's shape."""
    return Answer(status, {"error": {"message": message, "type": "parity", "param": None, "code": None}})


def from_policy(name: str) -> Answerer:
    """Answers of a policy: one of the embedded model's, or one of parity's own.

    Raises:
        SetupError: there is no such policy, or official BFCL would execute what it writes.
    """
    try:
        plain = parse_model(name).policy
        policy = POLICIES.get(name) or resolve(name)
    except ModelNameError as error:
        raise SetupError(f"{error}; and, for parity alone, {', '.join(POLICIES)}") from None
    if plain == _UNSAFE:
        raise SetupError(f"policy {name!r} is for the guarded side only: official BFCL would execute what it writes")
    if plain != name.removeprefix(PREFIX):
        raise SetupError(f"{name!r}: faults and delays are no part of parity; name the policy alone")

    async def answer(body: Body) -> Answer:
        return Answer(200, completion(policy(body), body))

    return answer


class Upstream:
    """Relays requests to an OpenAI-compatible endpoint.

    Args:
        url: base URL, ending in `/v1`.
        key_variable: environment variable that holds the API key; unset means no key.
        timeout_s: seconds for one request.
    """

    def __init__(self, url: str, key_variable: str, timeout_s: float = 600.0) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        key = os.environ.get(key_variable)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._client: aiohttp.ClientSession | None = None

    async def __call__(self, body: Body) -> Answer:
        """Relay one request."""
        if self._client is None:
            self._client = aiohttp.ClientSession(timeout=self._timeout)
        async with self._client.post(self._url, json=body, headers=self._headers) as response:
            try:
                return Answer(response.status, await response.json(content_type=None))
            except ValueError:
                return refusal(502, "the upstream endpoint answered with something other than JSON")

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.close()


def recorded(source: Answerer, writer: RecordingWriter) -> Answerer:
    """Answers of `source`, each stored; a request that was stored before gets the stored answer.

    So the model becomes a function of the request, and a recording that was interrupted can be taken up again.
    """

    async def answer(body: Body) -> Answer:
        key = request_key(body)
        known = writer.replies.get(key)
        if known is None:
            given = await source(body)
            if given.status != 200:
                return given
            # Someone else may have asked the same in the meantime; the first answer stands.
            known = writer.add(key, given.reply)
        return Answer(200, known)

    return answer


def from_recording(recording: Recording) -> Answerer:
    """Answers of a recording. A request that is not in it is refused, with a status that no client retries."""

    async def answer(body: Body) -> Answer:
        reply = recording.replies.get(request_key(body))
        if reply is None:
            return refusal(400, "this request is not in the recording")
        return Answer(200, reply)

    return answer

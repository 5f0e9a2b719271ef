"""The harness for tasks that are one model request: sent from the main process, no worker, no runtime.

The task holds the whole request: its prompt, and in `request` the body's other fields (tools, response format, log
probabilities, ...), which may differ from task to task where the run's sampling cannot. The request goes through the
rollout's interception endpoint like any agent program's, so the trace records it; the reply is kept as the endpoint
sent it in `trace.info["reply"]`, with the parts that a trace drops (log probabilities) and the time it took.

An endpoint that fails is an error on the trace. What a reply says is for the task to judge.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.clients import ModelContext
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.runtimes import ProgramResult, Runtime, SubprocessRuntime

REPLY_KEY = "reply"
"""Where `trace.info` holds the reply: `{"choice": {...}, "wall_s": float, "attempts": int, "boundary": str}`."""

BOUNDARY = "http, through the interception server"
"""What the measured time covers: from sending the request to the parsed reply, in the process that runs the rollout."""

_RETRIED = (408, 409, 429)
_CONNECT_SECONDS = 10.0


class RequestData(vf.TaskData):
    """The wire data of a one-request task."""

    request: dict[str, Any] = Field(default_factory=dict)
    """Fields of the request body besides model and messages. The run's sampling settings override them."""


class RequestHarnessConfig(vf.HarnessConfig):
    temperature: float | None = 0.0
    """Temperature sent when neither the task nor the run's sampling sets one; None sends none."""
    max_retries: int = Field(2, ge=0)
    """How often a request is repeated after a connection failure or HTTP 408, 409, 429 or 5xx."""
    backoff: float = Field(0.5, ge=0)
    """Seconds before the first repetition; doubled for each further one."""
    hardware: str | None = None
    """What the model runs on, for the latency report (e.g. `1x H200`)."""
    precision: str | None = None
    """Weights and compute precision, for the latency report (e.g. `bf16`)."""
    serving: str | None = None
    """Serving program and version, for the latency report."""


class EndpointFailedError(RuntimeError):
    """The endpoint gave no usable reply."""


class RequestHarness(vf.Harness[RequestHarnessConfig]):
    """Sends the one request of a `RequestData` task."""

    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: ModelContext,
        trace: vf.Trace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> ProgramResult:
        """Send the request and leave the reply on the trace.

        Raises:
            TypeError: the task is not a one-request task.
            NotImplementedError: the role's runtime is not the local one.
            EndpointFailedError: no usable reply after all repetitions.
        """
        if not isinstance(data, RequestData):
            raise TypeError(f"{type(self).__name__} plays one-request tasks, not {type(data).__name__}")
        if not isinstance(runtime, SubprocessRuntime):
            raise NotImplementedError(
                f"{type(runtime).__name__} is not supported; the request is sent from this process "
                "(--env.<role>.runtime.type subprocess)"
            )
        body = self.body(ctx.model, data)
        try:
            reply = await self._send(endpoint, secret, body)
        except EndpointFailedError:
            if trace.stop_condition is not None:
                # A limit of the run refused the call; that ends a rollout, it does not fail it.
                return ProgramResult(exit_code=0, stdout="", stderr="")
            raise
        trace.info[REPLY_KEY] = reply
        return ProgramResult(exit_code=0, stdout="", stderr="")

    def body(self, model: str, data: RequestData) -> dict[str, Any]:
        """The request body of a task."""
        system, prompt = self.resolve_prompt(data)
        messages = [] if system is None else [{"role": "system", "content": system}]
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        defaults = {} if self.config.temperature is None else {"temperature": self.config.temperature}
        return {"model": model, "messages": messages, **defaults, **data.request}

    async def _send(self, endpoint: str, secret: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"{endpoint.rstrip('/')}/chat/completions"
        # The rollout's own timeouts bound the wait for a reply. A loopback URL needs no certificates, whose loading
        # would cost more than the request.
        async with httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=_CONNECT_SECONDS),
            verify=url.startswith("https:"),
            trust_env=False,
        ) as client:
            for attempt in range(self.config.max_retries + 1):
                if attempt:
                    await asyncio.sleep(self.config.backoff * 2 ** (attempt - 1))
                # The counter lets the interception server recognise a repetition, so that it commits one turn.
                headers = {"Authorization": f"Bearer {secret}", "x-stainless-retry-count": str(attempt)}
                started = time.perf_counter()
                try:
                    response = await client.post(url, json=body, headers=headers)
                except httpx.TransportError as error:
                    reason = f"{type(error).__name__}: {error}"
                    continue
                wall_s = time.perf_counter() - started
                if response.status_code < 400:
                    choice = _first_choice(response)
                    return {"choice": choice, "wall_s": wall_s, "attempts": attempt + 1, "boundary": BOUNDARY}
                reason = f"HTTP {response.status_code}: {response.text[:500]}"
                if response.status_code < 500 and response.status_code not in _RETRIED:
                    break
        raise EndpointFailedError(reason)


def _first_choice(response: httpx.Response) -> dict[str, Any]:
    try:
        choice = response.json()["choices"][0]
    except (ValueError, LookupError, TypeError) as error:
        raise EndpointFailedError(f"the reply is not a chat completion: {response.text[:200]!r}") from error
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise EndpointFailedError(f"the reply is not a chat completion: {response.text[:200]!r}")
    return choice

"""The embedded model over HTTP and as a process: completions, streams, faults, errors, life and death."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from bfcl_rollout.scripted import ScriptedServer, resolve
from bfcl_rollout.scripted.__main__ import main
from bfcl_rollout.scripted.policies import names
from bfcl_rollout.scripted.reply import completion
from openai import OpenAI
from openai.types.chat import ChatCompletion
from scripted_helpers import MESSAGES, request


@pytest.fixture(scope="module")
def client(scripted: ScriptedServer) -> Iterator[OpenAI]:
    with OpenAI(base_url=scripted.url, api_key="any", max_retries=0, timeout=10) as client:
        yield client


@pytest.fixture(scope="module")
def http(scripted: ScriptedServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=scripted.url, timeout=10) as http:
        yield http


def ask(client: OpenAI, body: dict[str, Any]) -> ChatCompletion:
    answer: ChatCompletion = client.chat.completions.create(**body)
    return answer


# Answers


@pytest.mark.parametrize("policy", ["recall", "text", "misbehave", "hostile"])
def test_the_server_says_what_the_policy_says(client: OpenAI, policy: str) -> None:
    for number in range(20):
        body = request("kv", f"{MESSAGES[0]} {number}", model=f"scripted/{policy}")
        answer = ask(client, body)
        expected = completion(resolve(policy)(body), body)
        assert answer == ChatCompletion.model_validate(expected)
        assert answer.usage is not None
        assert answer.usage.total_tokens > 10


@pytest.mark.parametrize("policy", ["recall", "text", "misbehave"])
def test_a_stream_adds_up_to_the_same_reply(client: OpenAI, policy: str) -> None:
    for number in range(20):
        body = request("kv", f"{MESSAGES[0]} {number}", model=policy)
        whole = ask(client, body)
        with client.chat.completions.stream(**body, stream_options={"include_usage": True}) as stream:
            final = stream.get_final_completion()
        assert final.usage == whole.usage
        for one, other in zip(final.choices, whole.choices, strict=True):
            assert (one.message.content or "") == (other.message.content or "")
            assert calls(one.message) == calls(other.message)
            assert one.finish_reason == other.finish_reason


def calls(message: Any) -> list[tuple[str, str, str]]:
    return [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]


def test_usage_is_streamed_only_when_asked_for(http: httpx.Client) -> None:
    for options, expected in ((None, False), ({"include_usage": False}, False), ({"include_usage": True}, True)):
        body = request("kv", "Hi", model="text") | {"stream": True, "stream_options": options}
        response = http.post("chat/completions", json=body)
        assert response.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
        assert events[-1] == "[DONE]"
        assert any("usage" in json.loads(event) for event in events[:-1]) is expected


def test_models_are_listed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [f"scripted/{name}" for name in names()]


def test_many_requests_at_once_get_their_own_answers(scripted: ScriptedServer) -> None:
    async def all_of_them() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=scripted.url, api_key="any", timeout=60) as client:
            bodies = [request("kv", f"Note {number}", model="misbehave") for number in range(64)]
            answers = await asyncio.gather(*(client.chat.completions.create(**body) for body in bodies))
        return [answer.id for answer in answers]

    expected = [request("kv", f"Note {number}", model="misbehave") for number in range(64)]
    assert asyncio.run(all_of_them()) == [completion(resolve("text")(body), body)["id"] for body in expected]


# Errors


def test_an_unknown_model_is_not_found(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="scripted/recall") as caught:
        ask(client, request("kv", "Hi", model="scripted/nonsense"))
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        ask(client, request("kv", "Hi", model="vendor/some-model"))


def test_a_wrong_option_is_a_bad_request(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="unknown fault 'nonsense'"):
        ask(client, request("kv", "Hi", model="recall:fault-nonsense"))


@pytest.mark.parametrize(
    "body",
    ["{", "[]", '{"model": "text"}', '{"model": 1, "messages": []}', '{"model": "text", "messages": [1]}', "\xff", ""],
)
def test_a_malformed_request_is_refused_in_openais_shape(http: httpx.Client, body: str) -> None:
    response = http.post("chat/completions", content=body.encode("latin-1"))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


# Faults


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_a_status_fault(client: OpenAI, status: int, error: type[openai.APIStatusError]) -> None:
    with pytest.raises(error) as caught:
        ask(client, request("kv", "Hi", model=f"recall:fault-{status}"))
    assert caught.value.status_code == status
    assert "scripted fault" in str(caught.value)


def test_a_fault_may_start_later(client: OpenAI) -> None:
    model = "scripted/text?fault=500&after=1"
    assert ask(client, request("kv", "a", model=model)).choices[0].message.content
    with pytest.raises(openai.InternalServerError):
        ask(client, request("kv", "a", "b", model=model))


def test_a_stalled_request_gets_no_answer(client: OpenAI) -> None:
    with pytest.raises(openai.APITimeoutError):
        ask(client.with_options(timeout=0.3), request("kv", "Hi", model="recall:fault-stall"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_dropped_connection(http: httpx.Client, stream: bool) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("chat/completions", json=request("kv", "Hi", model="recall:fault-drop") | {"stream": stream})


@pytest.mark.parametrize("stream", [False, True])
def test_a_truncated_answer(http: httpx.Client, stream: bool) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        http.post("chat/completions", json=request("kv", "Hi", model="recall:fault-truncated") | {"stream": stream})


def test_a_malformed_answer(http: httpx.Client) -> None:
    response = http.post("chat/completions", json=request("kv", "Hi", model="recall:fault-malformed"))
    assert response.status_code == 200
    with pytest.raises(json.JSONDecodeError):
        response.json()


def test_a_huge_answer(client: OpenAI) -> None:
    content = ask(client, request("kv", "Hi", model="recall:fault-huge")).choices[0].message.content
    assert content is not None
    assert len(content) == 16 * 2**20
    small = ask(client, request("kv", "Hi", model="recall:fault-huge:size-1000")).choices[0].message.content
    assert small == "x" * 1000


def test_an_answer_without_choices_or_usage(http: httpx.Client) -> None:
    empty = http.post("chat/completions", json=request("kv", "Hi", model="recall:fault-empty")).json()
    assert empty["choices"] == []
    uncounted = http.post("chat/completions", json=request("kv", "Hi", model="recall:fault-nousage")).json()
    assert "usage" not in uncounted
    assert uncounted["choices"]


def test_a_delayed_answer(http: httpx.Client) -> None:
    body = request("kv", "Hi", model="text:delay-60000")
    with pytest.raises(httpx.ReadTimeout):
        http.post("chat/completions", json=body, timeout=0.3)


# The process


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still lives"
        time.sleep(0.02)


def test_a_default_policy_answers_for_any_model() -> None:
    with ScriptedServer("text") as server, OpenAI(base_url=server.url, api_key="any", max_retries=0) as client:
        text = ask(client, request("kv", "Hi", model="text")).choices[0].message.content
        for model in ("vendor/some-model-FC", "vendor/model:7b"):
            answer = ask(client, request("kv", "Hi", model=model))
            assert answer.choices[0].message.content == text
            assert answer.model == model
        assert ask(client, request("kv", "Hi", model="recall")).choices[0].message.tool_calls
        with pytest.raises(openai.NotFoundError):
            ask(client, request("kv", "Hi", model="scripted/nonsense"))


def test_the_server_ends_with_its_block() -> None:
    server = ScriptedServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    with server:
        pid, url = server.pid, server.url
        assert httpx.get(f"{url}/models").status_code == 200
        assert os.getsid(pid) == pid  # Ctrl-C in the parent's terminal does not reach it
    assert not alive(pid)
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")
    server.close()


def test_the_server_ends_in_the_middle_of_a_stalled_request() -> None:
    with ScriptedServer() as server:
        pid = server.pid
        host = server.url.removeprefix("http://").removesuffix("/v1").split(":")
        body = json.dumps(request("kv", "Hi", model="recall:fault-stall")).encode()
        with socket.create_connection((host[0], int(host[1]))) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
            )
            connection.sendall(body)
            server.close()
    assert not alive(pid)


def test_the_server_goes_with_a_parent_that_is_killed() -> None:
    program = (
        "import time\n"
        "from bfcl_rollout.scripted import ScriptedServer\n"
        "server = ScriptedServer().start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    parent.kill()
    parent.communicate()
    wait_until_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_quietly(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "bfcl_rollout.scripted", "text"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert httpx.get(f"{process.stdout.readline().strip()}/models").status_code == 200
    process.send_signal(number)
    _, complaints = process.communicate(timeout=20)
    assert (process.returncode, complaints) == (0, "")


def test_a_port_in_use_is_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 2
        with pytest.raises(RuntimeError, match="in use"):
            ScriptedServer(port=port).start()
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert "in use" in complaint
    assert str(port) in complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "no scripted policy named 'nonsense'"),
        (["recall:fault-nonsense"], "unknown fault"),
        (["--port", "99999"], "99999"),
        (["--host", "256.0.0.1"], "256.0.0.1"),
    ],
)
def test_wrong_arguments_are_one_clear_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert complaint in said


def test_the_package_imports_neither_verifiers_nor_bfcl() -> None:
    program = (
        "import sys, bfcl_rollout.scripted.__main__\n"
        "print([name for name in ('verifiers', 'bfcl_eval', 'openai', 'torch', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.strip() == "[]"

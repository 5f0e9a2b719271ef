"""An endpoint that says what a test tells it to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def calls(*made: tuple[str, Any], content: str | None = None) -> dict[str, Any]:
    """An assistant message with tool calls; arguments that are not text are written as JSON."""
    return {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            {
                "id": f"call_{index}",
                "type": "function",
                "function": {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)},
            }
            for index, (name, given) in enumerate(made)
        ],
    }


def says(content: str | None) -> dict[str, Any]:
    """An assistant message without calls."""
    return {"role": "assistant", "content": content}


class Endpoint:
    """What was asked, and where."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        self.messages = messages
        self.requests: list[dict[str, Any]] = []
        self.url = ""

    def reply(self, body: dict[str, Any]) -> dict[str, Any]:
        """The message for a request: the n-th to one that holds n replies already, and the last one from there on."""
        self.requests.append(body)
        turn: int = sum(message["role"] == "assistant" for message in body["messages"])
        return self.messages[min(turn, len(self.messages) - 1)]


@contextmanager
def endpoint(*messages: dict[str, Any], kind: type[Endpoint] = Endpoint) -> Iterator[Endpoint]:
    """Serve chat completions with these assistant messages, in this order, to each conversation."""
    state = kind(messages)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet a reply, or each costs 40 ms of delayed acknowledgement

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = dict(state.reply(body))
            finish_reason = message.pop("finish_reason", "stop")
            completion = {
                "id": "canned",
                "object": "chat.completion",
                "created": 0,
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
            }
            data = json.dumps(completion).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

"""`python -m bfcl_rollout.scripted [POLICY] --host HOST --port PORT`: serve the embedded model."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence

from bfcl_rollout.scripted.policies import ModelNameError, names
from bfcl_rollout.scripted.server import serve


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM. Prints the base URL once the server listens.

    Returns:
        0 after a signal, 2 if the server could not start; the reason is one line on standard error.
    """
    arguments = _parser().parse_args(argv)
    try:
        asyncio.run(_run(arguments.host, arguments.port, arguments.policy, arguments.lifeline))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        return _complain(f"cannot listen on {arguments.host}:{arguments.port}: {reason}")
    except ModelNameError as error:
        return _complain(str(error))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bfcl-rollout scripted",
        description="Serve the embedded model, an OpenAI-compatible endpoint with deterministic answers.",
    )
    parser.add_argument(
        "policy",
        nargs="?",
        help=f"policy for model names other than scripted/NAME (known: {', '.join(names())})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--lifeline", action="store_true", help="end when standard input is closed")
    return parser


async def _run(host: str, port: int, policy: str | None, lifeline: bool) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, done.set)
    if lifeline:
        loop.add_reader(sys.stdin.fileno(), done.set)
    listening = await serve(host, port, policy)
    try:
        print(f"http://{host}:{listening.port}/v1", flush=True)
        await done.wait()
    finally:
        await listening.runner.cleanup()


def _complain(message: str) -> int:
    print(f"bfcl-rollout scripted: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())

"""`vf-run`: verifiers' eval command, with three things added.

- `-m scripted/POLICY` (or a role's model of that form) starts the embedded model for the run.
- Endpoints that cannot be reached, and anything else a user has to mend first, are one line before the run starts.
- A run of an environment that has a summary ends with its table.

Everything else is handed over unchanged.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bfcl_rollout.errors import SetupError
from bfcl_rollout.scripted import ModelNameError, ScriptedServer, resolve

PREFIX = "scripted/"
_CONNECT_SECONDS = 5.0


def main(argv: Sequence[str] | None = None) -> None:
    """Console entry point. Exit status as verifiers', and 2 if the run could not start."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    sys.argv = [sys.argv[0], *arguments]
    official_main = _verifiers_main()
    run = _Run()
    try:
        with _wrapped(sys.modules[official_main.__module__], run):
            official_main(arguments)
    except SetupError as error:
        raise SystemExit(f"vf-run: {error}") from None
    finally:
        run.finish()


def _verifiers_main() -> Callable[[list[str]], None]:
    """verifiers' own `vf-run` where it has one, else its `vf-eval`."""
    try:
        points = {point.name: point for point in distribution("verifiers").entry_points}
    except PackageNotFoundError as error:
        raise SystemExit(f"vf-run: {error}") from None
    main: Callable[[list[str]], None] = (points.get("vf-run") or points["vf-eval"]).load()
    return main


class _Run:
    """What is known of the run that verifiers is about to make: its directory, and the embedded model it needs."""

    def __init__(self) -> None:
        self.directory: Path | None = None
        self.server: ScriptedServer | None = None
        self.saved_config: Any = None

    def prepare(self, config: Any) -> Any:
        """`config` with the embedded model's endpoint filled in, once everything it names can be reached."""
        from verifiers.v1.cli.output import output_path

        self.directory = output_path(config)
        self.saved_config = config
        config = config.model_copy(deep=True)
        holders = [config, *_roles(config)]
        scripted = [holder for holder in holders if (holder.model or "").startswith(PREFIX)]
        for holder in scripted:
            try:
                resolve(holder.model)
            except ModelNameError as error:
                raise SetupError(str(error)) from None
        if scripted:
            self.server = ScriptedServer().start()
            for holder in scripted:
                holder.client = _client(self.server.url)
            config.push = config.push and config not in scripted
        for holder in holders:
            if holder.client is not None and _plays(holder, config):
                _check_reachable(holder.client.base_url)
        return config

    def finish(self) -> None:
        """End the embedded model and print the run's table, complete or not."""
        if self.server is not None:
            self.server.close()
        if self.directory is None or not (self.directory / "traces.jsonl").is_file():
            return
        from bfcl_rollout.cli.summary import summarize

        if not (self.directory / "traces.jsonl").stat().st_size:
            return
        try:
            print(f"\n{summarize(self.directory)}")
        except SetupError as error:
            print(f"\nvf-run: no table: {error}", file=sys.stderr)
        print(f"run directory: {self.directory}")


def _roles(config: Any) -> list[Any]:
    from verifiers.v1.configs.agent import agent_config_fields

    return list(agent_config_fields(config.env).values())


def _plays(holder: Any, config: Any) -> bool:
    """Whether a client is used: the run's own is not if every role brings one."""
    return holder is not config or any(role.client is None for role in _roles(config))


def _client(url: str) -> Any:
    from verifiers.v1.clients import EvalClientConfig

    return EvalClientConfig(base_url=url, api_key_var="BFCL_SCRIPTED_KEY")


def _check_reachable(url: str) -> None:
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with socket.create_connection((parts.hostname or "", port), timeout=_CONNECT_SECONDS):
            return
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise SetupError(
            f"the endpoint {url} cannot be reached ({reason}); set it with --client.base-url, or use the embedded "
            "model with -m scripted/recall"
        ) from None


@contextlib.contextmanager
def _wrapped(module: Any, run: _Run) -> Iterator[None]:
    """Let `run` see the resolved config just before verifiers starts the run.

    The config that verifiers saves keeps the user's own client: the embedded model listens on another port each
    time, and a resumed run must find the config it was started with.
    """
    from verifiers.v1.cli.eval import runner

    start, save = getattr(module, "run_eval", None), runner.save_config
    if start is None:
        yield
        return

    async def run_eval(config: Any) -> Any:
        starting: Callable[[Any], Awaitable[Any]] = start
        return await starting(run.prepare(config))

    def save_config(config: Any, *args: Any, **kwargs: Any) -> None:
        save(run.saved_config, *args, **kwargs)

    module.run_eval, runner.save_config = run_eval, save_config
    try:
        yield
    finally:
        module.run_eval, runner.save_config = start, save


if __name__ == "__main__":
    main()

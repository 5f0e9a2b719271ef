"""Run an environment through verifiers' own eval runner, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from verifiers.v1.cli.eval.runner import run_eval
from verifiers.v1.configs.cli.eval import EvalConfig
from verifiers.v1.episode import Episode
from verifiers.v1.trace import Trace


def eval_config(environment: str, model: str, url: str, out: Path, **settings: Any) -> EvalConfig:
    """A run's config; `settings` are merged over it (`env={...}` keeps the taskset's id)."""
    env: dict[str, Any] = {"taskset": {"id": environment}}
    _merge(env, settings.pop("env", {}))
    config: EvalConfig = EvalConfig.model_validate(
        {
            "env": env,
            "model": model,
            "client": {"base_url": url, "api_key_var": "BFCL_SCRIPTED_KEY"},
            "rich": None,
            "push": False,
            "output_dir": out,
            "run": {"name": "run"},
        }
        | settings
    )
    return config


def _merge(base: dict[str, Any], over: Mapping[str, Any]) -> None:
    for key, value in over.items():
        if isinstance(value, Mapping) and isinstance(base.get(key), dict):
            _merge(base[key], value)
        else:
            base[key] = value


def evaluate(environment: str, model: str, url: str, out: Path, **settings: Any) -> list[Episode]:
    """Play a run to its end and return its episodes. Traces are in `out / "run"`."""
    return asyncio.run(run_eval(eval_config(environment, model, url, out, **settings)))


def questions(episode: Episode) -> list[Trace]:
    """The traces of an episode that are graded."""
    return [trace for trace in episode.traces if trace.agent.trainable]

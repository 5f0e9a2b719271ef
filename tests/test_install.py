"""Installing an environment the way its users do: the real `prime` command, into a fresh environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, env: dict[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.slow
def test_prime_env_install_gives_an_environment_that_vf_run_plays(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    constraints = tmp_path / "constraints.txt"
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    # The versions that decide a result's last bits, as the workspace pins them.
    pins = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["constraint-dependencies"]
    constraints.write_text("\n".join(pins))
    env |= {
        "VIRTUAL_ENV": str(venv),
        "UV_CONSTRAINT": str(constraints),
        "PRIME_API_KEY": "",
        "BFCL_ROLLOUT_CACHE": str(tmp_path / "cache"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}",
    }
    run("uv", "venv", "--quiet", "--python", sys.executable, venv, env=env)
    run("prime", "env", "install", "bfcl-v4-memory", env=env)

    # The official package is no dependency: it is fetched, by hash, the first time it is needed.
    absent = "import importlib.util, sys; sys.exit(importlib.util.find_spec('bfcl_eval') is not None)"
    run(venv / "bin" / "python", "-c", absent, env=env, cwd=tmp_path)
    options = ["--env.taskset.backends", "kv", "vector", "--env.taskset.scenarios", "notetaker", "--no-push"]
    run(venv / "bin" / "vf-run", "bfcl-v4-memory", "-m", "scripted/recall", *options, env=env, cwd=tmp_path)
    (summary,) = tmp_path.glob("outputs/*/summary.json")
    stored = json.loads(summary.read_text())
    assert stored["complete"]
    assert stored["backends"]["kv"]["n"] == stored["backends"]["vector"]["n"] == 25
    run(venv / "bin" / "bfcl-rollout", "doctor", env=env, cwd=tmp_path)

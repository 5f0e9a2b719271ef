"""The ways of running: scripted, record, replay, live. Each plays its stages and reports on them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bfcl_rollout.errors import SetupError
from bfcl_rollout.scripted.policies import PREFIX

from parity import results, stages
from parity.answers import Answerer, from_policy, from_recording, recorded
from parity.categories import CATEGORIES
from parity.categories.base import Selection
from parity.observation import Observation, digested, from_json, to_json
from parity.recording import Recording, RecordingWriter
from parity.results import AGAIN, OFFICIAL, OURS, Played
from parity.sides import OfficialSide, OurSide, Settings, Side, official_side
from parity.stages import Stage

_PLAN = "plan.json"


@dataclass(frozen=True)
class Plan:
    """What to play, and where its files go."""

    categories: tuple[str, ...]
    settings: Settings
    folder: Path
    resume: bool = False
    """Keep the stages that an earlier, interrupted run of the same plan finished."""

    def to_json(self) -> dict[str, Any]:
        """What decides the outcome: all but folder, concurrency and resuming."""
        scenarios, ids = self.settings.selection
        return {
            "categories": list(self.categories),
            "model": self.settings.model,
            "mode": self.settings.mode,
            "scenarios": None if scenarios is None else list(scenarios),
            "ids": None if ids is None else list(ids),
        }


def plan_from_json(stored: Mapping[str, Any], folder: Path, *, concurrency: int, resume: bool) -> Plan:
    """The plan that `to_json` stored.

    Raises:
        SetupError: it names a category that cannot be compared, or a model that vf-run takes for its own.
    """
    if stored["model"].startswith(PREFIX):
        raise SetupError(f"vf-run answers {stored['model']!r} itself; name it without {PREFIX!r}")
    unknown = [name for name in stored["categories"] if name not in CATEGORIES]
    if unknown:
        raise SetupError(f"unknown category {unknown[0]!r}; there are {', '.join(CATEGORIES)}")
    scenarios, ids = stored["scenarios"], stored["ids"]
    selection = Selection(None if scenarios is None else tuple(scenarios), None if ids is None else tuple(ids))
    settings = Settings(stored["model"], stored["mode"], selection, concurrency)
    return Plan(tuple(stored["categories"]), settings, folder, resume)


async def scripted(plan: Plan) -> dict[str, Any]:
    """Both sides against a policy."""
    answerer = from_policy(plan.settings.model)
    sides: dict[str, Side] = {OFFICIAL: await official_side(), OURS: OurSide()}
    return results.equality(await _play(plan, sides, answerer))


async def live(plan: Plan, upstream: Answerer) -> dict[str, Any]:
    """Official twice and ours once against a real endpoint; agreement instead of equality."""
    official = await official_side()
    sides: dict[str, Side] = {OFFICIAL: official, AGAIN: official, OURS: OurSide()}
    return results.agreement(await _play(plan, sides, upstream))


async def record(plan: Plan, path: Path, answerer: Answerer) -> int:
    """The official side against a source whose answers are stored. Returns the number of replies.

    A recording that was interrupted is taken up: what it holds is not asked again.

    Raises:
        RecordingError: the file is complete already, or was begun with other settings.
        SetupError: rollouts have no result, so the recording would be of failures.
    """
    sides: dict[str, Side] = {OFFICIAL: await official_side()}
    with RecordingWriter(path, plan.to_json()) as writer:
        played = await _play(plan, sides, recorded(answerer, writer))
        observed = {}
        for name, stage in ((name, found[OFFICIAL]) for name, found in played.items()):
            silent = [id_ for id_, rollout in stage.observation.rollouts.items() if not rollout.requests]
            if silent:
                raise SetupError(
                    f"{name}: {len(silent)} rollouts made no request, {silent[0]} first; see {plan.folder}"
                )
            observed[name] = to_json(stage.observation.rollouts)
        writer.finish(observed, sides[OFFICIAL].versions)
    return len(writer.replies)


async def replay(plan: Plan, recording: Recording, *, only_ours: bool) -> dict[str, Any]:
    """Both sides against a recording; or ours alone, compared with what the recording says of the official side."""
    answerer = from_recording(recording)
    if not only_ours:
        sides: dict[str, Side] = {OFFICIAL: await official_side(), OURS: OurSide()}
        return results.equality(await _play(plan, sides, answerer), recording=recording.sha256)
    played = await _play(plan, {OURS: OurSide()}, answerer)
    for name, found in played.items():
        ours = found[OURS].observation
        digests = Observation({id_: digested(each) for id_, each in ours.rollouts.items()}, ours.stray)
        found[OURS] = Stage(digests, found[OURS].versions, found[OURS].wall_s)
        found[OFFICIAL] = Stage(Observation(from_json(recording.observed[name])), recording.versions, 0.0)
    return results.equality(played, recording=recording.sha256)


def compare_again(folder: Path) -> tuple[Plan, dict[str, Any]]:
    """Compare what an earlier run left in a folder, from its files alone.

    Raises:
        SetupError: the run is not there or not finished.
    """
    try:
        stored = json.loads((folder / _PLAN).read_text())
    except OSError:
        raise SetupError(f"{folder}: no {_PLAN}; name the folder of a parity run") from None
    plan = plan_from_json(stored, folder, concurrency=1, resume=True)
    readers: dict[str, Side] = {OFFICIAL: OfficialSide(), OURS: OurSide()}
    played: Played = {}
    for name in plan.categories:
        played[name] = {
            side: stages.read(reader, CATEGORIES[name], plan.settings, folder / side / name)
            for side, reader in readers.items()
        }
    return plan, results.equality(played)


async def _play(plan: Plan, sides: Mapping[str, Side], answerer: Answerer) -> Played:
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / _PLAN).write_text(json.dumps(plan.to_json(), indent=1) + "\n")
    played: Played = {}
    for name in plan.categories:
        played[name] = {}
        for side, player in sides.items():
            folder = plan.folder / side / name
            stage = await stages.play(player, CATEGORIES[name], plan.settings, answerer, folder, resume=plan.resume)
            played[name][side] = stage
            asked = sum(len(rollout.requests) for rollout in stage.observation.rollouts.values())
            print(f"{name}, {side}: {asked:,} requests in {stage.wall_s:.0f} s", flush=True)
    return played

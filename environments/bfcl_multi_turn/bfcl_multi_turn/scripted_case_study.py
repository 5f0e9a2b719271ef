"""Embedded models that behave as the rollouts of ToolWeave's published case study did, in `multi_turn_base_156`.

Fourteen of its sixteen rollouts are alike; the policies here are those and the other three, as they are described. They
write the blocks of the interactive protocol. What they call comes from the answer key, what is wrong with a call or a
text is written here, and what becomes of it is left to the environment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from bfcl_rollout.scripted.reply import Body, Call, Reply

from bfcl_multi_turn.scripted import Scene, recognise

STUDIED = "multi_turn_base_156"
"""BFCL test id of the conversation."""
STUDIED_TURN = 3
"""The user turn whose credit was published; it takes two calls."""


def usual(body: Body) -> Reply:
    """Every accepted call, one an action, then an answer (fourteen rollouts)."""
    return _play(body, {})


def wrong_airport(body: Body) -> Reply:
    """Asks for the cost of a flight from another airport, books nothing, and goes on as usual (offset 2)."""
    return _play(body, {0: lambda scene: _in_turn(scene, [[_changed(scene.calls[0], travel_from="SAN")]])})


def extra_argument(body: Body) -> Reply:
    """Creates the ticket with an empty description that the accepted call leaves out (offset 14)."""

    def act(scene: Scene) -> Reply:
        login, create = scene.calls
        return _in_turn(scene, [[login], [_changed(create, description="")]])

    return _play(body, {STUDIED_TURN: act})


def late_recovery(body: Body) -> Reply:
    """Five replies that break the format, then both calls in one action; after that, the wrong ticket (offset 9)."""

    def act(scene: Scene) -> Reply:
        broken = _broken(*scene.calls)
        return Reply(broken[scene.done]) if scene.done < len(broken) else scene.say(scene.calls)

    return _play(body, {STUDIED_TURN: act, STUDIED_TURN + 1: lambda scene: _in_turn(scene, [[_wrong_ticket(scene)]])})


def _play(body: Body, instead: Mapping[int, Callable[[Scene], Reply]]) -> Reply:
    """The usual rollout, but for the user turns in `instead`."""
    scene = recognise(body)
    if scene is None:
        return Reply("I do not know this conversation.")
    return instead.get(scene.turn, _usual_turn)(scene)


def _usual_turn(scene: Scene) -> Reply:
    return _in_turn(scene, [[call] for call in scene.calls])


def _in_turn(scene: Scene, actions: Sequence[Sequence[Call]]) -> Reply:
    """The action that is due, or the answer once all are done."""
    return scene.say(actions[scene.done]) if scene.done < len(actions) else scene.end()


def _changed(call: Call, **arguments: object) -> Call:
    return Call.of(call.name, **{**json.loads(call.arguments), **arguments})


def _wrong_ticket(scene: Scene) -> Call:
    (edit,) = scene.calls
    return _changed(edit, ticket_id=json.loads(edit.arguments)["ticket_id"] + 1)


def _broken(login: Call, create: Call) -> list[str]:
    """Two replies of two blocks, two of objects without brackets, and one with a literal opener in the reasoning."""
    first, second = (
        json.dumps({"name": call.name, "arguments": json.loads(call.arguments)}) for call in (login, create)
    )
    thought = "<think>Log in and create the ticket.</think>\n"
    blocks = f"{thought}<tool_call>{first}</tool_call>\n<tool_call>{second}</tool_call>"
    commas = f"{thought}<tool_call>{first}, {second}</tool_call>"
    opener = f"<think>A <tool_call> block comes next.</think>\n<tool_call>[{first}, {second}]</tool_call>"
    return [blocks, blocks, commas, commas, opener]

"""The policy `misbehave`: does, sooner or later, everything that a model can do wrong, and still plays to the
end.

What it does is drawn from a hash of the conversation. About half of the user turns are played properly (as
`recall` does), so that memory fills and some questions are answered; in the others each reply is one of the
kinds in `KINDS`. It calls no function that would run code: names are either on offer or defined nowhere.
"""

from __future__ import annotations

from typing import NamedTuple

from bfcl_rollout.scripted import misbehave_calls, misbehave_replies
from bfcl_rollout.scripted.recall import recall
from bfcl_rollout.scripted.reply import Body, Reply
from bfcl_rollout.scripted.scene import Kind, Scene

KINDS: dict[str, Kind] = {**misbehave_calls.KINDS, **misbehave_replies.KINDS}
"""Every way of misbehaving inside a turn, by name. A kind that does not fit a scene returns None."""
RUNAWAY = "runaway"
"""The name of the one kind that takes a whole turn: calling without end."""
PROPER = "proper"

_RUNAWAY_EVERY = 30
_RUNAWAY_STEPS = 40
"""Where a runaway ends by itself, in case nobody stops it. BFCL does after 21 steps."""
_BAD_STEPS = 4
"""Misbehaving steps in a turn, after which it ends the turn."""


class Choice(NamedTuple):
    """What the policy decided."""

    kind: str
    reply: Reply


def misbehave(body: Body) -> Reply:
    """One reply, proper or not."""
    return choose(body).reply


def choose(body: Body) -> Choice:
    """The reply together with the name of its kind."""
    scene = Scene.of(body)
    step = len(scene.conversation.turn.steps)
    plan = scene.turn_draw("plan", 2 * _RUNAWAY_EVERY)
    if plan < 2 and step < _RUNAWAY_STEPS:
        return Choice(RUNAWAY, scene.say([scene.read()]))
    if plan % 2 or step >= _BAD_STEPS:
        return Choice(PROPER, recall(body))
    for name in scene.shuffle({name: kind.weight for name, kind in KINDS.items()}):
        if (reply := KINDS[name].act(scene)) is not None:
            return Choice(name, reply)
    return Choice(PROPER, recall(body))

"""The record of a rollout's runtime interactions, as stored in `trace.info["interactions"]`.

A *runtime interaction* is one assistant generation and what the environment made of it, within one user turn.
The environment writes one `InteractionLog` per trace, for either protocol; credit assignment reads it. The
assistant's text is not repeated here: `node` points at the message in `trace.nodes`. The answer key is never
in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

INTERACTIONS_VERSION = 1
"""Version of the stored log. Raised when a field changes its meaning."""

INFO_KEY = "interactions"
"""Where a log lives in `trace.info`."""

Protocol = Literal["official", "interactive"]
ResponseType = Literal["tool_call", "answer", "parse_error"]
AttemptedType = Literal["tool_call", "answer", "unknown"]
Code = Literal[-3, -2, -1, 0, 1]
"""What a step came to: -3 format failure, -2 a call raised, -1 all calls ran, 0 or 1 the step closed its user
turn and the turn failed or succeeded."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ParsedCall(_Model):
    """One element of a tool-call action."""

    call_idx: int = Field(ge=0)
    """Position in the action, invalid elements counted."""
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Plain JSON values."""
    valid: bool = True
    """False for an element without a name: it is neither executed nor matched."""

    @field_validator("arguments")
    @classmethod
    def _finite(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        if not all(math.isfinite(number) for number in _floats(arguments)):
            raise ValueError("an argument holds NaN or an infinity")
        return arguments


class Interaction(_Model):
    """One runtime interaction."""

    user_turn: int = Field(ge=0)
    """The user turn it happened in, before any advance."""
    index: int = Field(ge=0)
    """Runtime interaction index: counts every generation of the user turn, failures included."""
    response_type: ResponseType
    attempted_type: AttemptedType = "unknown"
    """What the text set out to be, whether or not it parsed."""
    parser_error: str | None = None
    """Code of the first format rule that failed; None unless `response_type` is `parse_error`."""
    calls: list[ParsedCall] = Field(default_factory=list)
    results: list[str] = Field(default_factory=list)
    """One tool result per executed call."""
    code: Code | None = None
    """None in the official protocol, which has no codes."""
    tool_attempt_index: int | None = None
    """How many tool-call attempts the user turn had seen before. Diagnostic: nothing is computed from it."""
    node: int | None = Field(default=None, ge=0)
    """Index in `trace.nodes` of the assistant message; None where there is no trace."""
    temporal_reliable: bool = True
    """The environment itself wrote the user turn and index."""
    call_parse_reliable: bool = False
    """The calls come from a tool-call action that parsed."""


class InteractionLog(_Model):
    """All runtime interactions of one rollout, and how each user turn of its task ended."""

    version: int = INTERACTIONS_VERSION
    protocol: Protocol
    entry_id: str
    """BFCL test id, e.g. `multi_turn_base_156`."""
    turn_scores: list[Literal[0, 1] | None]
    """One entry per user turn of the task: failed, succeeded, or None if the rollout never closed it."""
    interactions: list[Interaction]
    """In the order they happened."""

    @property
    def progress(self) -> float:
        """Progress reward `R_P` in [0, 1]: succeeded user turns over all user turns of the task."""
        return self.turn_scores.count(1) / len(self.turn_scores) if self.turn_scores else 0.0

    @property
    def codes(self) -> list[Code]:
        """The codes of the steps, in order (interactive protocol)."""
        return [step.code for step in self.interactions if step.code is not None]

    @field_validator("version")
    @classmethod
    def _known_version(cls, version: int) -> int:
        if version != INTERACTIONS_VERSION:
            raise ValueError(f"log version {version}, but this release reads version {INTERACTIONS_VERSION}")
        return version

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        turn, expected = 0, 0
        nodes: set[int] = set()
        for step in self.interactions:
            if step.user_turn > turn:
                turn, expected = step.user_turn, 0
            if step.user_turn >= len(self.turn_scores):
                raise ValueError(f"user turn {step.user_turn}: the task has {len(self.turn_scores)} user turns")
            if (step.user_turn, step.index) != (turn, expected):
                raise ValueError(
                    f"user turn {step.user_turn}: interaction {step.index} where {turn}/{expected} was due"
                )
            expected += 1
            if step.node is not None:
                if step.node in nodes:
                    raise ValueError(f"user turn {step.user_turn}: node {step.node} is used twice")
                nodes.add(step.node)
        return self

    @model_validator(mode="after")
    def _codes_agree(self) -> Self:
        if self.protocol == "official":
            return self
        closed: dict[int, int] = {}
        for step in self.interactions:
            if step.code is None:
                raise ValueError(f"user turn {step.user_turn}: interaction {step.index} has no code")
            if step.user_turn in closed:
                raise ValueError(f"user turn {step.user_turn}: interaction {step.index} after the turn closed")
            if step.code >= 0:
                closed[step.user_turn] = step.code
        for turn, score in enumerate(self.turn_scores):
            if closed.get(turn) != score:
                raise ValueError(f"user turn {turn}: score {score}, but its closing code is {closed.get(turn)}")
        return self


def _floats(value: object) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _floats(inner)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for inner in value:
            yield from _floats(inner)

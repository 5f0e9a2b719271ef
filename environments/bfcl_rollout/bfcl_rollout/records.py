"""What travels between the main process and a worker, and what is stored in `trace.info["bfcl"]`.

A `RolloutSpec` carries all that one rollout needs, so the same worker program can run in another box. A
`RolloutRecord` is what came of it: the rollout as user turns and steps, in the terms of BFCL's own result file. A
`GradeSpec` sends a record's model output to a second worker process, the only one that ever loads the answer key,
and a `Verdict` comes back. All models forbid unknown fields and the stored ones carry a version.

This module is imported by workers: it must not import verifiers.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

RECORD_VERSION = 1
"""Version of the stored record. Raised when a field changes its meaning."""

OFFICIAL = "official"
"""The protocol that BFCL's own loop plays."""

Mode = Literal["fc", "prompting"]
"""Which of BFCL's two official loops plays: native tool calls, or calls written as text."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Limits(_Model):
    """What one worker process may use. Zero switches a limit off."""

    wall_s: float = Field(3600.0, ge=0)
    """Wall-clock seconds for the whole rollout."""
    call_s: float = Field(30.0, ge=0)
    """Wall-clock seconds for the tool calls of one step."""
    memory_mb: int = Field(4096, ge=0)
    """MiB of address space beyond what the process holds when it is forked."""
    file_mb: int = Field(64, ge=0)
    """MiB for any one file it writes."""
    open_files: int = Field(64, ge=0)
    """Open file descriptors."""


class RolloutSpec(_Model):
    """One rollout to play. Holds the rollout's secret, so it is never stored."""

    entry_id: str
    """BFCL test id, with its category in front: `memory_kv_prereq_0-customer-0`, `multi_turn_base_12`."""
    category: str
    """Category as BFCL loads it: `memory_kv`, `multi_turn_base`."""
    model: str
    """Model name on the wire. It becomes part of BFCL's instance name, as it does officially."""
    endpoint: str
    """OpenAI-compatible base URL, ending in `/v1`."""
    secret: str = Field(repr=False)
    """Bearer token for the endpoint."""
    mode: Mode = "fc"
    temperature: float = 0.001
    """What `bfcl generate` sends unless told otherwise."""
    memory: str | None = None
    """Memory to start from: the text of a BFCL snapshot file. None is an empty memory, which only the first
    session of a scenario may start from."""
    protocol: str = OFFICIAL
    """How model and tools talk: BFCL's own loop, or a protocol that an installed package plays."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What that other protocol needs to know; it validates them itself."""
    limits: Limits = Limits()


class Step(_Model):
    """One model reply and what became of it."""

    raw: Any
    """The reply as BFCL stores it in a result file: a list of `{name: argument_text}`, a text, or null."""
    decoded: list[str] | None = None
    """Calls as Python text. None if the reply did not decode, which ends the turn."""
    results: list[str] = Field(default_factory=list)
    """One tool result per decoded call, in order."""
    error: str | None = None
    """Why the reply did not decode."""
    blocked: list[int] = Field(default_factory=list)
    """Indices into `decoded` of calls that the call guard answered instead of BFCL."""


class Turn(_Model):
    """One user turn: what was asked, and the steps until the model stopped calling tools."""

    query: list[dict[str, Any]]
    """The messages this turn added, system message included."""
    steps: list[Step]


class Failure(_Model):
    """Why a rollout has no result. Never the model's doing."""

    kind: Literal["endpoint", "worker", "timeout"]
    error_type: str
    message: str
    partial: RolloutRecord | None = None
    """What the rollout did before, where the protocol can tell. A run's own limit ends a rollout this way too."""


class Versions(_Model):
    """What produced a record."""

    bfcl_eval: str
    bfcl_rollout: str
    python: str
    openai: str
    encoder_sha256: str | None = None
    """SHA-256 of the embedding weights (`vector` only)."""
    data_sha256: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of each official data file the rollout was made from, by path inside the package."""


class RolloutRecord(_Model):
    """What one rollout did. `result()` is BFCL's own result for the same test id."""

    version: int = RECORD_VERSION
    test_id: str
    category: str
    mode: Mode
    protocol: str = OFFICIAL
    options: dict[str, Any] = Field(default_factory=dict)
    """The options of a protocol other than BFCL's."""
    turns: list[Turn]
    force_quit: bool
    """BFCL ended the rollout at its step limit."""
    cut_off: bool = False
    """The last reply was cut short, or refused by a limit of the run, so the rollout ends where it stands."""
    memory: str | None = None
    """End memory: the text of a BFCL snapshot file (memory categories only)."""
    inference_error: str | None = None
    """What the model wrote made BFCL itself raise. Officially that text is the result, and graded as wrong."""
    graded_message: Any = None
    """The last reply that did not decode into calls, which is what BFCL grades."""
    input_tokens: int = 0
    output_tokens: int = 0
    versions: Versions
    execution: Execution | None = None
    """The conversation's calls executed again, for the grader. It travels beside the record and is not stored."""

    def result(self) -> list[list[Any]] | str:
        """The raw replies as `list[turn][step]`, or the error text: the `result` field of a BFCL result file."""
        if self.inference_error is not None:
            return f"Error during inference: {self.inference_error}"
        return [[step.raw for step in turn.steps] for turn in self.turns]

    def calls(self) -> list[list[list[str]]]:
        """The calls that were executed, as Python text: `list[turn][step][call]`, steps without calls left out."""
        return [[step.decoded for step in turn.steps if step.decoded and step.results] for turn in self.turns]


class ExecutedStep(_Model):
    """The calls of one step, executed once more for grading."""

    calls: list[str]
    results: list[str]


class ExecutedTurn(_Model):
    """One user turn, executed once more for grading."""

    steps: list[ExecutedStep]
    """Steps that decoded into calls."""
    state: str | None = None
    """Base64 of what the tools held at the end of the turn (`worker.states`); None if the turn had no step."""


class Execution(_Model):
    """A whole conversation's calls, executed on fresh tools by a process that has no answer key."""

    turns: list[ExecutedTurn]


class GradeSpec(_Model):
    """Model output to grade. Holds nothing that the grader needs to be told about the answer."""

    entry_id: str
    category: str
    mode: Mode
    model: str
    result: list[list[Any]] | str
    queries: list[list[dict[str, Any]]] = Field(default_factory=list)
    """Messages per turn, and `tool_results`: only for metrics that compare them with the answer."""
    tool_results: list[str] = Field(default_factory=list)
    calls: list[list[list[str]]] | None = None
    """The executed calls as `list[turn][step][call]`, where `result` is not in a form that BFCL decodes."""
    execution: Execution | None = None
    """What executing the calls gave (categories whose tools have a state)."""
    idle_gold: bool = True
    """Whether the accepted calls of a turn are executed even if the model called nothing in it, as BFCL does."""
    call_s: float = 30.0


class Verdict(_Model):
    """What the official checker said."""

    valid: bool
    error_type: str | None = None
    """BFCL's error type, e.g. `agentic:no_last_message`; None if valid."""
    error_message: str | None = None
    details: dict[str, Any] = Field(default_factory=dict)
    """Numbers that need the answer key to compute (`gold_in_prompt`, `turn_pass`, ...), never the key itself."""

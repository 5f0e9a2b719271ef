"""Play the interactive protocol in a worker: model text, parser, BFCL's tools, feedback as user messages.

The loop only carries out what the turn machine decides. It never knows the accepted calls: a closed turn is scored
later, by the grader.
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import openai
from bfcl_rollout.records import Failure, RolloutRecord, RolloutSpec, Step, Turn, Versions
from bfcl_rollout.worker import upstream
from bfcl_rollout.worker.execution import Toolbox
from bfcl_rollout.worker.play import storable

from bfcl_multi_turn.interactive import hints, machine
from bfcl_multi_turn.interactive.options import PROTOCOL, InteractiveOptions
from bfcl_multi_turn.interactive.parser import parse_message
from bfcl_multi_turn.interactive.prompt import restored_functions, system_prompt
from bfcl_multi_turn.interactive.reply import action_text

TRUNCATED = "truncated"
"""The `error` of a step whose generation stopped at its length limit. It is kept, but the tools never see it."""


class Reply(NamedTuple):
    """One generation."""

    message: Any
    text: str
    truncated: bool
    input_tokens: int
    output_tokens: int


def play(spec: RolloutSpec, entry: dict[str, Any], handler: Any, versions: Versions) -> RolloutRecord | Failure:
    """Play an entry to its end. An endpoint that fails is a `Failure` with what the rollout did before."""
    return _Rollout(spec, copy.deepcopy(entry), handler, versions).play()


class _Rollout:
    def __init__(self, spec: RolloutSpec, entry: dict[str, Any], handler: Any, versions: Versions) -> None:
        self.options = InteractiveOptions.model_validate(spec.options)
        self.entry = entry
        self.handler = handler
        self.toolbox = Toolbox(entry, handler.model_name_underline_replaced)
        system = system_prompt(entry["function"], self.options.attempt_limit)
        self.messages: list[Any] = [{"role": "system", "content": system}]
        self.state = machine.TurnState()
        self.record = RolloutRecord(
            test_id=spec.entry_id,
            category=spec.category,
            mode=spec.mode,
            protocol=PROTOCOL,
            options=self.options.model_dump(mode="json"),
            turns=[],
            force_quit=False,
            versions=versions,
        )

    def play(self) -> RolloutRecord | Failure:
        questions = self.entry["question"]
        self._open(0, "", self.messages)
        while self.state.user_turn < len(questions):
            try:
                reply = self._ask()
            except openai.APIError as error:
                self.record.cut_off = True
                return Failure(
                    kind="endpoint", error_type=type(error).__name__, message=str(error), partial=self.record
                )
            self.record.input_tokens += reply.input_tokens
            self.record.output_tokens += reply.output_tokens
            if reply.truncated:
                self.record.turns[-1].steps.append(Step(raw=reply.text, error=TRUNCATED))
                self.record.cut_off = True
                break
            self.messages.append(reply.message)
            turn = self.state.user_turn
            feedback = self._take(reply.text)
            if self.state.user_turn == turn:
                self.messages.append({"role": "user", "content": feedback})
            elif self.state.user_turn < len(questions):
                self._open(self.state.user_turn, feedback, [])
        return self.record

    def _take(self, text: str) -> str:
        """Do what one reply asks for, and return what to tell the model about it."""
        options = self.options
        parsed = parse_message("assistant", text)
        step = Step(raw=storable(text), error=parsed.error)
        self.record.turns[-1].steps.append(step)
        plan = machine.plan(
            self.state,
            parsed,
            gold_is_empty=options.no_call_turns[self.state.user_turn],
            limit=options.attempt_limit,
            execute_json_answers=options.execute_json_answers,
        )
        self.state = plan.state
        if plan.kind == "reject":
            return machine.rejection_feedback(parsed)
        if plan.kind == "close":
            return machine.REFUSED_CALLS_FEEDBACK if plan.refused_calls else ""
        calls = list(plan.call_texts)
        results = self.toolbox.run(calls)
        if options.error_hints:
            results = [
                hints.explain(call, result, self.toolbox.instances)
                for call, result in zip(plan.calls, results, strict=True)
            ]
        step.decoded = [storable(call) for call in calls]
        step.results = [storable(result) for result in results]
        step.blocked = upstream.blocked_calls[-1]
        self.state = machine.settle(plan.state, results, limit=options.attempt_limit).state
        return machine.results_feedback(step.results)

    def _open(self, turn: int, remark: str, before: list[Any]) -> None:
        """Put the next request to the model. Results of a turn that closed at its limit are not shown."""
        question = self._question(turn)
        shown = remark if remark == machine.REFUSED_CALLS_FEEDBACK else ""
        message = {"role": "user", "content": f"{shown}\n{question}" if shown else question}
        self.record.turns.append(Turn(query=[*before, message], steps=[]))
        self.messages.append(message)

    def _question(self, turn: int) -> str:
        from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC

        restored = self.entry.get("missed_function", {}).get(str(turn))
        if restored is not None:
            return restored_functions(restored, DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC)
        return "\n".join(message["content"] for message in self.entry["question"][turn])

    def _ask(self) -> Reply:
        response, _ = self.handler.generate_with_backoff(
            messages=self.messages,
            model=self.handler.model_name,
            temperature=self.handler.temperature,
            store=False,
        )
        choice = response.choices[0]
        usage = response.usage
        return Reply(
            message=choice.message,
            text=action_text(choice.message),
            truncated=choice.finish_reason == "length",
            input_tokens=usage.prompt_tokens if usage else 0,
            output_tokens=usage.completion_tokens if usage else 0,
        )

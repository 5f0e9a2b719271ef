"""Policies of the embedded model: choosers that need no model, as pure functions of the request.

They read the options from the prompt, as a model would, and answer in the prompt's form. `routing_oracle` is the
exception that knows the labels: it looks the request up.
"""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from bfcl_rollout.scripted.reply import Body, Call, Reply

from bfcl_routing import lexical
from bfcl_routing.answers import write_answer
from bfcl_routing.cards import render_card
from bfcl_routing.cases import Case, load_cases
from bfcl_routing.forms import tool_names
from bfcl_routing.hashing import request_key, sha256_text
from bfcl_routing.view import FormName, is_no_function
from bfcl_routing.wording import GENERIC_CARD, NEUTRAL, STRING_SHA256


class Seen(NamedTuple):
    """One option, read back from a prompt."""

    code: str
    id: str
    card: str
    no_function: bool


class Question(NamedTuple):
    """A request of this environment, read back."""

    form: FormName
    request: str
    options: list[Seen]


class NotARoutingRequestError(ValueError):
    """The request was not written by this environment."""


def read(body: Body) -> Question:
    """Read the request's form, the user's request and the options from a body.

    Raises:
        NotARoutingRequestError: it has another shape.
    """
    users = [m.get("content") for m in body["messages"] if m.get("role") == "user"]
    user = users[-1] if users and isinstance(users[-1], str) else ""
    if tools := body.get("tools"):
        pairs = [(t["function"]["name"], t["function"].get("description") or "") for t in tools]
        return Question("tool_call", _request(user), [_seen(name, name, card) for name, card in pairs])
    if user.startswith("{"):
        value = json.loads(user)
        criteria = value["questions"]["next"]["criteria"]
        options = [_seen(i, i, card or "") for i, card in criteria.items()]
        return Question("typed_question", _request(value["state"]), options)
    _, heading, listed = user.rpartition("\n\nActions:\n")
    if not heading:
        raise NotARoutingRequestError("there is no list of actions")
    options = []
    for line in listed.split("\n"):
        mark, _, rest = line.partition(" ")
        shown, _, card = rest.partition(": ")
        options.append(_seen(shown if mark == "-" else mark.rstrip("."), shown, card))
    return Question(_text_form(body), _request(user), options)


def _text_form(body: Body) -> FormName:
    if body.get("response_format"):
        return "json_choice"
    if body.get("top_logprobs"):
        return "letters_logprob"
    system = "".join(str(m.get("content")) for m in body["messages"] if m.get("role") == "system")
    return "distribution" if "probability" in system else "id_text"


def _request(text: str) -> str:
    """The request out of a state: what follows the label on its second line."""
    lines = text.split("\n")
    return lines[1].partition(": ")[2] if len(lines) > 1 else ""


@functools.cache
def _meta_card_hashes() -> frozenset[str]:
    originals = [h for hashes in STRING_SHA256.values() for h in hashes.values()]
    return frozenset([*originals, *(sha256_text(card) for card in (*NEUTRAL.meta.values(), GENERIC_CARD))])


def _seen(code: str, shown: str, card: str) -> Seen:
    # Under letters as ids only the card tells the no-function actions apart.
    return Seen(code, shown, card, is_no_function(shown) or sha256_text(card) in _meta_card_hashes())


Chooser = Callable[[Question], int | None]
"""Position of the chosen option; None to choose none."""


def answer(choose: Chooser, body: Body) -> Reply:
    """What a chooser says to a request.

    Raises:
        NotARoutingRequestError: the request was not written by this environment.
    """
    question = read(body)
    said = write_answer(question.form, [o.code for o in question.options], choose(question))
    calls = None if said.call is None else (Call(said.call, "{}"),)
    return Reply(said.text, calls, logprobs=said.logprobs)


def _policy(choose: Chooser) -> Callable[[Body], Reply]:
    return functools.partial(answer, choose)


def _tools(question: Question) -> list[int]:
    return [i for i, o in enumerate(question.options) if not o.no_function]


def choose_first(question: Question) -> int | None:
    """The first function in the list."""
    return next(iter(_tools(question)), None)


def choose_last(question: Question) -> int | None:
    """The last function in the list."""
    return next(iter(_tools(question)[::-1]), None)


def choose_none(question: Question) -> int | None:
    """The first no-function action; no call where none is offered."""
    return next((i for i, o in enumerate(question.options) if o.no_function), None)


def choose_longest(question: Question) -> int | None:
    """The function with the longest card; of equal ones the first."""
    return max(_tools(question), key=lambda i: len(question.options[i].card), default=None)


def choose_words(question: Question) -> int | None:
    """The function that shares the most telling words with the request. Blind to order."""
    tools = _tools(question)
    index, _ = lexical.best(question.request, [(question.options[i].id, question.options[i].card) for i in tools])
    return tools[index] if tools else None


def choose_words_or_none(question: Question) -> int | None:
    """As `choose_words`, but no function below a score threshold that was set on training rows."""
    from bfcl_routing.baselines import abstention_threshold

    tools = _tools(question)
    pairs = [(question.options[i].id, question.options[i].card) for i in tools]
    index, score = lexical.best(question.request, pairs)
    return tools[index] if tools and score >= abstention_threshold() else choose_none(question)


def choose_oracle(question: Question) -> int | None:
    """The labelled function if it is offered, else no function."""
    for case in _cases_by_request()[request_key(question.request)]:
        for function in case.functions:
            if function["name"] in case.gold:
                marks = _marks(function, len(case.functions))
                for i in _tools(question):
                    option = question.options[i]
                    if option.id in marks or (option.card and option.card in marks):
                        return i
    return choose_none(question)


def _marks(function: dict[str, Any], n_tools: int) -> set[str]:
    """Every way in which a function may be named or described in a prompt."""
    name = str(function["name"])
    cards = {render_card(function, policy, n_tools) for policy in ("short120", "full", "schema")}
    return {name, *tool_names([name]), *cards} - {""}


@functools.cache
def _cases_by_request() -> defaultdict[str, list[Case]]:
    found: defaultdict[str, list[Case]] = defaultdict(list)
    for case in (
        *load_cases("v1"),
        *load_cases("v4_live"),
        *load_cases("v1", "train"),
        *load_cases("v1", "dev"),
    ):
        found[request_key(case.request)].append(case)
    return found


CHOOSERS: dict[str, Chooser] = {
    "routing_first": choose_first,
    "routing_last": choose_last,
    "routing_none": choose_none,
    "routing_longest": choose_longest,
    "routing_words": choose_words,
    "routing_words_or_none": choose_words_or_none,
    "routing_oracle": choose_oracle,
}

routing_first = _policy(choose_first)
routing_last = _policy(choose_last)
routing_none = _policy(choose_none)
routing_longest = _policy(choose_longest)
routing_words = _policy(choose_words)
routing_words_or_none = _policy(choose_words_or_none)
routing_oracle = _policy(choose_oracle)

"""Other catalogues for the same request: enlarged by functions of other rows, or without the right function.

An added function must not answer the request, or the label would be wrong. So the pool is screened per case: by
name, by how close a description is to the right function's, by whether the function is the answer to a nearly equal
request and, where no function may apply, by whether it shares any telling word with the request. The screens are
word based; they lower the risk, they do not remove it.
"""

from __future__ import annotations

import functools
import math
import random
from collections import defaultdict
from typing import Any, NamedTuple

from bfcl_routing import lexical, source
from bfcl_routing.cases import Case, gold_functions, stratum_of
from bfcl_routing.hashing import sha256_text
from bfcl_routing.view import View

SAME_DESCRIPTION = 0.4
"""Share of common word stems (Jaccard) from which on two functions count as doing the same."""
SAME_REQUEST = 0.5
"""Share of common word stems from which on two requests count as nearly equal."""
TELLING_SCORE = 4.0
"""Word-overlap score from which on a function may answer a request. Negatives are screened with it."""


def with_catalogue(case: Case, view: View) -> Case | None:
    """The case with the functions that the view's catalogue policies offer.

    Returns:
        The case itself where the policies change nothing; None where `gold_removed` has nothing to remove or would
        leave a function that may fit.

    Raises:
        ValueError: the screened pool is too small for `catalogue_k`.
    """
    if view.gold_removed:
        if case.stratum != "multi_tool_call":
            return None
        removed = _remove_gold(case)
        if removed is None:
            return None
        return _enlarge(removed, view, right=_right(case))
    return _enlarge(case, view, right=_right(case))


def _right(case: Case) -> list[dict[str, Any]]:
    return [f for f in case.functions if f["name"] in case.gold]


def _remove_gold(case: Case) -> Case | None:
    left = tuple(f for f in case.functions if f["name"] not in case.gold)
    if not left or any(alike(f, right) for f in left for right in _right(case)):
        return None
    return case.model_copy(update={"functions": left, "gold": (), "stratum": stratum_of(len(left), False)})


def _enlarge(case: Case, view: View, right: list[dict[str, Any]]) -> Case:
    missing = (view.catalogue_k or 0) - len(case.functions)
    if missing <= 0:
        return case
    candidates = screened(case, right)
    if len(candidates) < missing:
        raise ValueError(f"case {case.id}: only {len(candidates)} functions pass the screens, {missing} are needed")
    chance = random.Random(sha256_text(f"{view.seed}\0{case.id}"))
    if view.sampler == "nearest":
        likeness = [_profile(f) for f in right or case.functions]
        # A stable sort: equally near functions stay in pool order.
        candidates.sort(key=lambda profile: -max(similarity(profile, other) for other in likeness))
        extra = candidates[:missing]
    else:
        extra = chance.sample(candidates, missing)
    functions = [*case.functions, *(profile.function for profile in extra)]
    chance.shuffle(functions)
    return case.model_copy(
        update={"functions": tuple(functions), "stratum": stratum_of(len(functions), bool(case.gold))}
    )


class Profile(NamedTuple):
    """A function with what the screens look at."""

    function: dict[str, Any]
    name: str
    part: str
    description: frozenset[str]
    """Word stems of the description."""
    words: frozenset[str]
    """Word stems of name and description."""
    length: float
    """Euclidean length of `words` weighted by inverse document frequency."""


def _profile(function: dict[str, Any]) -> Profile:
    name, description = str(function["name"]), str(function["description"])
    words = lexical.stems(f"{name} {description}")
    return Profile(function, name, last_part(name), lexical.stems(description), words, _weight(words) ** 0.5)


def _weight(words: frozenset[str]) -> float:
    weights = lexical.idf()
    return math.fsum(weights.get(s, 0.0) ** 2 for s in words)


@functools.cache
def named_pool() -> tuple[Profile, ...]:
    """One function per distinct name of the single-turn files, the first that has it."""
    pool: dict[str, dict[str, Any]] = {}
    for function in lexical.function_pool():
        pool.setdefault(str(function["name"]), function)
    return tuple(_profile(function) for function in pool.values())


def screened(case: Case, right: list[dict[str, Any]]) -> list[Profile]:
    """Functions of other rows that may be offered with a case, in pool order.

    Args:
        case: the case.
        right: the functions that are right for its request, offered or not.
    """
    taken = {last_part(f["name"]) for f in [*case.functions, *right]}
    answers = _answers_to_similar(case.request)
    descriptions = [lexical.stems(f["description"]) for f in right]
    return [
        profile
        for profile in named_pool()
        if profile.part not in taken
        and profile.name not in answers
        and all(_jaccard(profile.description, d) < SAME_DESCRIPTION for d in descriptions)
        and (case.gold or lexical.score_stems(case.request, profile.words) < TELLING_SCORE)
    ]


def last_part(name: str) -> str:
    """The part of a dotted name that says what is done, in lower case and without underscores."""
    return name.rpartition(".")[2].casefold().replace("_", "")


def alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two functions may do the same: same last name part, or descriptions mostly of the same words."""
    if last_part(one["name"]) == last_part(other["name"]):
        return True
    return _jaccard(lexical.stems(one["description"]), lexical.stems(other["description"])) >= SAME_DESCRIPTION


def similarity(one: Profile, other: Profile) -> float:
    """Cosine of two functions' words, weighted by inverse document frequency."""
    if not one.length or not other.length:
        return 0.0
    return round(_weight(one.words & other.words) / (one.length * other.length), 9)


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    common = len(one & other)
    return common / (len(one) + len(other) - common) if common else 0.0


@functools.cache
def _answered() -> dict[frozenset[str], set[str]]:
    """Right functions of every labelled single-turn row, by the word stems of its request."""
    found: dict[frozenset[str], set[str]] = defaultdict(set)
    for category in lexical.CATEGORIES:
        if category.endswith("relevance"):
            continue
        answers = source.answers(category)
        for row in source.package_rows(source.question_file(category)):
            try:
                gold = gold_functions(category, answers[row["id"]], [f["name"] for f in row["function"]])
                request = source.request_text(row)
            except (ValueError, KeyError):
                continue
            found[lexical.stems(request)].update(gold)
    return dict(found)


def _answers_to_similar(request: str) -> set[str]:
    words = lexical.stems(request)
    similar = (gold for other, gold in _answered().items() if _jaccard(words, other) >= SAME_REQUEST)
    return set().union(*similar)

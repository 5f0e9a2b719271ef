"""A word-overlap matcher: the baseline that needs no model.

A function scores the sum of the inverse document frequencies of the word stems that it shares with the request. Names
are split at dots, underscores and capitals. Frequencies are counted over every distinct (name, description) pair of
the official package's single-turn files.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from bfcl_routing import source

CATEGORIES = (
    "multiple",
    "simple_python",
    "simple_java",
    "simple_javascript",
    "irrelevance",
    "exec_simple",
    "exec_multiple",
    "live_multiple",
    "live_simple",
    "live_irrelevance",
    "live_relevance",
    "parallel",
    "parallel_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "exec_parallel",
    "exec_parallel_multiple",
)
"""The single-turn categories of the official package, in the order in which rows count as first seen."""

_STOP_WORDS = (
    "a an and any are as at be been but by can could did do does for from get give had has have how i if in into is "
    "it its let like may me my need of on or our out please should so some such than that the their them then there "
    "these they this to up us use used using want was we were what when where which who will with would you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())
_DIGITS = 6
"""Scores are rounded to it, so that rounding in a sum cannot decide between equal functions."""


@functools.cache
def stems(text: str) -> frozenset[str]:
    """Word stems of a text, stop words and single characters left out."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)
    words = re.findall(r"[^\W_]+", spaced.casefold())
    return frozenset(stem(w) for w in words if len(w) > 1 and w not in STOP_WORDS)


def stem(word: str) -> str:
    """A word without its plural, `-ing` or `-ed` ending and without a final `e`."""
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(ending) + ("y" if ending == "ies" else "")
            break
    return word.removesuffix("e") if len(word) > 3 else word


@functools.cache
def function_pool() -> tuple[dict[str, Any], ...]:
    """Every distinct (name, description) pair of the single-turn files, the first function that has it."""
    pool: dict[tuple[str, str], dict[str, Any]] = {}
    for category in CATEGORIES:
        for row in source.package_rows(source.question_file(category)):
            for function in row.get("function") or ():
                pool.setdefault((function["name"], function["description"]), function)
    return tuple(pool.values())


@functools.cache
def idf() -> dict[str, float]:
    """Inverse document frequency of each stem over `function_pool()`: `log((1 + N) / (1 + n))`."""
    pool = function_pool()
    counts = Counter(s for f in pool for s in stems(f"{f['name']} {f['description']}"))
    return {s: math.log((1 + len(pool)) / (1 + n)) for s, n in counts.items()}


def score(request: str, name: str, card: str) -> float:
    """How well a function matches a request; 0 if no word is shared."""
    return score_stems(request, stems(f"{name} {card}"))


def score_stems(request: str, words: frozenset[str]) -> float:
    """`score` of a function given by its word stems."""
    weights = idf()
    return round(math.fsum(weights.get(s, 0.0) for s in stems(request) & words), _DIGITS)


def best(request: str, functions: Sequence[tuple[str, str]]) -> tuple[int, float]:
    """Position and score of the best matching (name, card) pair, or (-1, 0) if there is none.

    Equal scores are decided by the pairs' text, so that the order of the functions does not matter.
    """
    scores = [score(request, name, card) for name, card in functions]
    if not scores:
        return -1, 0.0
    index = min(range(len(scores)), key=lambda i: (-scores[i], functions[i]))
    return index, scores[index]

"""Finding the sentence that answers a question: splitting, word forms, and a ranking over sentences.

A plain lexical baseline. Sentences are scored by the words they share with the question, rare words counting
more (the idf of BM25), with a bonus for adjacent pairs and for the kind of thing asked for (a number, a
name). Everything is about English in general, nothing about a particular benchmark.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

_WORD = re.compile(r"[a-z0-9$%]+(?:[.:][0-9]+)*")
_SENTENCE = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
_NUMBER = re.compile(
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen"
    r"|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million"
    r"|half|once|twice)\b",
    re.IGNORECASE,
)
_NAME = re.compile(r"(?<=[a-z,;:—-] )[A-Z][a-z]+|(?<=—)[A-Z][a-z]+")
_ASKS_NUMBER = re.compile(r"\bhow (?:many|much|old|long|often|far|big|large)\b|\bnumber of\b|\bpercent", re.IGNORECASE)
_ASKS_TIME = re.compile(
    r"\bwhen\b|\bwhat (?:time|date|day|year|month)\b|\bwhich (?:day|date|year|month)\b", re.IGNORECASE
)
_ASKS_NAME = re.compile(r"\bwho\b|\bwhose\b|\bwhere\b|\bname\b|\bwhich (?:city|country|company|brand)\b", re.IGNORECASE)

_STOPWORDS = (
    "a about above after again all also am an and any are as at be because been before being but by can "
    "could did do does doing done down during each even every few for from further get gets getting "
    "give go goes going got had has have having he her here hers him his how i if in into is it its "
    "itself just kind know let like ll m made make many may me might mine more most much must my myself "
    "name no nor not now of off oh on once only or other our ours out over own per please quite re "
    "really s said same say she should since so some such t than that the their them then there these "
    "they thing things think this those though through to too under until up us use ve very was way we "
    "well were what when where which while who whom whose why will with would yeah yes you your yours "
)
STOPWORDS = frozenset(_STOPWORDS.split())


def sentences(text: str) -> list[str]:
    """Split prose into sentences; line breaks end one as well."""
    return [each.strip() for each in _SENTENCE.split(text) if each.strip()]


def words(text: str) -> list[str]:
    """Lower-case words of a text, apostrophes gone."""
    return _WORD.findall(text.lower().replace("’", "'").replace("'", " "))


def keywords(text: str) -> list[str]:
    """The words that say what a text is about, in order, without repetition."""
    return list(dict.fromkeys(word for word in words(text) if word not in STOPWORDS and len(word) > 1))


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without its commonest endings. Cruder than Porter's stemmer, and enough to match word forms."""
    for ending in (
        "ization",
        "ations",
        "ation",
        "ingly",
        "ings",
        "ing",
        "edly",
        "ies",
        "ied",
        "ers",
        "est",
        "ed",
        "er",
        "es",
        "ly",
        "s",
        "e",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


def stems(text: str) -> list[str]:
    """Stems of the words of a text that are not stop words, with repetition."""
    return [stem(word) for word in words(text) if word not in STOPWORDS]


def informativeness(sentence: str) -> float:
    """How much a sentence says per character: numbers, names and content words against its length."""
    content = len(keywords(sentence)) + 3 * len(_NUMBER.findall(sentence)) + 2 * len(_NAME.findall(sentence))
    return content / (len(sentence) + 20)


def best_sentences(question: str, texts: Sequence[str], limit: int) -> list[str]:
    """The sentences of `texts` that match the question best, best first, up to `limit` characters in all.

    A sentence inherits part of the score of its neighbours in the same text, because an answer often follows
    the sentence that names its subject. Nothing is returned when no word is shared.
    """
    pool = [(index, sentence) for index, text in enumerate(dict.fromkeys(texts)) for sentence in sentences(text)]
    asked = list(dict.fromkeys(stems(question)))
    pairs = set(pairwise(asked))
    found = [stems(sentence) for _, sentence in pool]
    seen = Counter(stem for each in found for stem in set(each))
    weight = {stem: math.log(1 + (len(pool) - seen[stem] + 0.5) / (seen[stem] + 0.5)) for stem in asked}
    own = [_overlap(each, weight, pairs) for each in found]
    scores = []
    for position, (text, sentence) in enumerate(pool):
        near = [
            own[other] for other in (position - 1, position + 1) if 0 <= other < len(pool) and pool[other][0] == text
        ]
        score = own[position] + 0.25 * max(near, default=0.0)
        scores.append(score * _suits(question, sentence) if score else 0.0)
    ranked = sorted((-score, position) for position, score in enumerate(scores) if score > 0)
    chosen: list[str] = []
    for _, position in ranked:
        sentence = pool[position][1]
        if sentence not in chosen and sum(map(len, chosen)) + len(sentence) <= limit:
            chosen.append(sentence)
    if ranked and not chosen:
        chosen = [pool[ranked[0][1]][1][:limit]]
    return chosen


def _overlap(found: list[str], weight: dict[str, float], pairs: set[tuple[str, str]]) -> float:
    score = sum(value for stem, value in weight.items() if stem in found)
    adjacent = set(pairwise(found)) & pairs
    score += sum(0.5 * (weight[first] + weight[second]) for first, second in adjacent)
    # Long sentences match by chance.
    return score / (1 + 0.02 * len(found))


def _suits(question: str, sentence: str) -> float:
    """A factor for whether the sentence holds the kind of thing that is asked for."""
    if _ASKS_NUMBER.search(question) or _ASKS_TIME.search(question):
        return 1.5 if _NUMBER.search(sentence) else 1.0
    if _ASKS_NAME.search(question):
        return 1.3 if _NAME.search(sentence) else 1.0
    return 1.0

"""Retrieval without a database: words of any script, BM25, cosine, the best few. Pure.

BM25 after Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009), with the idf that
Lucene uses, which is never negative; rankings are joined by reciprocal rank fusion (Cormack et al.,
2009).
"""

from __future__ import annotations

import heapq
import math
import re
import sys
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import mul

from async_nodes.nodes.breathing import breathing

K1 = 1.2
B = 0.75
FUSION = 60
"""Ranks count as 1 / (FUSION + rank): how much the first places outweigh the later ones."""

# Scripts that put no spaces between words: Thai, Lao, Burmese, Khmer; kana, bopomofo, ideographs.
# Hangul does, but its words carry particles.
_RUNS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
    "\u3005-\u3007\u3040-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\U00020000-\U0003ffff"
)
_TOKEN = re.compile(rf"(?P<run>[{_RUNS}]+)|[^\W_{_RUNS}]+")


def tokenise(text: str) -> list[str]:
    """Return the words of a text; in scripts without spaces each character and each pair.

    Full-width and half-width forms and upper and lower case are the same.
    """
    tokens: list[str] = []
    for found in _TOKEN.finditer(unicodedata.normalize("NFKC", text).casefold()):
        token = found[0]
        if found["run"] is None:
            tokens.append(token)
        else:
            tokens += token
            tokens += [first + second for first, second in pairwise(token)]
    return tokens


class Bm25:
    """Score texts, numbered in the order they were added, by the words of a query.

    Where a word is, is a chain through three arrays, from its last text to its first: among
    millions of places there is no object of Python's that its garbage collector would visit.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lengths = array("I")
        self._total = 0
        self._last: dict[str, int] = {}
        self._before, self._numbers, self._counts = array("i"), array("I"), array("I")
        for text in texts:
            self.add(text)

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, text: str) -> None:
        """Add a text."""
        tokens = tokenise(text)
        number = len(self._lengths)
        self._lengths.append(len(tokens))
        self._total += len(tokens)
        for token, count in Counter(tokens).items():
            self._before.append(self._last.get(token, -1))
            self._last[token] = len(self._numbers)
            self._numbers.append(number)
            self._counts.append(count)

    def scores(self, query: str) -> dict[int, float]:
        """Return the score, above 0, of each text that has a word of the query."""
        found: dict[int, float] = {}
        average = self._total / max(1, len(self)) or 1.0
        for token, times in breathing(Counter(tokenise(query)).items()):
            places = list(self._places(token))
            idf = math.log(1 + (len(self) - len(places) + 0.5) / (len(places) + 0.5))
            for place in places:
                number, count = self._numbers[place], self._counts[place]
                norm = K1 * (1 - B + B * self._lengths[number] / average)
                weight = times * idf * count * (K1 + 1) / (count + norm)
                found[number] = found.get(number, 0.0) + weight
        return found

    def _places(self, token: str) -> Iterator[int]:
        place = self._last.get(token, -1)
        while place >= 0:
            yield place
            place = self._before[place]


def unit(vector: Sequence[float]) -> array[float]:
    """Return a vector's direction: length 1 in single precision; zeros where it has none."""
    largest = max(map(abs, vector), default=0.0)
    scaled = [number / (largest or 1.0) for number in vector]  # squares of tiny ones get lost
    length = math.sqrt(sum(number * number for number in scaled))
    if not length or not math.isfinite(length):
        return array("f", bytes(4 * len(vector)))
    return array("f", [number / length for number in scaled])


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the cosine of two vectors that `unit` has made."""
    if sys.version_info >= (3, 12):
        return math.sumprod(left, right)
    total: float = sum(map(mul, left, right))
    return total


def top_k(scores: Mapping[int, float], count: int) -> list[tuple[int, float]]:
    """Return the best numbers with their scores, best first; equal ones in their order."""
    return heapq.nsmallest(count, scores.items(), key=lambda item: (-item[1], item[0]))


def fused(rankings: Iterable[Sequence[int]]) -> dict[int, float]:
    """Return scores that join rankings, each of numbers with the best first."""
    found: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            found[number] = found.get(number, 0.0) + 1 / (FUSION + rank)
    return found


def rows(numbers: array[float], width: int) -> Iterator[memoryview]:
    """Yield vectors that lie one after the other, without a copy."""
    view = memoryview(numbers)
    for start in range(0, len(numbers), width or 1):
        yield view[start : start + width]

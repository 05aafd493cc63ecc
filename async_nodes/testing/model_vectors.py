"""The simulated model, embedding: vectors in which similar texts are near. Pure.

Each word, and each run of three characters within one, adds or takes 1 at a place that its hash
picks ("feature hashing", Weinberger et al., 2009); the sum is brought to length 1. Texts that
share words share places, whatever the process or the day.
"""

from __future__ import annotations

import base64
import math
import re
import struct
import zlib
from collections.abc import Iterator

DIMENSIONS = 256
MAX_DIMENSIONS = 4_096

_WORD = re.compile(r"[a-z0-9_]+|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W\d_]+")
_WORD_WEIGHT = 2.0
_GRAM = 3
_CJK_GRAM = 2


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """Return a text's vector of length 1; a text without a word points along the first axis."""
    places = [0.0] * dimensions
    for feature, weight in _features(text.lower()):
        hashed = zlib.crc32(feature.encode("utf-8", "surrogatepass"))
        places[hashed % dimensions] += weight if hashed & 0x8000_0000 else -weight
    length = math.hypot(*places)
    if length == 0:
        return [1.0] + [0.0] * (dimensions - 1)
    # What a 32-bit float holds, as both ways to write a vector must give the same numbers.
    packed = struct.pack(f"<{dimensions}f", *(place / length for place in places))
    return list(struct.unpack(f"<{dimensions}f", packed))


def as_base64(numbers: list[float]) -> str:
    """Return a vector as base64 of little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode("ascii")


def _features(text: str) -> Iterator[tuple[str, float]]:
    for match in _WORD.finditer(text):
        word = match[0]
        cjk = word[0] >= "\u3040"
        if not cjk:
            yield word, _WORD_WEIGHT
        size, padded = (_CJK_GRAM, word) if cjk else (_GRAM, f"^{word}$")
        for start in range(max(1, len(padded) - size + 1)):
            yield padded[start : start + size], 1.0

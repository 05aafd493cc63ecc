"""Built-in node ``text.chunk``: cut a text into overlapping pieces for retrieval.

A piece ends where a sentence ends when one does within reach, else between two words, else
between two characters, but never inside one that is written with several code points.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from async_nodes.core.errors import TerminalError
from async_nodes.nodes.spec import node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from async_nodes.nodes.context import NodeContext

MAX_SIZE = 100_000
MAX_OUTPUT = 32 * 1024 * 1024
REPORT_EVERY = 256

# A Latin full stop needs white space behind it (3.14, example.com); a CJK one does not. A run of
# stops is looked at once, from its beginning: a text of nothing else takes no longer than another.
_SENTENCE = re.compile(
    r"(?:[.!?…](?<![.!?…]{2})[.!?…]*+[\"'”’)\]]*+(?=\s)|[。！？；…]+[”’」』）】]*|\n)\s*"
)
_WORD = re.compile(r"\s+|(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])")
_JOINER = "\u200d"


@node("text.chunk", kind="cpu", timeout=300.0)
def text_chunk(
    ctx: NodeContext,
    text: str,
    size: Annotated[int, msgspec.Meta(ge=1, le=MAX_SIZE)] = 1_000,
    overlap: Annotated[int, msgspec.Meta(ge=0)] = 100,
) -> dict[str, Any]:
    """Cut a text into pieces of at most `size` characters.

    Args:
        ctx: the attempt's context.
        text: any text.
        size: most characters of one piece.
        overlap: most characters that a piece repeats of the one before; less than `size`.

    Returns:
        ``{chunks: [{index, start, end, text}], count}``; ``text`` is exactly
        ``text[start:end]`` of the input, and every character is in some piece.

    """
    if overlap >= size:
        raise TerminalError("overlap must be less than size", code="invalid_inputs")
    chunks: list[dict[str, Any]] = []
    total = 0
    for index, (start, end) in enumerate(spans(text, size=size, overlap=overlap)):
        total += end - start
        if total > MAX_OUTPUT:
            message = f"the pieces hold more than {MAX_OUTPUT} characters; lower overlap"
            raise TerminalError(message, code="output_too_large")
        chunks.append({"index": index, "start": start, "end": end, "text": text[start:end]})
        if index % REPORT_EVERY == 0:
            ctx.progress(end / len(text))
    ctx.progress(1.0)
    return {"chunks": chunks, "count": len(chunks)}


def spans(text: str, *, size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each piece; each ends behind the one before.

    Only what has been asked for is searched, so a caller may pause between two pieces.
    """
    sentences, words = _Cuts(_SENTENCE, text), _Cuts(_WORD, text)
    start = end = 0
    while end < len(text):
        words.pass_over(start)
        found = _end(text, (sentences, words), start=start, behind=end, size=size)
        if found is None:
            # What the piece would repeat leaves no room for a whole character behind it.
            start = end
            found = _end(text, (sentences, words), start=start, behind=end, size=size)
        end = start + size if found is None else found  # one character longer than a piece
        yield start, end
        start = _next_start(text, (sentences, words), start=start, end=end, overlap=overlap)


class _Cuts:
    """Find the ends of sentences or words, as far as they are asked for.

    An end that is followed by something that belongs to it, such as an accent on a space, is none.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._text = text
        self._matches = pattern.finditer(text)
        self._pattern = pattern
        self._found: list[int] = []
        self._seen = 0

    def pass_over(self, start: int) -> None:
        """Do not look before a place: for ends that hang on nothing before them."""
        if self._seen < start:
            self._matches = self._pattern.finditer(self._text, start)
            self._seen = start

    def last(self, behind: int, until: int) -> int | None:
        """Return the last place after `behind` and not after `until`."""
        self._read(until)
        position = bisect_right(self._found, until)
        return (
            self._found[position - 1] if position and self._found[position - 1] > behind else None
        )

    def first(self, start: int, before: int) -> int | None:
        """Return the first place from `start` on that lies before another."""
        self._read(before)
        position = bisect_left(self._found, start)
        if position < len(self._found) and self._found[position] < before:
            return self._found[position]
        return None

    def _read(self, until: int) -> None:
        while self._seen <= until:
            match = next(self._matches, None)
            if match is None:
                self._seen = len(self._text) + 1
                return
            self._seen = match.end()
            if not _joins(self._text, self._seen):
                self._found.append(self._seen)


def _end(text: str, cuts: tuple[_Cuts, ...], *, start: int, behind: int, size: int) -> int | None:
    """Return where a piece ends, after `behind`; None if that would be inside a character."""
    limit = start + size
    if limit >= len(text):
        return len(text)
    # Half a piece is the least a boundary may leave, or short sentences would make crumbs.
    least = max(behind, start + size // 2)
    for places in cuts:
        place = places.last(least, limit)
        if place is not None:
            return place
    return next((cut for cut in range(limit, behind, -1) if not _joins(text, cut)), None)


def _next_start(text: str, cuts: tuple[_Cuts, ...], *, start: int, end: int, overlap: int) -> int:
    earliest = max(start + 1, end - overlap)
    for places in cuts:
        place = places.first(earliest, end)
        if place is not None:
            return place
    return next((cut for cut in range(earliest, end) if not _joins(text, cut)), end)


def _joins(text: str, cut: int) -> bool:
    """Tell whether the characters around a position belong together."""
    if cut >= len(text):
        return False
    after = text[cut]
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or after == _JOINER
        or text[cut - 1] == _JOINER
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or (after == "\n" and text[cut - 1] == "\r")
    )

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

# A Latin full stop needs white space behind it (3.14, example.com); a CJK one does not.
_SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*(?=\s)|[。！？；…]+[”’」』）】]*|\n)\s*")
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
    """Yield the start and end of each piece."""
    sentences = [match.end() for match in _SENTENCE.finditer(text)]
    words = [match.end() for match in _WORD.finditer(text)]
    start = 0
    while start < len(text):
        end = _end(text, sentences, words, start=start, size=size)
        yield start, end
        if end >= len(text):
            return
        start = _next_start(text, sentences, words, start=start, end=end, overlap=overlap)


def _end(text: str, sentences: list[int], words: list[int], *, start: int, size: int) -> int:
    limit = start + size
    if limit >= len(text):
        return len(text)
    # Half a piece is the least a boundary may leave, or short sentences would make crumbs.
    for cuts in (sentences, words):
        position = bisect_right(cuts, limit)
        if position and cuts[position - 1] > start + size // 2:
            return cuts[position - 1]
    cut = limit
    while cut > start + 1 and _joins(text, cut):
        cut -= 1
    return limit if cut == start + 1 and _joins(text, cut) else cut


def _next_start(
    text: str, sentences: list[int], words: list[int], *, start: int, end: int, overlap: int
) -> int:
    earliest = max(start + 1, end - overlap)
    for cuts in (sentences, words):
        position = bisect_left(cuts, earliest)
        if position < len(cuts) and cuts[position] < end:
            return cuts[position]
    cut = earliest
    while cut < end and _joins(text, cut):
        cut += 1
    return cut


def _joins(text: str, cut: int) -> bool:
    """Tell whether the characters around a position belong together."""
    after = text[cut]
    return (
        unicodedata.category(after) in ("Mn", "Mc", "Me")
        or after == _JOINER
        or text[cut - 1] == _JOINER
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or (after == "\n" and text[cut - 1] == "\r")
    )

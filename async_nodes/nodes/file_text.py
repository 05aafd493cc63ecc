"""Built-in node ``file.text``: the text in a file, for the nodes that take text.

Reads a file in pieces and gives a part of it, so that a large one can be worked through.
"""

from __future__ import annotations

import codecs
import io
from typing import Annotated, Any

import msgspec

from async_nodes.core.errors import TerminalError
from async_nodes.nodes.files import File
from async_nodes.nodes.spec import node

MOST_CHARACTERS = 4_000_000
_STEP = 65_536
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@node("file.text")
def file_text(
    file: File,
    encoding: str = "utf-8",
    start: Annotated[int, msgspec.Meta(ge=0)] = 0,
    length: Annotated[int, msgspec.Meta(ge=1, le=MOST_CHARACTERS)] = 1_000_000,
) -> dict[str, Any]:
    """Return the text of a file, or a part of it.

    Args:
        file: of text.
        encoding: of the file; a byte order mark goes before it.
        start: of the part, in characters.
        length: of the part at most, in characters.

    Returns:
        ``{text, start, more}``; `more` tells whether the file goes on.

    """
    text, more = part_of(file, encoding, start, length)
    return {"text": text, "start": start, "more": more}


def part_of(
    file: File, encoding: str = "utf-8", start: int = 0, length: int = MOST_CHARACTERS
) -> tuple[str, bool]:
    """Return a part of a file's text, and whether more follows.

    Args:
        file: of text.
        encoding: of the file; a byte order mark goes before it.
        start: of the part, in characters.
        length: of the part at most, in characters.

    Raises:
        TerminalError: ``invalid_inputs`` for what is no text in this encoding, ``file_gone``.

    """
    try:
        return _part(file, encoding, start, length)
    except LookupError:
        message = f"there is no encoding {encoding[:100]!r}"
        raise TerminalError(message, code="invalid_inputs") from None
    except UnicodeDecodeError as error:
        message = f"{file.name} is no text in {error.encoding}: {error.reason}"
        raise TerminalError(message, code="invalid_inputs") from None


def _part(file: File, encoding: str, start: int, length: int) -> tuple[str, bool]:
    """Return a part of a file's text, and whether more follows; what is passed over is not kept."""
    with file.open() as stream:
        beginning = stream.read(3)
        stream.seek(0)
        meant = next((name for mark, name in _MARKS if beginning.startswith(mark)), encoding)
        with io.TextIOWrapper(stream, meant, newline="") as reader:
            for left in range(start, 0, -_STEP):
                reader.read(min(left, _STEP))
            text = reader.read(length + 1)
    return text[:length], len(text) > length

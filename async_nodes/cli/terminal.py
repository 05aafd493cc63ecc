"""What the terminal can show: colour, cursor control, characters; and text cut to its width.

Pure but for `Terminal.of`, which asks the stream and the environment once.
"""

from __future__ import annotations

import os
import shutil
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TextIO

STYLES: Final[Mapping[str, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_UNBOUNDED = 1_000
#: A piece of a line and its style: names of `STYLES` separated by spaces, or nothing.
Piece = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminal:
    """Say what may be written.

    Attributes:
        color: whether styles are shown.
        live: whether lines may be drawn over.
        unicode: whether more than ASCII can be written.
        columns, rows: the size.

    """

    color: bool = False
    live: bool = False
    unicode: bool = True
    columns: int = 100
    rows: int = 24

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] = os.environ) -> Terminal:
        """Return what ``stream`` can show, by NO_COLOR, FORCE_COLOR, TERM and the stream itself."""
        live = stream.isatty() and environ.get("TERM", "") != "dumb"
        # Lines that nothing draws over need not be cut.
        size = shutil.get_terminal_size((100, 24) if live else (_UNBOUNDED, 24))
        return cls(
            color=wants_color(environ, is_terminal=live),
            live=live,
            unicode=can_encode(stream, "●✔━"),
            columns=size.columns,
            rows=size.lines,
        )

    def line(self, pieces: Iterable[Piece], *, columns: int | None = None) -> str:
        """Return one line, cut to the width, with its styles as far as they are shown."""
        left = self.columns if columns is None else columns
        shown: list[str] = []
        for text, style in pieces:
            cut = clip(text, left, ellipsis="…" if self.unicode else "~")
            left -= width(cut)
            shown.append(self.paint(cut, style))
            if cut != text:
                break
        return "".join(shown)

    def paint(self, text: str, style: str) -> str:
        """Return ``text`` in a style, plain where colour is off."""
        if not self.color or not style or not text:
            return text
        codes = ";".join(STYLES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"


def wants_color(environ: Mapping[str, str], *, is_terminal: bool) -> bool:
    """Tell whether to colour: NO_COLOR forbids, FORCE_COLOR asks, else a terminal decides."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR", "") not in {"", "0"}:
        return True
    return is_terminal


def can_encode(stream: TextIO, text: str) -> bool:
    """Tell whether ``stream`` can write ``text``."""
    encoding = getattr(stream, "encoding", None)
    if encoding is None:  # it takes text, not bytes
        return True
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width(text: str) -> int:
    """Return the columns that ``text`` takes: two for wide characters, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def clip(text: str, columns: int, *, ellipsis: str = "…") -> str:
    """Return ``text``, cut with an ellipsis where it does not fit into ``columns``."""
    if width(text) <= columns:
        return text
    room = columns - width(ellipsis)
    if room < 0:
        return ""
    kept, used = [], 0
    for character in text:
        used += _columns(character)
        if used > room:
            break
        kept.append(character)
    return "".join(kept) + ellipsis


def pad(text: str, columns: int) -> str:
    """Return ``text`` filled with spaces to ``columns``."""
    return text + " " * (columns - width(text))


def fill(text: str, columns: int) -> list[str]:
    """Return ``text`` as lines of at most ``columns``, broken at spaces where there are any."""
    lines: list[str] = []
    for paragraph in text.split("\n"):
        line = ""
        for word in paragraph.split(" "):
            joined = f"{line} {word}" if line else word
            if width(joined) <= columns:
                line = joined
                continue
            if line:
                lines.append(line)
            *whole, line = _slices(word, columns)
            lines += whole
        lines.append(line)
    return lines


def printable(text: str, *, keep: str = "") -> str:
    """Return ``text`` without control characters: what a model says may not steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c in keep or _is_harmless(c) else " " for c in text)


def _is_harmless(character: str) -> bool:
    # Cf holds the joiners that emoji and many scripts need, and the overrides that reverse text.
    if "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069":
        return False
    return unicodedata.category(character) not in {"Cc", "Cs", "Zl", "Zp"}


def _slices(word: str, columns: int) -> list[str]:
    """Return ``word`` in pieces that fit; a Chinese sentence is one word here."""
    pieces, piece, used = [], "", 0
    for character in word:
        size = _columns(character)
        if piece and used + size > columns:
            pieces.append(piece)
            piece, used = "", 0
        piece += character
        used += size
    return [*pieces, piece]


def _columns(character: str) -> int:
    if character == "\u200d" or unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1

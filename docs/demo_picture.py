"""Write docs/demo.svg: what ``./run demo --once`` leaves on a terminal, as text.

Outside the way of a task. Runs the demo on a terminal of its own, follows the few control
sequences that it uses (colour, up, clear) and draws the last screen. Run it with any Python:
``python3 docs/demo_picture.py``.
"""  # noqa: INP001 - a script beside the pages, no package

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator
from html import escape
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PICTURE = Path(__file__).with_name("demo.svg")
COMMAND = ("./run", "demo", "--once")
COLUMNS, ROWS = 110, 50

CELL, LINE, SIZE, MARGIN, BAR = 7.8, 18, 13, 16, 30  # pixels
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
COLOURS = {
    31: "#ff7b72",
    32: "#56d364",
    33: "#e3b341",
    34: "#79c0ff",
    35: "#d2a8ff",
    36: "#56d4dd",
}
BOLD, DIM = 1, 2

PARTS = re.compile(r"[^ ]+(?: [^ ]+)*")  # single spaces stay inside

TOKEN = re.compile(
    r"\x1b\[(?P<numbers>[0-9;]*)(?P<kind>[A-Za-z])|(?P<character>[^\x1b])", re.DOTALL
)


class Cell(NamedTuple):
    """One character, its style (numbers of SGR) and the columns it takes."""

    text: str
    style: frozenset[int]
    columns: int


class Screen:
    """Follow what is written to a terminal that is long enough never to scroll."""

    def __init__(self) -> None:
        self.lines: list[list[Cell]] = [[]]
        self._row = 0
        self._style: frozenset[int] = frozenset()

    def write(self, text: str) -> None:
        """Take a piece of output."""
        for token in TOKEN.finditer(text):
            if token["character"] is None:
                self._control(token["kind"], [int(n or 0) for n in token["numbers"].split(";")])
            else:
                self._put(token["character"])

    def _put(self, character: str) -> None:
        if character == "\n":
            self._row += 1
            if self._row == len(self.lines):
                self.lines.append([])
        elif character == "\r":
            return  # the demo writes whole lines: what follows is a line feed
        else:
            self.lines[self._row].append(Cell(character, self._style, columns(character)))

    def _control(self, kind: str, numbers: list[int]) -> None:
        if kind == "m":
            self._style = frozenset() if numbers == [0] else self._style | set(numbers)
        elif kind == "F":
            self._row = max(0, self._row - (numbers[0] or 1))
        elif kind == "J":
            del self.lines[self._row :]
            self.lines.append([])
        else:
            message = f"the demo wrote a control sequence that is not known here: {kind}"
            raise ValueError(message)


def columns(character: str) -> int:
    """Return the columns that a character takes."""
    if unicodedata.category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1


def recorded() -> str:
    """Return all that the demo writes on a terminal.

    Raises:
        SystemExit: the demo failed.

    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environ = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": os.environ["PATH"]}
    environ["HOME"] = os.environ.get("HOME", "/")
    with subprocess.Popen(
        COMMAND, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as demo:
        os.close(theirs)
        output = b"".join(chunks(ours))
    if demo.returncode != 0:
        sys.exit(f"the demo ended with {demo.returncode}:\n{output.decode(errors='replace')}")
    return output.decode()


def chunks(descriptor: int) -> Iterator[bytes]:
    """Yield what arrives until the other end of a pseudo terminal is closed."""
    while True:
        try:
            piece = os.read(descriptor, 65_536)
        except OSError:  # Linux's way to say that nobody writes any more
            return
        if not piece:
            return
        yield piece


def drawn(lines: list[list[Cell]]) -> str:
    """Return the picture of a screen."""
    width = round(COLUMNS * CELL + 2 * MARGIN)
    height = BAR + len(lines) * LINE + MARGIN
    body = "".join(
        text for number, line in enumerate(lines) for text in runs(line, BAR + number * LINE + SIZE)
    )
    dots = "".join(
        f'<circle cx="{MARGIN + n * 18}" cy="15" r="5" fill="{colour}"/>'
        for n, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(' '.join(COMMAND))} on a terminal</title>"
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>{dots}'
        f'<g font-family="{FONT}" font-size="{SIZE}" fill="#e6edf3">'
        f"{body}</g></svg>\n"
    )


def runs(line: list[Cell], y: int) -> Iterator[str]:
    """Yield a line's texts: neighbours of the same style and width, cut where spaces align them.

    Each is given its place and length, so that columns stay where they are in whatever font there
    is, and no renderer joins spaces.
    """
    at = 0
    for (style, size), group in groupby(line, key=lambda cell: (cell.style, cell.columns)):
        text = "".join(cell.text for cell in group)
        for part in PARTS.finditer(text):
            x = MARGIN + (at + size * part.start()) * CELL
            length = size * len(part[0]) * CELL
            yield (
                f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}"'
                f' lengthAdjust="spacingAndGlyphs"{look(style)}>{escape(part[0])}</text>\n'
            )
        at += size * len(text)


def look(style: frozenset[int]) -> str:
    """Return a style as attributes of SVG."""
    fill = next((COLOURS[number] for number in style if number in COLOURS), "")
    parts = [f' fill="{fill}"' if fill else ""]
    parts.append(' font-weight="bold"' if BOLD in style else "")
    parts.append(' fill-opacity="0.6"' if DIM in style else "")
    return "".join(parts)


def main() -> None:
    """Run the demo and draw it."""
    screen = Screen()
    screen.write(f"\x1b[2m$\x1b[0m {' '.join(COMMAND)}\r\n")
    screen.write(recorded())
    while screen.lines and not screen.lines[-1]:
        screen.lines.pop()
    PICTURE.write_text(drawn(screen.lines), encoding="utf-8")


if __name__ == "__main__":
    main()

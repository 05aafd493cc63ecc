"""The bar of a transfer: in any terminal, for any name, and only where somebody waits."""

from __future__ import annotations

import io

from async_nodes.cli.console import Console
from async_nodes.cli.terminal import Terminal, width
from async_nodes.cli.transfer import Bar, bar

PLAIN = Terminal(unicode=False, columns=80)


def test_a_bar_shows_how_far_it_is() -> None:
    """Filled in proportion, with figures; an empty file is done at once."""
    assert bar("a.bin", 0, 4_000_000, PLAIN).endswith("." * 24 + "  0.0 / 4.0 MB")
    assert "#" * 12 + "." * 12 in bar("a.bin", 2_000_000, 4_000_000, PLAIN)
    assert "#" * 24 in bar("a.bin", 0, 0, PLAIN)


def test_a_bar_fits_into_its_line() -> None:
    """Long and wide names are cut, and nothing in them steers the terminal."""
    for name in ("茶" * 100, "x" * 300):
        assert width(bar(name, 1, 2, Terminal(columns=60))) <= 60
    out = io.StringIO()
    console = Console(out, Terminal(live=True, columns=60))
    moved = Bar(console, "\x1b[2Jname", 3)
    assert list(moved.over(iter([b"abc"]))) == [b"abc"]
    assert "\x1b[2J" not in out.getvalue()


def test_a_short_transfer_draws_nothing() -> None:
    """Neither on a terminal, where it is over too soon, nor into a file."""
    for live in (True, False):
        out = io.StringIO()
        list(Bar(Console(out, Terminal(live=live)), "a", 3).over(iter([b"abc"])))
        assert out.getvalue() == ""

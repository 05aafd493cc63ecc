from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from async_nodes.cli.console import Console
from async_nodes.cli.language import is_chinese
from async_nodes.cli.terminal import Terminal, clip, fill, pad, printable, wants_color, width


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


@pytest.mark.parametrize(
    ("environ", "is_terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(environ: dict[str, str], *, is_terminal: bool, expected: bool) -> None:
    """NO_COLOR forbids, FORCE_COLOR asks, and otherwise a terminal has colour."""
    assert wants_color(environ, is_terminal=is_terminal) is expected


def test_a_dumb_terminal_is_not_drawn_over() -> None:
    """TERM=dumb switches cursor control and colour off."""
    terminal = Terminal.of(Screen(), {"TERM": "dumb"})
    assert not terminal.live
    assert not terminal.color


def test_an_ascii_stream_gets_ascii() -> None:
    """A stream that cannot write icons is known not to."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert not Terminal.of(stream, {}).unicode


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LANG": "zh_CN.UTF-8"}, True),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, False),
        ({"LC_ALL": "", "LC_MESSAGES": "zh_TW.UTF-8", "LANG": "en"}, True),
        ({}, False),
    ],
)
def test_language(environ: dict[str, str], *, expected: bool) -> None:
    """The language is the locale's, LC_ALL before LC_MESSAGES before LANG."""
    assert is_chinese(environ) is expected


@pytest.mark.parametrize(("text", "columns"), [("abc", 3), ("你好", 4), ("é", 1), ("👍", 2)])
def test_width(text: str, columns: int) -> None:
    """Wide characters take two columns and combining ones none."""
    assert width(text) == columns


@given(st.text(max_size=60), st.integers(1, 40))
def test_clipped_text_fits(text: str, columns: int) -> None:
    """A clipped text never takes more than its columns, and a text that fits is unchanged."""
    cut = clip(text, columns)
    assert width(cut) <= columns
    if width(text) <= columns:
        assert cut == text


@given(st.text(alphabet="ab 你。👍", max_size=80), st.integers(4, 30))
def test_filled_text_fits_and_loses_nothing(text: str, columns: int) -> None:
    """Filling breaks lines within the width and drops only the spaces at the breaks."""
    lines = fill(text, columns)
    assert all(width(line) <= columns for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_padding_counts_columns() -> None:
    """Padding aligns Chinese and Latin text alike."""
    assert pad("你", 4) == "你  "


def test_control_characters_do_not_reach_the_terminal() -> None:
    """Escape codes and text direction overrides of a model's answer become spaces."""
    assert printable("a\x1b[2Jb\u202ec\r\n", keep="\n") == "a [2Jb c \n"
    assert printable("👨‍👩‍👧 naïve") == "👨‍👩‍👧 naïve"


def test_a_line_is_cut_once_over_all_its_pieces() -> None:
    """Pieces with styles share the width of the line."""
    terminal = Terminal(color=True, columns=6)
    assert terminal.line([("abc", "bold"), ("defgh", ""), ("x", "red")]) == "\x1b[1mabc\x1b[0mde…"


def test_a_frame_is_drawn_in_place_and_lines_go_above_it() -> None:
    """A new frame erases the one before; a line is written above and the frame again below."""
    screen = Screen()
    console = Console(screen, Terminal(live=True))
    console.draw(["one", "two"])
    console.draw(["ONE", "two"])
    console.line("said")
    assert screen.getvalue() == ("one\ntwo\n\x1b[2F\x1b[JONE\ntwo\n\x1b[2F\x1b[Jsaid\nONE\ntwo\n")


def test_without_a_terminal_a_status_is_a_line_where_it_changes() -> None:
    """Waiting is told once per thing waited for where nothing can be drawn over."""
    stream = io.StringIO()
    console = Console(stream, Terminal())
    for text in ("waiting for web", "waiting for web", "waiting for io", ""):
        console.status(text)
    assert stream.getvalue() == "waiting for web\nwaiting for io\n"


def test_a_quiet_console_still_tells_what_happens() -> None:
    """Lines of processes are kept back, deaths are not."""
    stream = io.StringIO()
    console = Console(stream, Terminal(), is_quiet=True)
    console.said("web", "GET /")
    console.happened("web", "was ended by SIGKILL")
    assert stream.getvalue() == "web        │ ! was ended by SIGKILL\n"

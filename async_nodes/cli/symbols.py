"""How a state looks: always a word, with an icon and a colour beside it. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

from async_nodes.cli.language import tr


class Symbol(NamedTuple):
    """An icon, the same in ASCII, a style, the word in Chinese."""

    icon: str
    ascii: str
    style: str
    chinese: str


SYMBOLS: Final = {
    "Pending": Symbol("○", "o", "yellow", "等待"),
    "Running": Symbol("●", "*", "cyan", "运行"),
    "Succeeded": Symbol("✔", "+", "green", "成功"),
    "Failed": Symbol("✖", "x", "red", "失败"),
    "Cancelled": Symbol("⊘", "-", "magenta", "已取消"),
}
_UNKNOWN = Symbol("?", "?", "", "未知")
TERMINAL: Final = frozenset({"Succeeded", "Failed", "Cancelled"})


def icon(state: str, *, unicode: bool) -> str:
    """Return the icon of a state."""
    symbol = SYMBOLS.get(state, _UNKNOWN)
    return symbol.icon if unicode else symbol.ascii


def style(state: str) -> str:
    """Return the style of a state."""
    return SYMBOLS.get(state, _UNKNOWN).style


def word(state: str) -> str:
    """Return the state as a person reads it; the wire's own word stays beside the Chinese one."""
    return tr(state, f"{SYMBOLS.get(state, _UNKNOWN).chinese} {state}")

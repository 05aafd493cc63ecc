"""A bar chart as SVG, drawn by hand: CPU per task, stacked by part, one bar for each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

COLOURS: Final = ("#3b6ea8", "#e0912f", "#8a8f98")
LEFT: Final = 210
TOP: Final = 58
BAR: Final = 20
STEP: Final = 26
GAP: Final = 16
SCALE: Final = 430
WIDTH: Final = 740


def bars(groups: Sequence[Mapping[str, Any]], parts: Sequence[str]) -> str:
    """Return the chart of a summary: groups of sides, each a bar of parts (CPU-µs per task)."""
    most = max(side["total"] for group in groups for side in group["sides"].values())
    drawn, y = [_legend(parts)], TOP
    for group in groups:
        for name, side in group["sides"].items():
            label = f"{name}, {group['connections']} connections"
            drawn.append(_bar(label, [side[part] for part in parts], y, SCALE / most))
            y += STEP
        y += GAP
    title = _text(16, 26, "CPU time of web, worker and Redis per task, in microseconds", size=15)
    box = f'viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" fill="#333"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {box}>'
    ground = f'<rect width="{WIDTH}" height="{y}" fill="#fff"/>'
    return "\n".join([opening, ground, title, *drawn, "</svg>\n"])


def _bar(label: str, values: Sequence[float], y: int, scale: float) -> str:
    drawn, x = [_text(LEFT - 8, y + 15, label, anchor="end")], float(LEFT)
    for value, colour in zip(values, COLOURS, strict=True):
        wide = value * scale
        drawn.append(_rectangle(x, y, wide, BAR, colour))
        x += wide
    drawn.append(_text(x + 6, y + 15, f"{sum(values):.0f}"))
    return "\n".join(drawn)


def _legend(parts: Sequence[str]) -> str:
    drawn = []
    for place, (part, colour) in enumerate(zip(parts, COLOURS, strict=True)):
        x = LEFT + place * 90
        drawn += [_rectangle(x, 38, 10, 10, colour), _text(x + 15, 47, part)]
    return "\n".join(drawn)


def _rectangle(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{high}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y}" font-size="{size}" text-anchor="{anchor}"'
    return f"<text {place}>{escape(text)}</text>"


def of(name: str, figures: Mapping[str, Any]) -> str:
    """Return the chart of a benchmark."""
    del name
    return bars(figures["summary"], ("web", "worker", "redis"))

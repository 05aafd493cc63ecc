"""Bar charts as SVG, drawn by hand: groups of bars to one scale, each bar stacked from its parts.

They follow the reader's light or dark scheme, also where a page shows them as an image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
MARGIN: Final = 24
LABELS: Final = 168
"""Width of the labels left of the bars."""

LEFT: Final = MARGIN + LABELS
RIGHT: Final = 190
"""Room for the figure and the note behind the longest bar."""

SCALE: Final = WIDTH - LEFT - RIGHT
BAR: Final = 18
STEP: Final = 27
HEADING: Final = 30
GAP: Final = 14
FEWEST_TICKS: Final = 4

_STYLE: Final = """
svg { --ground: #ffffff; --text: #1f2328; --muted: #636c76; --line: #dfe3e8; --own: #0a5fb4;
  --p0: #3b82c4; --p1: #e3973b; --p2: #8a94a3; --p3: #4f9d69;
  font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", "DejaVu Sans", sans-serif; }
@media (prefers-color-scheme: dark) {
  svg { --ground: #0d1117; --text: #e6edf3; --muted: #9198a1; --line: #2b323b; --own: #79b8ff;
    --p0: #5aa2e0; --p1: #e8a85c; --p2: #7d8896; --p3: #6dbb87; } }
text { fill: var(--text); font-size: 13px; }
.title { font-size: 18px; font-weight: 600; }
.muted { fill: var(--muted); font-size: 12px; font-weight: normal; }
.heading { font-weight: 600; }
.own { fill: var(--own); font-weight: 600; }
.figure { font-variant-numeric: tabular-nums; }
.ground { fill: var(--ground); }
.line { stroke: var(--line); stroke-width: 1; }
.p0 { fill: var(--p0); } .p1 { fill: var(--p1); } .p2 { fill: var(--p2); } .p3 { fill: var(--p3); }
""".strip()


@dataclass(frozen=True, slots=True)
class Bar:
    """Hold a bar.

    Attributes:
        label: left of it.
        values: of its parts.
        note: behind its figure.
        own: it is ours.
        figure: what is written instead of the sum.

    """

    label: str
    values: Sequence[float]
    note: str = ""
    own: bool = False
    figure: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Hold bars under a heading."""

    heading: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True)
class Chart:
    """Hold a chart.

    Attributes:
        title: of the whole.
        about: one line below it: what is shown, in which unit.
        groups: of bars.
        parts: names of the parts, for the legend; none for bars of one part.

    """

    title: str
    about: str
    groups: Sequence[Group]
    parts: Sequence[str] = ()


def draw(chart: Chart) -> str:
    """Return the chart as SVG."""
    most = max((sum(bar.values) for group in chart.groups for bar in group.bars), default=0.0)
    step = tick_step(most)
    top = 86 if chart.parts else 66
    drawn: list[str] = []
    y = top
    for group in chart.groups:
        if group.heading:
            drawn.append(_text(MARGIN, y + 18, group.heading, "heading"))
            y += HEADING
        for bar in group.bars:
            drawn.append(_bar(bar, y, SCALE / (most or 1.0)))
            y += STEP
        y += GAP
    grid = _grid(most, step, top, y)
    height = y + 30
    words = [
        _text(MARGIN, 34, chart.title, "title"),
        _text(MARGIN, 54, chart.about, "muted"),
        _legend(chart.parts),
    ]
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        f' width="{WIDTH}" height="{height}" role="img">'
    )
    name = f"<title>{escape(chart.title)}</title><desc>{escape(chart.about)}</desc>"
    ground = f'<rect class="ground" width="{WIDTH}" height="{height}" rx="10"/>'
    head = [opening, name, f"<style>{_STYLE}</style>", ground]
    return "\n".join([*head, *words, grid, *drawn, "</svg>\n"])


def tick_step(most: float) -> float:
    """Return a round distance between lines of the grid: 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most))
    steps = (power * share for share in (5.0, 2.0, 1.0, 0.5, 0.2, 0.1))
    return next(step for step in steps if most / step >= FEWEST_TICKS)


def _grid(most: float, step: float, top: int, bottom: int) -> str:
    drawn = []
    count = int(most / step + 1e-9)
    for number in range(count + 1):
        x = LEFT + number * step * SCALE / (most or 1.0)
        line = f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        drawn += [line, _text(x, bottom + 16, shown(number * step), "muted", anchor="middle")]
    return "\n".join(drawn)


def _bar(bar: Bar, y: int, scale: float) -> str:
    middle = y + BAR / 2 + 4.5
    label = _text(LEFT - 10, middle, bar.label, "own" if bar.own else "", anchor="end")
    drawn, x = [label], float(LEFT)
    for place, value in enumerate(bar.values):
        wide = max(value, 0.0) * scale
        drawn.append(
            f'<rect class="p{place}" x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{BAR}"/>'
        )
        x += wide
    figure = bar.figure or shown(sum(bar.values))
    style = "figure own" if bar.own else "figure"
    note = f'<tspan class="muted" dx="8">{escape(bar.note)}</tspan>' if bar.note else ""
    drawn.append(
        f'<text class="{style}" x="{x + 8:.1f}" y="{middle:.1f}">{escape(figure)}{note}</text>'
    )
    return "\n".join(drawn)


def shown(value: float) -> str:
    """Return a figure with as many digits as it deserves."""
    if value == int(value) or value >= 100:  # noqa: PLR2004 - three digits say enough
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _legend(parts: Sequence[str]) -> str:
    drawn, x = [], LEFT
    for place, part in enumerate(parts):
        drawn.append(f'<rect class="p{place}" x="{x}" y="66" width="12" height="12" rx="2"/>')
        drawn.append(_text(x + 18, 76.5, part, "muted"))
        x += 36 + 8 * len(part)
    return "\n".join(drawn)


def _text(x: float, y: float, text: str, style: str = "", *, anchor: str = "start") -> str:
    named = f' class="{style}"' if style else ""
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f"<text{named} {at}>{escape(text)}</text>"

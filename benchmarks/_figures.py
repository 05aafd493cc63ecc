"""Figures: percentiles, the machine they were taken on, the table, the JSON file."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks import _chart, _plots
from benchmarks._options import Options
from benchmarks._processes import ROOT, redis_program

PACKAGES: Final = ("celery", "kombu", "redis", "hiredis", "flask", "gevent", "msgspec")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def say(text: str) -> None:
    """Tell the person who waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def surroundings() -> dict[str, Any]:
    """Return when, of which commit and on which machine and versions figures were taken."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _output("git", "rev-parse", "--short", "HEAD"),
        "machine": {
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "redis": _output(redis_program(), "--version"),
        },
        "packages": {name: version(name) for name in PACKAGES},
    }


def _output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # not a git checkout, say
        return "unknown"
    return done.stdout.strip()


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table whose columns line up in a terminal, too."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = [
        "| " + " | ".join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True)) + " |"
        for row in cells
    ]
    rule = "|" + "|".join("-" * (wide + 2) for wide in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def ratio_line(group: Mapping[str, Any]) -> str:
    """Return the sentence about a group of a summary: how many times less CPU, and the range."""
    ratio = group["ratio"]
    return (
        f"{group['connections']:3} connections: {ratio['median']:.2f} times less CPU"
        f" ({ratio['min']:.2f} to {ratio['max']:.2f})"
    )


def write(options: Options, name: str, figures: Mapping[str, Any]) -> None:
    """Write a benchmark's figures as JSON and draw them, each if a file is asked for.

    Raises:
        BenchmarkError: the figures have no shape that a chart is known for.

    """
    write_report(options.json, name, {"options": options.shown(), **figures})
    draw(options.plot, name, figures)


def write_report(path: Path | None, name: str, figures: Mapping[str, Any]) -> None:
    """Write figures as JSON with what they were taken on, if a file is named."""
    if path is None:
        return
    report = {"benchmark": name, **surroundings(), **figures}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    say(f"figures written to {path}")


def draw(path: Path | None, name: str, figures: Mapping[str, Any]) -> None:
    """Draw figures as SVG, if a file is named."""
    if path is None:
        return
    drawn = _chart.draw(_plots.chart_of(name, figures))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawn, encoding="utf-8")
    say(f"chart written to {path}")

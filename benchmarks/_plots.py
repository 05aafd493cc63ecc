"""From the figures of a benchmark, as they stand in its JSON file, to its chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from benchmarks._chart import Bar, Chart, Group, shown
from benchmarks._processes import BenchmarkError
from benchmarks._sides import OURS, PARTS

Figures = Mapping[str, Any]


def chart_of(name: str, figures: Figures) -> Chart:
    """Return the chart of a benchmark.

    Raises:
        BenchmarkError: its figures have no shape that is known here.

    """
    known = _CHARTS.get(name)
    if known is not None:
        return known(figures)
    summary = figures.get("summary")
    if isinstance(summary, Sequence) and summary and "sides" in summary[0]:
        return cpu(f"{name}: CPU time of each part", "CPU-microseconds each", summary)
    raise BenchmarkError(f"no chart is known for {name}")


def cpu(title: str, about: str, summary: Sequence[Mapping[str, Any]]) -> Chart:
    """Return the chart of groups of sides, each with the CPU time of its parts."""
    first = next(iter(summary[0]["sides"].values()))
    parts = [part for part in PARTS if part in first]
    groups = []
    for group in summary:
        own = group["sides"].get(OURS)
        bars = []
        for side, of in group["sides"].items():
            values = [of[part] for part in parts]
            times = "" if own is None or side == OURS else f"{sum(values) / _sum(own, parts):.1f}×"
            bars.append(Bar(_named(side), values, times, side == OURS))
        groups.append(Group(f"{group['connections']} connections", bars))
    return Chart(title, about, groups, parts)


def _sum(side: Mapping[str, float], parts: Sequence[str]) -> float:
    return sum(side[part] for part in parts) or 1.0


def _named(side: str) -> str:
    return side.replace("celery_flask_gevent", "celery (stock)")


def _life(figures: Figures) -> Chart:
    about = "CPU-microseconds per task: HTTP submit, run, final read. Less is better"
    return cpu("The life of a task", about, figures["summary"])


def _poll(figures: Figures) -> Chart:
    about = "CPU-microseconds per read over kept-alive connections. Less is better"
    return cpu("A read of a finished task", about, figures["summary"])


def _kill(figures: Figures) -> Chart:
    bars = [
        Bar(_named(kill["side"]), [kill["lost"]], _recovered(kill), kill["side"] == OURS)
        for kill in figures["kills"]
    ]
    about = f"Of {figures['tasks']} tasks, those not done two minutes after the worker's SIGKILL"
    return Chart("Lost after a kill", about, [Group("", bars)])


def _recovered(kill: Mapping[str, Any]) -> str:
    twice = f", {kill['twice']} done twice" if kill["twice"] else ""
    if kill["seconds"] is None:
        return twice.removeprefix(", ")
    return f"all done after {kill['seconds']:.0f} s{twice}"


def _batch(figures: Figures) -> Chart:
    bars = [
        Bar(f"round {number}", [each["web"], each["redis"]], f"{each['rate']:,.0f} tasks/s")
        for number, each in enumerate(figures["rounds"], 1)
    ]
    whole = figures["summary"]
    bars.append(
        Bar("median", [whole["web"], whole["redis"]], f"{whole['rate']:,.0f} tasks/s", own=True)
    )
    about = "CPU-microseconds per task, a thousand tasks in each request. Less is better"
    return Chart("Accepting a batch", about, [Group("", bars)], ("web", "redis"))


def _first_token(figures: Figures) -> Chart:
    groups = [
        Group(
            {"p50": "median", "p90": "90th percentile", "p99": "99th percentile"}.get(share, share),
            [Bar(way, [of[share]], own=way == OURS) for way, of in figures["summary"].items()],
        )
        for share in next(iter(figures["summary"].values()))
    ]
    about = "Milliseconds from the request to the first token. Less is better"
    return Chart("The first token", about, groups)


def _rag(figures: Figures) -> Chart:
    clients = sorted({each["clients"] for each in figures["summary"]})
    groups = [
        Group(
            f"{count} clients",
            [
                Bar(
                    each["side"],
                    [each["held_p95"]],
                    f"{each['rate']:.0f} answers/s",
                    each["side"] == OURS,
                )
                for each in figures["summary"]
                if each["clients"] == count
            ],
        )
        for count in clients
    ]
    about = "Milliseconds that a request holds its connection (p95). Less is better"
    return Chart("An answer from documents", about, groups)


def _instructions(figures: Figures) -> Chart:
    known = figures["budgets"]
    bars = [
        Bar(name, [number / 1000], _change(number, known.get(name)))
        for name, number in figures["instructions"].items()
    ]
    about = f"Thousands of processor instructions a call; CPython {figures['build']}"
    return Chart("The hot functions", about, [Group("", bars)])


def _change(number: int, known: int | None) -> str:
    if not known or shown(number / 1000) == shown(known / 1000):
        return ""
    return f"{(number - known) / known:+.1%}"


_CHARTS: Final[Mapping[str, Callable[[Figures], Chart]]] = {
    "batch": _batch,
    "first-token": _first_token,
    "instructions": _instructions,
    "kill": _kill,
    "life": _life,
    "poll": _poll,
    "rag": _rag,
}

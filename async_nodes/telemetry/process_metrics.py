"""What is the same in every process: its time, memory and files, the collector, the event loop."""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from async_nodes.telemetry.registry import REGISTRY, Read, Rows, histograms
from async_nodes.telemetry.tallies import Durations

LOOK_SECONDS: Final = 0.5
"""Seconds between two looks at how late the event loop is."""

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICK: Final = os.sysconf("SC_CLK_TCK")
_START_FIELD: Final = 19  # of /proc/self/stat, counted from after the name in parentheses
_NAMES: Final = (
    "async_nodes_process_cpu_seconds_total",
    "async_nodes_process_resident_memory_bytes",
    "async_nodes_process_open_fds",
    "async_nodes_process_max_fds",
    "async_nodes_process_start_time_seconds",
    "async_nodes_gc_collections_total",
)
_pauses: Final = histograms("async_nodes_gc_pause_seconds")
_lag: Final = histograms("async_nodes_event_loop_lag_seconds")


def _of_process() -> Iterator[tuple[str, Rows]]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "async_nodes_process_cpu_seconds_total", [((), used.ru_utime + used.ru_stime)]
    yield "async_nodes_process_max_fds", [((), float(soft))]
    runs = [((str(n),), float(one["collections"])) for n, one in enumerate(gc.get_stats())]
    yield "async_nodes_gc_collections_total", runs
    try:
        yield from _of_proc()
    except (OSError, ValueError, StopIteration):  # a system without /proc
        return


def _of_proc() -> Iterator[tuple[str, Rows]]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    yield "async_nodes_process_resident_memory_bytes", [((), float(pages * _PAGE))]
    yield "async_nodes_process_open_fds", [((), float(len(os.listdir("/proc/self/fd"))))]  # noqa: PTH208
    after_name = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    uptime = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    age = uptime - int(after_name[_START_FIELD]) / _TICK
    yield "async_nodes_process_start_time_seconds", [((), time.time() - age)]


class _Pauses:
    """Time the garbage collector; it runs in whichever thread has made the last object."""

    def __init__(self) -> None:
        self._began = 0.0
        self._generations: tuple[Durations, ...] = tuple(_pauses(str(n)) for n in range(3))

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._generations[info["generation"]].observe(time.perf_counter() - self._began)


def watch_collector() -> None:
    """Begin to time the garbage collector; again does nothing."""
    if not any(isinstance(one, _Pauses) for one in gc.callbacks):
        gc.callbacks.append(_Pauses())


def watch_loop(sleep: Callable[[float], Any], clock: Callable[[], float] = time.monotonic) -> None:
    """Look for ever how late the event loop is; to be run in a greenlet.

    Args:
        sleep: lets the loop turn for so many seconds.
        clock: seconds that only rise.

    """
    lag = _lag()
    while True:
        due = clock() + LOOK_SECONDS
        sleep(LOOK_SECONDS)
        lag.observe(max(clock() - due, 0.0))


REGISTRY.register(Read(_NAMES, _of_process))

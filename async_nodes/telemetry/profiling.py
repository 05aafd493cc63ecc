"""Continuous profiles for a Pyroscope server, where ASYNC_NODES_PYROSCOPE_URL is set.

A stack is labelled with the node whose body it belongs to, and with the task where its trace is
sampled: an id for every task would make a series for each. The client labels threads; the bodies of
an I/O worker are greenlets of one, so there the labels change with each switch. The client is an
extra, imported here and nowhere else.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from greenlet import getcurrent, settrace

from async_nodes.core.errors import AsyncNodesError
from async_nodes.telemetry.tracing import is_sampled
from async_nodes.version import __version__

UPLOAD_SECONDS: Final = 10
Labels = Mapping[str, str]
_NONE: Final[Labels] = {}


class Profiler:
    """Label the stacks of this process.

    Args:
        add, remove: give a label to the current thread, and take it away.

    """

    def __init__(self, add: Callable[[str, str], Any], remove: Callable[[str, str], Any]) -> None:
        self._add = add
        self._remove = remove
        self._now: Labels = _NONE
        self._of: weakref.WeakKeyDictionary[Any, Labels] = weakref.WeakKeyDictionary()

    @contextmanager
    def labelled(self, node: str, task_id: str, traceparent: str) -> Iterator[None]:
        """Label what runs inside the block, in whichever greenlet switches come between."""
        labels = {"node": node}
        if is_sampled(traceparent):
            labels["task"] = task_id
        me = getcurrent()
        before = self._of.get(me, _NONE)
        self._of[me] = labels
        self._become(labels)
        try:
            yield
        finally:
            self._of[me] = before
            self._become(before)

    def on_switch(self, event: str, args: tuple[Any, Any]) -> None:
        """Follow a switch of greenlets."""
        if event in ("switch", "throw"):
            self._become(self._of.get(args[1], _NONE))

    def _become(self, labels: Labels) -> None:
        if labels is self._now:
            return
        for name, value in self._now.items():
            self._remove(name, value)
        for name, value in labels.items():
            self._add(name, value)
        self._now = labels


class Profiling:
    """Say whether this process is profiled.

    Attributes:
        profiler: labels its stacks, None where nobody looks.

    """

    profiler: Profiler | None = None


PROFILING: Final = Profiling()


def start(url: str | None, service: str, *, upload_seconds: int = UPLOAD_SECONDS) -> None:
    """Begin to send profiles, where an address is set; again does nothing.

    Args:
        url: of the server, such as ``http://pyroscope:4040``.
        service: the name of this kind of process.
        upload_seconds: between two uploads.

    Raises:
        AsyncNodesError: ``invalid_setting``: the extra is not installed.

    """
    if url is None or PROFILING.profiler is not None:
        return
    try:
        import pyroscope
    except ImportError as error:
        message = f"needs the extra: pip install 'async_nodes[profiling]' ({error})"
        raise AsyncNodesError("invalid_setting", f"ASYNC_NODES_PYROSCOPE_URL {message}") from error
    pyroscope.configure(
        application_name=f"async-nodes-{service}",
        server_address=url,
        tags={"version": __version__},
        upload_interval=upload_seconds,
    )
    PROFILING.profiler = Profiler(pyroscope.add_thread_tag, pyroscope.remove_thread_tag)
    settrace(PROFILING.profiler.on_switch)


def stop() -> None:
    """Send what is left."""
    profiler, PROFILING.profiler = PROFILING.profiler, None
    if profiler is not None:
        import pyroscope

        settrace(None)
        pyroscope.shutdown()

"""One asyncio loop in a native thread, for the ``async def`` nodes of an I/O worker.

gevent replaces the selectors, threads and sockets that asyncio stands on. This module gives the
loop the original ones: a native selector, a native pool for blocking calls (name look-up and
`asyncio.to_thread`), a native thread. Only two things cross between the threads: a coroutine to
run, through `call_soon_threadsafe`, and what it reports, through a mailbox that wakes the hub.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import contextvars
import select
import selectors
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from gevent.event import Event
from gevent.hub import get_hub
from gevent.monkey import get_original

from async_nodes.nodes.invoke import invoke_async

if TYPE_CHECKING:
    from async_nodes.nodes import NodeContext, NodeSpec

_start_thread = get_original("_thread", "start_new_thread")
_START_TIMEOUT, _STOP_TIMEOUT = 5.0, 1.0
BEAT, STUCK_AFTER = 1.0, 4.0


class AsyncLoop:
    """Run coroutines in a native thread on behalf of greenlets."""

    def __init__(self) -> None:
        self._hub = get_hub()
        self._ready = Event()
        self._loop: asyncio.SelectorEventLoop | None = None
        self.alive = True
        self._last_turn = monotonic()
        _start_thread(self._serve, ())
        if not self._ready.wait(_START_TIMEOUT) or self._loop is None:
            raise RuntimeError("the event loop of the async nodes did not start")

    @property
    def usable(self) -> bool:
        """Tell whether the loop turns: a body that computes or blocks holds up all others on it."""
        return self.alive and monotonic() - self._last_turn < STUCK_AFTER

    def _beat(self) -> None:
        self._last_turn = monotonic()
        if self._loop is not None:
            self._loop.call_later(BEAT, self._beat)

    def run(self, spec: NodeSpec, ctx: NodeContext, inputs: dict[str, Any]) -> Any:
        """Return a coroutine node's output, passing its reports to the context's own sinks.

        The calling greenlet waits; when it is killed, the coroutine is cancelled and given a
        moment to clean up.
        """
        assert self._loop is not None  # noqa: S101 - set before __init__ returns
        mailbox = _Mailbox(self._hub)
        sinks = (ctx.on_chunk, ctx.on_progress, ctx.on_usage, ctx.on_log)
        ctx.on_chunk = lambda value: mailbox.put((sinks[0], (value,)))
        ctx.on_progress = lambda fraction, text: mailbox.put((sinks[1], (fraction, text)))
        ctx.on_usage = lambda counts: mailbox.put((sinks[2], (counts,)))
        ctx.on_log = lambda level, text: mailbox.put((sinks[3], (level, text)))
        running = _Running(self._loop, mailbox)
        self._loop.call_soon_threadsafe(
            running.start, lambda: invoke_async(spec, ctx, inputs), contextvars.copy_context()
        )
        try:
            return running.result(mailbox)
        except BaseException:
            running.cancel()
            raise
        finally:
            ctx.on_chunk, ctx.on_progress, ctx.on_usage, ctx.on_log = sinks

    def _serve(self) -> None:
        loop = asyncio.SelectorEventLoop(_native_selector())
        loop.set_default_executor(_NativeExecutor(max_workers=1))
        asyncio.set_event_loop(loop)
        self._loop = loop
        self._beat()
        self._hub.loop.run_callback_threadsafe(self._ready.set)
        try:
            while True:
                # A body that stops the loop, or raises SystemExit, is not alone on it: asyncio
                # leaves the loop for these and has told the body's task before.
                with contextlib.suppress(SystemExit, KeyboardInterrupt):
                    loop.run_forever()
        finally:
            self.alive = False
            loop.close()


class _Mailbox:
    """Carry what a coroutine says from its thread to a greenlet."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._items: deque[Any] = deque()
        self._filled = Event()

    def put(self, item: object) -> None:
        """Leave an item; safe from any thread."""
        self._items.append(item)
        self._hub.loop.run_callback_threadsafe(self._filled.set)

    def get(self, timeout: float | None = None) -> Any:
        """Return the next item, or None when none came in time."""
        while not self._items:
            self._filled.clear()
            if not self._items and not self._filled.wait(timeout):
                return None
        return self._items.popleft()


class _Done:
    """Mark the end of a coroutine in its mailbox."""

    def __init__(self, value: Any, error: BaseException | None) -> None:
        self.value = value
        self.error = error


class _Running:
    """Follow one coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop, mailbox: _Mailbox) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._task: asyncio.Task[Any] | None = None
        self._ended = False

    def start(self, make: Callable[[], Any], context: contextvars.Context) -> None:
        """Start the coroutine; called in the loop's thread."""
        self._task = self._loop.create_task(make(), context=context)
        self._task.add_done_callback(self._on_done)

    def result(self, mailbox: _Mailbox) -> Any:
        """Pass reports on until the coroutine ends; return or raise what it came to."""
        while True:
            item = mailbox.get()
            if isinstance(item, _Done):
                self._ended = True
                if item.error is not None:
                    raise item.error
                return item.value
            sink, arguments = item
            sink(*arguments)

    def cancel(self) -> None:
        """Cancel the coroutine and wait a moment for its clean-up."""
        if self._ended:
            return
        self._loop.call_soon_threadsafe(self._cancel_in_loop)
        waited = 0
        while waited < 100:  # noqa: PLR2004 - items, a bound on late reports
            item = self._mailbox.get(timeout=_STOP_TIMEOUT)
            if item is None or isinstance(item, _Done):
                return
            waited += 1

    def _cancel_in_loop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            self._mailbox.put(_Done(None, RuntimeError("the coroutine was cancelled from inside")))
        else:
            self._mailbox.put(_Done(None if task.exception() else task.result(), task.exception()))


def _native_selector() -> selectors.BaseSelector:
    """Return a selector that gevent has not touched."""
    for name, primitive in (("EpollSelector", "epoll"), ("KqueueSelector", "kqueue")):
        original = _original(selectors, name)
        if original is not None and _original(select, primitive) is not None:
            return _unpatched_selector(original, primitive)
    return selectors.SelectSelector()


def _original(module: Any, name: str) -> Any:
    try:
        return get_original(module.__name__, name)
    except AttributeError:
        return None


def _unpatched_selector(kind: Any, primitive: str) -> selectors.BaseSelector:
    class Native(kind):
        _selector_cls = staticmethod(_original(select, primitive))

    selector: selectors.BaseSelector = Native()
    return selector


class _NativeExecutor(concurrent.futures.ThreadPoolExecutor):
    """Run each blocking call in a native thread of its own, though `threading` is patched."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> concurrent.futures.Future[Any]:
        """Start a native thread for a call and return its future."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to whoever awaits it
                future.set_exception(error)

        _start_thread(work, ())
        return future

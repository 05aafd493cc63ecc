"""Keep a handful of processes running, and stop them in order.

    start   in the order given, each with its output read here
    watch   a death is told in one line and answered by a restart, ever later; a process that
            cannot live ends the whole with its last lines
    stop    stage by stage (web, workers, model, store), each bounded; a second Ctrl-C hurries

All of it happens on the main thread. What the person is meanwhile told is the director's work, a
function on a thread of its own.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from typing import TYPE_CHECKING, Protocol

from async_nodes.cli.ending import how_it_ended
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr
from async_nodes.cli.main import INTERRUPTED
from async_nodes.cli.restart import RestartPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from async_nodes.cli.service import Service

_TERMINATED = 128 + signal.SIGTERM
#: Seconds between two looks when nothing calls for one sooner.
_LOOK = 0.5
#: What is left of a stage's time after a second signal.
_HURRY = 0.5
_BURST = 64  # reads of one output before the others get their turn
_END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Audience(Protocol):
    """Whoever is told what happens; called on the main thread."""

    def said(self, service: str, line: str) -> None:
        """Take a line that a process wrote."""

    def happened(self, service: str, text: str) -> None:
        """Take a sentence about a process."""


class Interrupted(BaseException):
    """Leave a blocking start because a signal asks to end."""


class _Kept:
    """A service and what the supervisor remembers of it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.started_at = 0.0
        self.deaths = 0
        self.next_start: float | None = None
        self.descriptor: int | None = None


class Supervisor:
    """Run services until the director or a signal says that it is enough.

    Args:
        services: in the order in which they start.
        audience: is told what they say and what happens to them.
        policy: when they are restarted.

    """

    def __init__(
        self,
        services: Sequence[Service],
        audience: Audience,
        *,
        policy: RestartPolicy | None = None,
    ) -> None:
        self.ending = threading.Event()
        self._kept = [_Kept(service) for service in services]
        self._audience = audience
        self._policy = policy or RestartPolicy()
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._wake = os.pipe()
        self._ready = False
        self._directing = False
        self._may_interrupt = False
        self._signals: list[int] = []
        self._status = 0
        self._failure: BaseException | None = None

    def pid_of(self, name: str) -> int | None:
        """Return the process id of a service, None while it does not run."""
        return next((kept.service.pid for kept in self._kept if kept.service.name == name), None)

    def mark_ready(self) -> None:
        """Note that the whole worked once: from now on an end is an accident."""
        self._ready = True

    def finish(self, status: int) -> None:
        """End the run with an exit status; from any thread."""
        self._status = status
        self.ending.set()
        with contextlib.suppress(OSError):
            os.write(self._wake, b"x")

    def run(self, director: Callable[[], int | None]) -> int:
        """Start everything, let the director speak, and return the exit status after the stop.

        Args:
            director: runs on a thread of its own once all processes are started. A number ends
                the run with that status; None lets it go on until a signal comes.

        Raises:
            Failure: a process cannot live.
            AsyncNodesError: the store cannot be started, or the director raised it.

        """
        with self._listening():
            try:
                self._start_all()
                self._directing = True
                threading.Thread(target=self._direct, args=(director,), daemon=True).start()
                while not self.ending.is_set():
                    self._look()
            except Interrupted:
                pass
            except Exception as error:  # noqa: BLE001 - raised again below, after the stop
                self._failure = error
            finally:
                self.ending.set()
                self._stop_all()
        if self._signals:
            return self._interrupted_status()
        if self._failure is not None:
            raise self._failure
        return self._status

    # -- starting ------------------------------------------------------------------------------

    def _start_all(self) -> None:
        for kept in self._kept:
            if self.ending.is_set():
                return
            self._start(kept)

    def _start(self, kept: _Kept) -> None:
        kept.next_start = None
        kept.started_at = time.monotonic()
        self._may_interrupt = True
        try:
            if self._signals:  # it came before this start could be interrupted
                raise Interrupted
            kept.service.start()
        finally:
            self._may_interrupt = False
        kept.descriptor = kept.service.output()
        if kept.descriptor is not None:
            self._selector.register(kept.descriptor, selectors.EVENT_READ, kept)

    def _direct(self, director: Callable[[], int | None]) -> None:
        try:
            status = director()
        except BaseException as error:  # noqa: BLE001 - raised again on the main thread
            if not self.ending.is_set():
                self._failure = error
                self.finish(1)
            return
        self._directing = False
        if status is not None:
            self.finish(status)

    # -- watching ------------------------------------------------------------------------------

    def _look(self) -> None:
        now = time.monotonic()
        due = [kept.next_start for kept in self._kept if kept.next_start is not None]
        self._listen(max(0.0, min([now + _LOOK, *due]) - now))
        for kept in self._kept:
            if self.ending.is_set():
                return
            if kept.next_start is None:
                self._bury(kept)
            elif kept.next_start <= time.monotonic():
                self._restart(kept)

    def _bury(self, kept: _Kept) -> None:
        """Notice that a process has ended, and decide what follows."""
        status = kept.service.poll()
        if status is None:
            return
        self._hear(kept)
        self._unlisten(kept)
        kept.deaths = self._policy.deaths(kept.deaths, time.monotonic() - kept.started_at)
        delay = self._policy.delay(kept.deaths, status=status, is_starting=not self._ready)
        if delay is None:
            raise _cannot_live(kept.service, status, kept.deaths)
        kept.next_start = time.monotonic() + delay
        how = how_it_ended(status)
        self._audience.happened(
            kept.service.name,
            tr(
                f"{how} (process {kept.service.pid}); starting it again in {delay:g} s",
                f"{how}(进程 {kept.service.pid});{delay:g} 秒后重新启动",
            ),
        )

    def _restart(self, kept: _Kept) -> None:
        try:
            self._start(kept)
        except Interrupted:
            raise
        except Exception as error:  # tried again, and raised when that does not help
            kept.deaths += 1
            delay = self._policy.delay(kept.deaths, status=1, is_starting=False)
            if delay is None:
                raise
            kept.next_start = time.monotonic() + delay
            self._audience.happened(
                kept.service.name,
                tr(
                    f"could not be started: {error}; trying again in {delay:g} s",
                    f"无法启动:{error};{delay:g} 秒后重试",
                ),
            )
            return
        self._audience.happened(
            kept.service.name,
            tr(f"runs again (process {kept.service.pid})", f"已重新运行(进程 {kept.service.pid})"),
        )

    def _listen(self, seconds: float) -> None:
        """Take what the processes say for at most so long; a signal or a death ends the wait."""
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
            else:
                self._hear(key.data)

    def _hear(self, kept: _Kept) -> None:
        for _ in range(_BURST):
            lines = kept.service.lines()
            for line in lines:
                self._audience.said(kept.service.name, line)
            if kept.descriptor is not None and kept.service.output() is None:
                self._unlisten(kept)
            if not lines:
                return

    def _unlisten(self, kept: _Kept) -> None:
        if kept.descriptor is not None:
            with contextlib.suppress(KeyError, ValueError, OSError):
                self._selector.unregister(kept.descriptor)
            kept.descriptor = None

    # -- stopping ------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        for stage in sorted({kept.service.stage for kept in self._kept}):
            members = [kept for kept in self._kept if kept.service.stage == stage]
            self._stop_stage([kept for kept in members if kept.service.poll() is None])
        for kept in self._kept:
            with contextlib.suppress(Exception):  # nobody may be there to hear it any more
                self._hear(kept)
            self._unlisten(kept)
        self._selector.close()

    def _stop_stage(self, running: list[_Kept]) -> None:
        for kept in running:
            kept.service.terminate()
        began = time.monotonic()
        while running := [kept for kept in running if kept.service.poll() is None]:
            patience = max(kept.service.patience for kept in running)
            hurried = len(self._signals) > 1
            if time.monotonic() - began > (min(patience, _HURRY) if hurried else patience):
                for kept in running:
                    kept.service.kill()
                return
            with contextlib.suppress(OSError):  # the output may be gone before the processes are
                self._listen(0.05)

    # -- signals -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Handle the signals that ask to end, and wake up for them and for deaths."""
        for end in (self._wakeup, self._wake):
            os.set_blocking(end, False)
        self._selector.register(self._wakeup, selectors.EVENT_READ, None)
        handlers = dict.fromkeys(_END_SIGNALS, self._on_signal)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        # A handler, even an idle one, is what makes the system wake us when a child dies.
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup_before = signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup_before)
            if self._signals:  # the end that was asked for is not to be made a death on its way out
                before.update(dict.fromkeys(_END_SIGNALS, signal.SIG_IGN))
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._wakeup)
            os.close(self._wake)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signals.append(number)
        self.ending.set()
        if self._may_interrupt:
            self._may_interrupt = False
            raise Interrupted

    def _interrupted_status(self) -> int:
        if self._signals[0] == signal.SIGINT:
            return INTERRUPTED
        # A server that is told to stop has done its work; a demo cut short has not.
        return _TERMINATED if self._directing else 0


def _cannot_live(service: Service, status: int, deaths: int) -> Failure:
    how = how_it_ended(status)
    again = tr(f", {deaths} times in a row", f",连续 {deaths} 次") if deaths > 1 else ""
    tail = "".join(f"\n    {line}" for line in service.tail())
    said = tr("; its last lines:", ";最后的输出:") + tail if tail else ""
    return Failure(f"{service.name} {how}{again}{said}")

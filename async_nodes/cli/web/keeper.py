"""Look after several web processes on one port.

bind    the listeners, once: they stay while processes come and go; no connection is refused
watch   a process that dies is started again, ever later
roll    on SIGHUP, one by one: a successor first, then its predecessor retires
stop    on SIGTERM: all at once, each finishes its requests within its time

All of it happens on one thread that waits for signals, deaths and words of the processes.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from setproctitle import setproctitle

from async_nodes.access.guard import refuse_open_door
from async_nodes.access.serving import listener as listening
from async_nodes.access.serving import ticket_keys
from async_nodes.access.serving.seats import Seats
from async_nodes.access.serving.tls import ServerTls
from async_nodes.cli.ending import how_it_ended
from async_nodes.cli.failures import Failure
from async_nodes.cli.language import tr
from async_nodes.cli.restart import RestartPolicy
from async_nodes.cli.web.child import Child
from async_nodes.cli.web.roll import Roll, Step
from async_nodes.core.errors import AsyncNodesError
from async_nodes.telemetry import logs

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from async_nodes.settings import Settings

TITLE: Final = "async-nodes web keeper"
RETIRE: Final = signal.SIGUSR2
RELOAD: Final = signal.SIGUSR1
RETIRE_SECONDS: Final = 2.0
"""What a retiring process takes before it begins to stop, see `access.serving.server`."""

GRACE_SECONDS: Final = 3.0
"""Beyond its time, after which a stopping process is taken for hung."""

HURRY_SECONDS: Final = 0.5
"""What is left to the processes after a second SIGINT."""

KEY_SECONDS: Final = 86_400.0
"""Age of a ticket key at which the next replacement of all processes makes a new one."""

_LOOK: Final = 0.5
_STOP: Final = (signal.SIGTERM, signal.SIGINT)
_POLICY: Final = RestartPolicy(patience=1 << 30)
"""Once it has worked nobody is given up: the others serve meanwhile."""

log = logging.getLogger(__name__)


def keep(settings: Settings, argv: Sequence[str]) -> int:
    """Run web processes until SIGTERM or SIGINT.

    Args:
        settings: with the number of processes.
        argv: the command of one.

    Returns:
        The exit status, 0.

    Raises:
        AsyncNodesError: ``port_busy``, or ``invalid_setting`` for what the processes could not
            start with either.
        Failure: a process ended by itself before any was ready.

    """
    refuse_open_door(settings)
    logs.configure(as_json=settings.log_format == "json")
    tls = ServerTls.of(settings)
    bound = listening.bind_many(settings.host, settings.port, settings.processes or 1)
    setproctitle(TITLE)
    with tempfile.TemporaryFile() as seats:
        keeper = Keeper(settings, argv, bound, seats.fileno(), with_tls=tls is not None)
        scheme = "http" if tls is None else "https"
        log.info(
            "Listening on %s://%s with %d processes",
            scheme,
            listening.shown(bound[0].getsockname()),
            settings.processes,
            extra={"action": "web_ready", "pid": os.getpid()},
        )
        return keeper.run()


class Keeper:
    """Hold the processes.

    Args:
        settings: see `keep`.
        argv: the command of one process.
        bound: the listeners.
        seats: an empty file for `Seats`.
        with_tls: whether the processes speak TLS.

    """

    def __init__(
        self,
        settings: Settings,
        argv: Sequence[str],
        bound: Sequence[socket.socket],
        seats: int,
        *,
        with_tls: bool,
    ) -> None:
        self._settings = settings
        self._argv = argv
        self._listeners = bound
        self._count = settings.processes or 1
        os.truncate(seats, self._count)
        self._file = seats
        self._seats = Seats(seats, self._count)
        self._metrics = _metrics_listeners(settings, self._count)
        self._key: bytes | None = None
        self._key_made_at = 0.0
        if with_tls:
            self._choose_key()
        self._current: dict[int, Child] = {}
        self._due: dict[int, float] = {}
        self._deaths: dict[int, int] = {}
        self._leaving: list[Child] = []
        self._successor: Child | None = None
        self._roll = Roll(())
        self._was_ready = False
        self._signals: list[int] = []
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Run until a signal asks to end; raises what `keep` raises."""
        with self._listening():
            try:
                for number in range(self._count):
                    self._current[number] = self._start(number)
                while self._take_signals():
                    self._wait()
                    self._bury()
                    self._restart()
                    self._go_on_rolling()
            finally:
                self._stop_all()
        return 0

    # -- processes ----------------------------------------------------------------------------

    def _start(self, number: int) -> Child:
        metrics = self._metrics.get(number)
        child = Child(
            self._argv,
            number=number,
            processes=self._count,
            listeners=tuple(listener.fileno() for listener in self._listeners),
            seats=self._file,
            metrics=-1 if metrics is None else metrics.fileno(),
            ticket_key=self._key,
        )
        self._selector.register(child, selectors.EVENT_READ, child)
        return child

    def _forget(self, child: Child) -> None:
        with suppress(KeyError):
            self._selector.unregister(child)
        child.close()

    def _bury(self) -> None:
        """Notice the processes that have ended; force those that should have."""
        now = time.monotonic()
        for child in tuple(self._leaving):
            if child.poll() is not None:
                self._leaving.remove(child)
                self._forget(child)
            elif child.leave_by is not None and now > child.leave_by:
                log.warning("Process %d hangs", child.number, extra={"action": "web_killed"})
                child.send(signal.SIGKILL)
                child.leave_by = None
        for number, child in tuple(self._current.items()):
            status = child.poll()
            if status is not None:
                del self._current[number]
                self._plan_restart(child, status)
                self._forget(child)

    def _plan_restart(self, child: Child, status: int) -> None:
        number = child.number
        self._seats.empty(number)
        lived = time.monotonic() - child.started_at
        deaths = self._deaths[number] = _POLICY.deaths(self._deaths.get(number, 0), lived)
        delay = _POLICY.delay(deaths, status=status, is_starting=not self._was_ready)
        how = how_it_ended(status)
        if delay is None:
            raise Failure(tr(f"web process {number} {how}", f"Web 进程 {number} {how}"))
        self._due[number] = time.monotonic() + delay
        log.error(
            "Process %d %s; starting it again in %g s",
            number,
            how,
            delay,
            extra={"action": "web_died", "pid": child.pid},
        )

    def _restart(self) -> None:
        for number, due in tuple(self._due.items()):
            if due > time.monotonic():
                continue
            try:
                self._current[number] = self._start(number)
            except OSError as error:
                self._due[number] = time.monotonic() + _POLICY.longest
                log.error("Process %d cannot be started: %s", number, error)  # noqa: TRY400
            else:
                del self._due[number]

    # -- replacing all -------------------------------------------------------------------------

    def _begin_rolling(self) -> None:
        """Replace every process; one that is being replaced at the moment is, once more."""
        if self._key is not None and time.monotonic() - self._key_made_at > KEY_SECONDS:
            self._choose_key()
        current = self._roll.left[:1] if self._successor is not None else ()
        rest = tuple(range(self._count))
        self._roll = Roll((*current, *rest), self._roll.started_at if current else None)
        log.info("Replacing all processes", extra={"action": "web_rolling"})

    def _go_on_rolling(self) -> None:
        successor = self._successor
        step = self._roll.step(
            time.monotonic(),
            ready=successor is not None and successor.is_ready,
            dead=successor is not None and successor.poll() is not None,
        )
        if step is Step.START:
            try:
                self._successor = self._start(self._roll.left[0])
            except OSError as error:
                self._give_up(str(error))
            else:
                self._roll = self._roll.begun(time.monotonic())
        elif step is Step.GIVE_UP:
            self._give_up("a successor does not come up")
        elif step is Step.HAND_OVER and successor is not None:
            self._hand_over(successor)

    def _hand_over(self, successor: Child) -> None:
        number = successor.number
        self._seats.take(number)  # it has, but its predecessor may have died since
        predecessor = self._current.get(number)
        self._current[number], self._successor = successor, None
        self._due.pop(number, None)
        if predecessor is not None:
            self._let_go(predecessor, RETIRE if predecessor.is_ready else signal.SIGTERM)
        self._roll = self._roll.handed_over()
        if not self._roll.left:
            log.info("All processes are new", extra={"action": "web_rolled"})

    def _give_up(self, why: str) -> None:
        log.error(
            "The replacement ends here, and %d processes stay as they are: %s",
            len(set(self._roll.left)),
            why,
            extra={"action": "web_roll_failed"},
        )
        self._roll = Roll(())
        if self._successor is not None:
            self._let_go(self._successor, signal.SIGTERM)
            self._successor = None

    def _let_go(self, child: Child, number: int) -> None:
        within = self._settings.shutdown_seconds + GRACE_SECONDS
        within += RETIRE_SECONDS if number == RETIRE else 0.0
        child.leave(number, within=within)
        self._leaving.append(child)

    def _choose_key(self) -> None:
        """Make a key for the tickets of all processes, where that is possible."""
        certificate = self._settings.tls_cert or ""
        if ticket_keys.supported(certificate, self._settings.tls_key or certificate):
            self._key, self._key_made_at = ticket_keys.make(), time.monotonic()
        else:
            log.warning(
                "This Python cannot set OpenSSL's ticket keys: a TLS session is resumed only by "
                "the process that began it",
                extra={"action": "tls_tickets"},
            )

    # -- the end -------------------------------------------------------------------------------

    def _stop_all(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._successor is not None:
            self._leaving.append(self._successor)
            self._successor = None
        self._leaving += self._current.values()
        self._current.clear()
        self._due.clear()
        within = self._settings.shutdown_seconds + GRACE_SECONDS
        for child in self._leaving:
            child.leave(signal.SIGTERM, within=within)
        while self._leaving:
            self._wait()
            if self._signals.count(signal.SIGINT) > 1:
                self._signals.clear()
                for child in self._leaving:
                    child.leave(signal.SIGTERM, within=HURRY_SECONDS)
            self._bury()
        self._selector.close()

    # -- waiting -------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Wait for a signal, a death or a word, or until something is due."""
        now = time.monotonic()
        moments = [now + _LOOK, *self._due.values()]
        moments += [child.leave_by for child in self._leaving if child.leave_by is not None]
        for key, _ in self._selector.select(max(0.0, min(moments) - now)):
            if key.data is None:
                with suppress(BlockingIOError):
                    os.read(key.fd, 4096)
            elif not key.data.hear():
                self._selector.unregister(key.data)
                self._was_ready |= key.data.is_ready

    def _take_signals(self) -> bool:
        """Do what the signals ask for; return whether to go on."""
        while self._signals:
            if self._signals[0] in _STOP:
                return False
            number = self._signals.pop(0)
            if number == signal.SIGHUP:
                self._begin_rolling()
            elif number == RELOAD:
                for child in self._current.values():
                    if child.is_ready:
                        child.send(RELOAD)
        return True

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Note signals, and wake up for them and for deaths."""
        wakeup, wake = os.pipe()
        for end in (wakeup, wake):
            os.set_blocking(end, False)
        self._selector.register(wakeup, selectors.EVENT_READ, None)
        for number in (*_STOP, signal.SIGHUP, RELOAD):
            signal.signal(number, self._note)
        # A handler, even an idle one, is what makes the system wake us when a child dies.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        try:
            yield
        finally:
            # Everything is over; Python gives handlers of its own back before it has ended, and
            # a second signal would then make a death of a good end. An ignored one stays so.
            for number in (*_STOP, signal.SIGHUP, RELOAD):
                signal.signal(number, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            os.close(wakeup)
            os.close(wake)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._signals.append(number)


def _metrics_listeners(settings: Settings, processes: int) -> dict[int, socket.socket]:
    """Return a listener for each process's metrics, at the port and those after it."""
    port = settings.metrics_port
    found: dict[int, socket.socket] = {}
    for number in range(processes if port is not None else 0):
        wanted = port + number if port else 0
        try:
            found[number] = listening.bind(settings.metrics_host, wanted)
        except (AsyncNodesError, OverflowError) as error:
            log.warning(
                "No metrics of process %d: port %d cannot be taken: %s",
                number,
                wanted,
                error,
                extra={"action": "metrics_port_busy"},
            )
    return found

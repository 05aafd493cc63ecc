"""The breakers of one process: they count calls, know the shared condition, refuse or let through.

A call through a closed breaker costs a few additions. Twice a second, while there are calls, one
script call sends what was counted and brings what is known; so an opening is known everywhere
within a second. While the store does not answer each process decides by what it sees itself.
"""

from __future__ import annotations

import logging
import random
import secrets
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Self

import pybreaker
from greenlet import GreenletExit

from async_nodes.core import breaker as rules
from async_nodes.core.breaker import PRISTINE, SLICES, Breaker, Condition, State, name_of
from async_nodes.core.errors import AsyncNodesError, TaskCancelled
from async_nodes.core.windows import BOUNDS, Counts
from async_nodes.execution.breaker_circuit import circuit
from async_nodes.execution.endings import retryable
from async_nodes.execution.signals import FenceLost, Released
from async_nodes.storage.breakers import Grant, Look, Seen
from async_nodes.telemetry import breaker_metrics

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from async_nodes.execution.report import Later
    from async_nodes.storage.breakers import SharedBreakers

_log = logging.getLogger(__name__)

FLUSH_EVERY: Final = 0.5
"""Seconds between two looks at the store, while there are calls."""

ASK_EVERY: Final = 0.05
"""Seconds after which a process asks again for a trial that another one has."""

BUSY_RETRY: Final = 0.1
"""Share of its opening after which a call may come back that half-open does not let through."""

FORCED_RETRY: Final = 30.0
"""The same for a breaker that is forced open."""

MOST_ENDPOINTS: Final = 200
"""Breakers of endpoints that a process has; the one that is not used for longest goes."""

_NO_SIGN: Final = (TaskCancelled, Released, FenceLost, GreenletExit, GeneratorExit)
"""What ends a call from outside and says nothing about what was called."""


class BreakerOpen(AsyncNodesError):
    """Refuse a call.

    Args:
        name: of the breaker.
        seconds: until it may be tried again.

    """

    def __init__(self, name: str, seconds: float, *, why: str) -> None:
        super().__init__(
            "breaker_open", f"{name}: {why}", retry_after=round(seconds, 3), breaker=name
        )


def is_failure(error: BaseException | None) -> bool | None:
    """Tell whether a call failed; None for one that proves nothing.

    A caller's own mistake, which no other try would mend, is the dependency's success.
    """
    if error is None:
        return False
    if isinstance(error, (*_NO_SIGN, BreakerOpen)):
        return None
    if isinstance(error, Exception):
        return retryable(error)
    return True  # the time-out, and whatever else strikes from outside


class Call:
    """One call through a breaker, as a ``with`` statement: let through, timed and judged."""

    __slots__ = ("_guarded", "_pybreaker", "_started", "_token")

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded

    @property
    def is_trial(self) -> bool:
        """Tell whether a half-open breaker has let it through."""
        return bool(getattr(self, "_token", ""))

    def __enter__(self) -> Self:
        """Let the call through.

        Raises:
            BreakerOpen: it is not to be made.

        """
        self._token = "" if self._guarded.passable else self._guarded.ask()
        if self._token:
            self._pybreaker: AbstractContextManager[Any] = self._guarded.circuit.calling()
            self._pybreaker.__enter__()
        self._started = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        seconds = time.monotonic() - self._started
        failed = False if error is None else is_failure(error)
        if self._token:
            try:
                self._pybreaker.__exit__(kind, error, trace)
            finally:
                self._guarded.trial_over(self._token, seconds, failed=failed)
        if failed is not None:
            self._guarded.count(seconds, failed=failed)


class Guarded:
    """One breaker in this process.

    Args:
        name: of the breaker.
        breaker: what was declared.
        board: what the breakers of the process share.

    Attributes:
        passable: whether calls are let through without a question.
        condition: what is known.

    """

    def __init__(self, name: str, breaker: Breaker, board: Board) -> None:
        self.name = name
        self.breaker = breaker
        self.passable = True
        self.condition = PRISTINE
        self.counts = Counts()
        self.used_at = 0.0
        self.token = ""
        self._board = board
        self._base = 0
        self._opens_at = 0.0
        self._asking = False
        self._ask_at = 0.0
        self._slices: dict[int, Counts] = {}
        self._said = State.CLOSED
        self._said_mode = ""
        self.circuit = circuit(name, lambda: str(self.condition.state), *board.listeners)

    def __call__(self) -> Call:
        """Return a call, to be made inside a ``with`` statement."""
        return Call(self)

    def count(self, seconds: float, *, failed: bool) -> None:
        """Count a call that has ended."""
        counts = self.counts
        counts.calls += 1
        counts.failures += failed
        size = bisect_left(BOUNDS, seconds)
        counts.sizes[size] = counts.sizes.get(size, 0) + 1
        if not self._board.awake:
            self._board.wake()

    # -- while it is not closed ----------------------------------------------------------------

    def ask(self) -> str:
        """Return the token of the trial that a call is; nothing when the breaker is closed by now.

        Raises:
            BreakerOpen: the call is not to be made.

        """
        now = time.monotonic()
        if self.condition.forced:
            raise self._refusal(FORCED_RETRY, "it is forced open")
        if self.condition.state is State.OPEN and now < self._opens_at:
            raise self._refusal(self._opens_at - now, _WORDS[self.condition.cause])
        if self._asking or self.token or now < self._ask_at:
            raise self._busy()
        self._asking = True
        try:
            return self._ask()
        finally:
            self._asking = False

    def _ask(self) -> str:
        token = secrets.token_hex(8)
        shared = self._board.shared
        try:
            trial = shared.take(self.name, token) if shared and not self._board.alone else None
            if trial is None:
                return self._try_alone()
            self._board.set_clock(trial.now_ms)
            if trial.condition is not None:
                self._adopt(trial.condition, shared=True)
            if trial.grant is Grant.CLOSED:
                return ""
            if trial.grant is Grant.OPEN:
                wait = FORCED_RETRY if trial.wait_ms < 0 else trial.wait_ms / 1000
                raise self._refusal(wait, _WORDS[self.condition.cause])
            if trial.grant is Grant.BUSY:
                self._ask_at = time.monotonic() + ASK_EVERY
                raise self._busy()
            if self.condition.state is not State.HALF_OPEN:
                self._change(rules.half_opened(self.condition, now_ms=trial.now_ms))
        except BreakerOpen:
            raise
        except AsyncNodesError:
            return self._try_alone()
        self.token = token
        self._board.wake()
        return token

    def _try_alone(self) -> str:
        """Let one call of this process through: the store, which knows of the others, is away."""
        if self.condition.state is not State.HALF_OPEN:
            self._adopt(rules.half_opened(self.condition, now_ms=self._board.now_ms()))
        self.token = ALONE
        return ALONE

    def trial_over(self, token: str, seconds: float, *, failed: bool | None) -> None:
        """Take the result of a trial; None for one that proves nothing."""
        self.token = ""
        shared = None if token == ALONE or self._board.alone else self._board.shared
        try:
            # Only an administrator changes it meanwhile, so a second round is rare.
            for _ in range(3):
                after = self._after_trial(seconds, failed=failed)
                if after is self.condition:
                    break
                if shared is None:
                    self._adopt(after)
                elif not self._change(after, token=token):
                    continue
                return
            if shared is not None:
                shared.give_back(self.name, token)
        except AsyncNodesError:
            self._adopt(self._after_trial(seconds, failed=failed))

    def _after_trial(self, seconds: float, *, failed: bool | None) -> Condition:
        board, known = self._board, self.condition
        if failed is None:
            return known
        passed = rules.passes(self.breaker, known, seconds=seconds, failed=failed)
        return rules.tried(
            self.breaker, known, passed=passed, now_ms=board.now_ms(), draw=board.draw()
        )

    def _busy(self) -> BreakerOpen:
        # In half-open many come back at once, and one of them is let through.
        seconds = max(self.breaker.open_seconds * BUSY_RETRY, 0.1)
        why = "it is half-open, and another call is its trial"
        return self._refusal(seconds * (1 + self._board.draw()), why)

    def _refusal(self, seconds: float, why: str) -> BreakerOpen:
        breaker_metrics.refused(self.name).inc()
        # Whoever only refuses goes on looking, or would never hear that somebody has closed it.
        self.used_at = time.monotonic()
        self._board.wake()
        # Those that are refused now are not to come back all at once.
        return BreakerOpen(self.name, seconds + self._board.draw() * min(seconds / 10, 3), why=why)

    # -- what is known -------------------------------------------------------------------------

    def seen(self, seen: Seen) -> None:
        """Take what the store knows, and judge."""
        found = seen.condition
        if found is None:
            # Emptied, or never written: whoever knows something writes it again.
            self._base = 0
        elif found.version == self._base and self.condition.version != self._base:
            pass  # decided alone while the store was away, and nobody has decided since
        else:
            self._adopt(found, shared=True)
        known = self.condition
        after = rules.judged(
            self.breaker, known, seen.slices, now_ms=seen.now_ms, draw=self._board.draw()
        )
        if after.version != self._base:
            self._change(after)
        self._slices.clear()

    def judge_alone(self, counts: Counts) -> None:
        """Judge by this process's own calls: the store is away."""
        now_ms = self._board.now_ms()
        number = now_ms // self.breaker.slice_ms
        self._slices.setdefault(number, Counts()).take_in(counts)
        for old in [one for one in self._slices if one <= number - 2 * SLICES]:
            del self._slices[old]
        self._adopt(
            rules.judged(
                self.breaker, self.condition, self._slices, now_ms=now_ms, draw=self._board.draw()
            )
        )

    def _change(self, wanted: Condition, *, token: str = "") -> bool:
        """Write a condition; adopt it, or the one that somebody else has written."""
        shared = self._board.shared
        if shared is None:
            self._adopt(wanted)
            return True
        other = shared.change(self.name, self._base, wanted, token=token)
        self._adopt(wanted if other is None else other, shared=True)
        return other is None

    def _adopt(self, condition: Condition, *, shared: bool = False) -> None:
        self.condition = condition
        if shared:
            self._base = condition.version
        self.passable = condition.state is State.CLOSED
        left = (condition.until_ms - self._board.now_ms()) / 1000
        self._opens_at = time.monotonic() + left
        if condition.state is not self._said:
            self._said = condition.state
            _ = self.circuit.state  # pybreaker looks, and tells its listeners
        if condition.mode != self._said_mode:
            self._say_mode(condition)

    def _say_mode(self, condition: Condition) -> None:
        entered = condition.mode or self._said_mode
        self._said_mode = condition.mode
        _log.warning(
            "The degraded mode %s of %s is %s",
            entered,
            self.name,
            "entered" if condition.mode else "left",
            extra={"action": "breaker_mode", "breaker": self.name, "mode": condition.mode},
        )


ALONE: Final = "alone"
"""Token of a trial that no other process knows of."""

_WORDS: Final[Mapping[rules.Cause, str]] = {
    rules.Cause.NEW: "it is open",
    rules.Cause.FAILURES: "it is open, too many calls failed",
    rules.Cause.LOAD_AND_LATENCY: "it is open, there were too many calls and they were too slow",
    rules.Cause.TRIALS_FAILED: "it is open, trials have failed",
    rules.Cause.TRIALS_SUCCEEDED: "it is open",
    rules.Cause.TIME_OVER: "it is open",
    rules.Cause.FORCED: "it is forced open",
}


class Announcer(pybreaker.CircuitBreakerListener):
    """Log and count every change of state, with the figures that decided.

    Args:
        conditions: returns what is known of the breakers by name.

    """

    def __init__(self, conditions: Callable[[], Mapping[str, Condition]]) -> None:
        self._conditions = conditions

    def state_change(self, cb: Any, old_state: Any, new_state: Any) -> None:
        """Say that a breaker has changed."""
        name = str(cb.name)
        breaker_metrics.transitions(name, new_state.name).inc()
        condition = self._conditions().get(name, PRISTINE)
        figures = condition.figures
        _log.warning(
            "The breaker %s is %s (%s): %d calls, %d failed, %.3g per second, P95 %.3g s",
            name,
            new_state.name,
            condition.cause.value,
            figures.calls,
            figures.failures,
            figures.rate,
            figures.p95,
            extra={
                "action": "breaker_changed",
                "breaker": name,
                "from": getattr(old_state, "name", None),
                "state": new_state.name,
                **{key: value for key, value in condition.to_json().items() if key != "state"},
            },
        )


class Board:
    """Hold the breakers of a process, and keep them and the store together.

    Args:
        shared: the breakers of all processes, None for a process by itself.
        later: runs a function after so many seconds.
        endpoint: what holds for every endpoint; None: endpoints have no breakers.
        draw: gives uniform random numbers in [0, 1).

    Attributes:
        alone: whether the store did not answer the last time.
        awake: whether the next look at the store is due by itself.
        listeners: told by pybreaker of every change of state.

    """

    def __init__(
        self,
        shared: SharedBreakers | None,
        later: Later | None,
        *,
        endpoint: Breaker | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.shared = shared
        self.draw = draw
        self.alone = shared is None
        self.awake = False
        self.listeners: list[pybreaker.CircuitBreakerListener] = [Announcer(self.conditions)]
        self._later = later
        self._endpoint = endpoint
        self._ahead_ms = 0.0
        self._turns = 0
        self._named: dict[str, Guarded] = {}
        self._endpoints: OrderedDict[str, Guarded] = OrderedDict()

    def node(self, node: str, breaker: Breaker) -> Guarded:
        """Return the breaker of a node, or the one of its key."""
        name = name_of(node, breaker)
        return self._named.get(name) or self._made(name, breaker, self._named)

    def endpoint(self, address: str, tenant: str) -> Guarded | None:
        """Return the breaker of a host and port; a tenant's failures open it for that tenant."""
        if self._endpoint is None:
            return None
        name = f"endpoint:{address}" + (f"@{tenant}" if tenant != "default" else "")
        found = self._endpoints.get(name)
        if found is None:
            found = self._made(name, self._endpoint, self._endpoints)
            if len(self._endpoints) > MOST_ENDPOINTS:
                self._endpoints.popitem(last=False)
        else:
            self._endpoints.move_to_end(name)
        return found

    def _made(self, name: str, breaker: Breaker, among: dict[str, Guarded]) -> Guarded:
        made = among.setdefault(name, Guarded(name, breaker, self))
        made.used_at = time.monotonic()
        self.wake()  # it may be open already
        return made

    def conditions(self) -> dict[str, Condition]:
        """Return what is known, by name."""
        return {
            name: one.condition for name, one in [*self._named.items(), *self._endpoints.items()]
        }

    # -- the store's time ----------------------------------------------------------------------

    def set_clock(self, now_ms: int) -> None:
        """Take the store's time."""
        self._ahead_ms = now_ms - time.time() * 1000

    def now_ms(self) -> int:
        """Return the store's time, as far as it is known."""
        return int(time.time() * 1000 + self._ahead_ms)

    # -- together with the store ---------------------------------------------------------------

    def wake(self) -> None:
        """See to it that the store is looked at soon."""
        if not self.awake and self._later is not None:
            self.awake = True
            self._later(FLUSH_EVERY, self._turn)

    def _turn(self) -> None:
        try:
            self._turns += 1
            # What works well is looked at once a second, the rest twice.
            active = self.flush(urgent=bool(self._turns % 2))
        except Exception:  # noqa: BLE001 - whatever it is, breakers must go on
            _log.exception("Breakers cannot be judged", extra={"action": "breaker_broken"})
            active = True
        self.awake = False
        if active:
            self.wake()

    def flush(self, *, urgent: bool = False) -> bool:
        """Send what was counted and take what is known; tell whether there is more to come.

        Args:
            urgent: only of breakers that have failures or are not closed.

        """
        now = time.monotonic()
        rows: list[tuple[Guarded, Counts]] = []
        for one in [*self._named.values(), *self._endpoints.values()]:
            if urgent and one.passable and not one.counts.failures:
                continue
            counts, one.counts = one.counts, Counts()
            if counts.calls or one.token:
                one.used_at = now
            # Two windows after the last call there is nothing left to judge.
            if now - one.used_at <= 3 * one.breaker.window + 2 * FLUSH_EVERY:
                rows.append((one, counts))
        if not rows:
            return urgent  # the others have their turn next
        if not self._flushed(rows):
            for one, counts in rows:
                one.judge_alone(counts)
        return True

    def _flushed(self, rows: list[tuple[Guarded, Counts]]) -> bool:
        if self.shared is None:
            return False
        try:
            found = self.shared.look(
                [Look(one.name, one.breaker.slice_ms, counts) for one, counts in rows]
            )
            self.alone = False
            for (one, _), seen in zip(rows, found, strict=True):
                self.set_clock(seen.now_ms)
                if one.token not in {"", ALONE}:
                    self.shared.keep(one.name, one.token)
                one.seen(seen)
        except AsyncNodesError as error:
            if not self.alone:
                _log.warning(
                    "Breakers go by what this process sees: %s",
                    error.detail,
                    extra={"action": "breakers_alone"},
                )
            self.alone = True
            return False
        return True

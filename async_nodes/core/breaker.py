"""When calls of something that does badly are no longer made: the decisions of a circuit breaker.

Plain data in, plain data out: no clock, no store, no randomness of its own. Two rules open a
breaker, either of them by itself:

* load and slowness together, three windows in a row: ``rate > base_rate · (1 + 0.3·s)`` and
  ``P95 > base_latency · (1.5 - 0.2·s)``, where s is the load so far: the utilisation
  ``rate / base_rate`` of each window, clipped to 0..1, in an exponentially
  weighted mean (alpha = 0.3);
* failures: more than 50 and more than 30 % of the calls of the last window, a sliding one.

An open breaker refuses calls for 30 s, with jitter. Then it is half-open: one call at a time, and
the last seven decide. At 85 % of successes within the bound of latency it closes again; as soon as
that cannot be reached any more it opens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Self

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.windows import Counts, total

ALPHA: Final = 0.3
SLICES: Final = 10
"""Slices of a window: the sliding one moves on by a tenth of itself."""

FEWEST_TRIALS: Final = 7
FEWEST_CALLS: Final = 10
"""Calls of a window below which no mode is entered or left for them."""


LONGEST_NAME: Final = 100
"""Characters of a mode's name."""


class State(StrEnum):
    """Name the states, as pybreaker does."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Cause(StrEnum):
    """Say why a breaker is in its state."""

    NEW = "new"
    FAILURES = "failures"
    LOAD_AND_LATENCY = "load_and_latency"
    TRIALS_FAILED = "trials_failed"
    TRIALS_SUCCEEDED = "trials_succeeded"
    TIME_OVER = "time_over"
    FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Degraded:
    """Declare a mode in which a node does less while its dependency does badly.

    The body asks ``ctx.degraded`` for the mode's name. It is entered after a window in which the
    failures or the P95 are over a bound, and when the breaker opens; it is left after `calm`
    windows in a row within both, the breaker being closed.

    Attributes:
        name: of the mode, such as ``small-model``.
        failure_rate: share of failed calls.
        latency: seconds of the P95, or None for no bound.
        calm: windows.

    """

    name: str
    failure_rate: float = 0.1
    latency: float | None = None
    calm: int = 3

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        bounded = self.latency is None or _positive(self.latency)
        _check(
            "Degraded", "name", holds=_text(self.name), allowed=f"1 to {LONGEST_NAME} characters"
        )
        _check("Degraded", "failure_rate", holds=_share(self.failure_rate), allowed="0 to 1")
        _check("Degraded", "latency", holds=bounded, allowed="above 0")
        _check("Degraded", "calm", holds=_whole(self.calm, 1), allowed="1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Declare a circuit breaker.

    Attributes:
        key: breakers of one key are one; None for one of the node's own.
        window: seconds.
        base_rate: calls per second that are usual; None: the rule of load and latency is off.
        base_latency: seconds of a usual P95; None: that rule is off, and no success is too slow.
        windows: how many in a row must be over both thresholds.
        failures: in a window; more than so many open it …
        failure_rate: … if they are more than this share of its calls.
        open_seconds: how long it refuses calls.
        jitter: that time is longer or shorter by at most this share.
        trials: calls that decide in half-open, 7 or more.
        close_at: share of them that must succeed.
        degraded: what the node does less of while it goes badly.

    """

    key: str | None = None
    window: float = 10.0
    base_rate: float | None = None
    base_latency: float | None = None
    windows: int = 3
    failures: int = 50
    failure_rate: float = 0.3
    open_seconds: float = 30.0
    jitter: float = 0.1
    trials: int = FEWEST_TRIALS
    close_at: float = 0.85
    degraded: Degraded | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        checks = (
            ("key", self.key is None or _key(self.key), "1 to 100 letters, digits, . _ : or -"),
            ("window", _within(self.window, 0.1, 3600.0), "0.1 to 3600 seconds"),
            ("base_rate", self.base_rate is None or _positive(self.base_rate), "above 0"),
            ("base_latency", self.base_latency is None or _positive(self.base_latency), "above 0"),
            ("windows", _whole(self.windows, 1), "1 or more"),
            ("failures", _whole(self.failures, 0), "0 or more"),
            ("failure_rate", _share(self.failure_rate), "0 to 1"),
            ("open_seconds", _positive(self.open_seconds), "above 0"),
            ("jitter", _share(self.jitter), "0 to 1"),
            ("trials", _whole(self.trials, FEWEST_TRIALS), f"{FEWEST_TRIALS} or more"),
            ("close_at", _share(self.close_at) and self.close_at > 0, "above 0, at most 1"),
        )
        for name, holds, allowed in checks:
            _check("Breaker", name, holds=holds, allowed=allowed)

    @property
    def slice_ms(self) -> int:
        """Return the milliseconds of a slice."""
        return max(int(self.window * 1000 / SLICES), 1)


def _key(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9._:-]{1,100}", value) is not None


def _text(value: object) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_NAME and value.isprintable()


def _within(value: object, least: float, most: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and least <= value <= most  # type: ignore[operator] # it is a number


def _share(value: object) -> bool:
    return _within(value, 0.0, 1.0)


def _positive(value: object) -> bool:
    return _within(value, 1e-9, 1e9)


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _check(kind: str, name: str, *, holds: bool, allowed: str) -> None:
    if not holds:
        raise AsyncNodesError("invalid_node", f"{kind}: {name} must be {allowed}")


@dataclass(frozen=True, slots=True)
class Figures:
    """Hold what was measured over a window, and the bounds that it was held against.

    Attributes:
        calls, failures: how many.
        rate: calls per second.
        p95: seconds.
        failure_rate: share.
        rate_limit, p95_limit: thresholds of load and of latency, None where there is none.

    """

    calls: int = 0
    failures: int = 0
    rate: float = 0.0
    p95: float = 0.0
    failure_rate: float = 0.0
    rate_limit: float | None = None
    p95_limit: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Hold all that is known of a breaker; every change is a new one with a higher version.

    Attributes:
        version: rises with every change; 0 while nobody has written it.
        state: closed, open or half-open.
        cause: why.
        since_ms: since when, in the store's time.
        until_ms: when an open one may become half-open; 0 otherwise.
        forced: what an administrator has set: "", "open" or "closed".
        load: s of the specification, 0..1.
        window: number of the first window that has not been judged; 0 before the first.
        over: windows in a row over both thresholds.
        trials: the last results in half-open.
        mode: name of the degraded mode it is in, "" for none.
        calm: windows in a row in which that was not needed.
        figures: of the window that was judged last, or that decided.

    """

    version: int = 0
    state: State = State.CLOSED
    cause: Cause = Cause.NEW
    since_ms: int = 0
    until_ms: int = 0
    forced: str = ""
    load: float = 0.0
    window: int = 0
    over: int = 0
    trials: tuple[bool, ...] = ()
    mode: str = ""
    calm: int = 0
    figures: Figures = field(default_factory=Figures)

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        figures = {name: getattr(self.figures, name) for name in Figures.__slots__}
        members = {name: getattr(self, name) for name in Condition.__slots__}
        return {**members, "trials": [int(one) for one in self.trials], "figures": figures}

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote, members of later releases left out."""
        known = {name: given[name] for name in Condition.__slots__ if name in given}
        figures = given.get("figures", {})
        known["figures"] = Figures(**{n: figures[n] for n in Figures.__slots__ if n in figures})
        known["state"], known["cause"] = State(given["state"]), Cause(given["cause"])
        known["trials"] = tuple(bool(one) for one in given.get("trials", ()))
        return cls(**known)


PRISTINE: Final = Condition()


def name_of(node: str, breaker: Breaker) -> str:
    """Return the name of a node's breaker, or of the one that its key shares."""
    return f"node:{node}" if breaker.key is None else f"key:{breaker.key}"


def thresholds(breaker: Breaker, load: float) -> tuple[float | None, float | None]:
    """Return the bounds of the rate and of the P95 at a load, None where there is none."""
    rate, latency = breaker.base_rate, breaker.base_latency
    return (
        None if rate is None else rate * (1 + 0.3 * load),
        None if latency is None else latency * (1.5 - 0.2 * load),
    )


def figures_of(breaker: Breaker, counts: Counts, load: float) -> Figures:
    """Return what a window's counts mean."""
    return Figures(
        counts.calls,
        counts.failures,
        round(counts.calls / breaker.window, 3),
        round(counts.percentile(0.95), 6),
        round(counts.failure_rate, 6),
        *thresholds(breaker, load),
    )


def judged(
    breaker: Breaker, known: Condition, slices: Mapping[int, Counts], *, now_ms: int, draw: float
) -> Condition:
    """Return the condition after a look at what calls did; the same one when nothing changes.

    Args:
        breaker: what was declared.
        known: the condition so far.
        slices: counts by the slice's number, which is its time over `Breaker.slice_ms`.
        now_ms: the store's time.
        draw: a uniform random number in [0, 1), for the jitter.

    """
    if known.forced or known.state is not State.CLOSED:
        return known
    current = now_ms // breaker.slice_ms
    first = known.since_ms // breaker.slice_ms + 1 if known.since_ms else 0
    recent = total(slices, range(max(current - SLICES + 1, first), current + 1))
    if recent.failures > breaker.failures and recent.failure_rate > breaker.failure_rate:
        figures = figures_of(breaker, recent, known.load)
        return opened(breaker, known, Cause.FAILURES, figures=figures, now_ms=now_ms, draw=draw)
    window = current // SLICES
    if not known.window:
        return replace(known, version=known.version + 1, window=window)
    if window <= known.window:
        return known
    after = _after_silence(known, window - 2 - known.window)
    for number in range(max(known.window, window - 2), window):
        after = _window_over(breaker, after, slices, number)
        if after.over >= breaker.windows:
            return opened(
                breaker,
                replace(after, version=known.version),
                Cause.LOAD_AND_LATENCY,
                figures=after.figures,
                now_ms=now_ms,
                draw=draw,
            )
    return replace(after, version=known.version + 1, window=window)


def _after_silence(known: Condition, windows: int) -> Condition:
    """Return what is left after windows so long ago that their counts are gone, if there were any.

    Whoever calls makes the others look; so nobody called.
    """
    if windows <= 0:
        return known
    return replace(
        known, load=known.load * (1 - ALPHA) ** windows, over=0, calm=known.calm + windows
    )


def _window_over(
    breaker: Breaker, known: Condition, slices: Mapping[int, Counts], number: int
) -> Condition:
    first = known.since_ms // breaker.slice_ms + 1 if known.since_ms else 0
    counts = total(slices, range(max(number * SLICES, first), (number + 1) * SLICES))
    figures = figures_of(breaker, counts, known.load)
    over = _is_over(figures)
    used = min(figures.rate / breaker.base_rate, 1.0) if breaker.base_rate else 0.0
    mode, calm = _mode(breaker.degraded, known, figures)
    return replace(
        known,
        load=round(ALPHA * used + (1 - ALPHA) * known.load, 9),
        over=known.over + 1 if over else 0,
        mode=mode,
        calm=calm,
        figures=figures,
    )


def _is_over(figures: Figures) -> bool:
    if figures.rate_limit is None or figures.p95_limit is None:
        return False
    return figures.rate > figures.rate_limit and figures.p95 > figures.p95_limit


def _mode(degraded: Degraded | None, known: Condition, figures: Figures) -> tuple[str, int]:
    if degraded is None:
        return "", 0
    too_slow = degraded.latency is not None and figures.p95 > degraded.latency
    is_bad = figures.failure_rate > degraded.failure_rate or too_slow
    if is_bad and figures.calls >= FEWEST_CALLS:
        return degraded.name, 0
    if not known.mode:
        return "", 0
    calm = known.calm + 1
    return ("", 0) if calm >= degraded.calm else (degraded.name, calm)


def opened(
    breaker: Breaker,
    known: Condition,
    cause: Cause,
    *,
    now_ms: int,
    draw: float,
    figures: Figures | None = None,
) -> Condition:
    """Return an open condition.

    Args:
        breaker: what was declared.
        known: the condition before.
        cause: why.
        now_ms: the store's time.
        draw: a uniform random number in [0, 1).
        figures: what decided; those before when None.

    """
    seconds = breaker.open_seconds * (1 + breaker.jitter * (2 * draw - 1))
    return replace(
        known,
        version=known.version + 1,
        state=State.OPEN,
        cause=cause,
        since_ms=now_ms,
        until_ms=now_ms + max(int(seconds * 1000), 1),
        over=0,
        trials=(),
        calm=0,
        mode=breaker.degraded.name if breaker.degraded else "",
        figures=known.figures if figures is None else figures,
    )


def half_opened(known: Condition, *, now_ms: int) -> Condition:
    """Return the condition of an open breaker whose time is over."""
    return replace(
        known,
        version=known.version + 1,
        state=State.HALF_OPEN,
        cause=Cause.TIME_OVER,
        since_ms=now_ms,
        until_ms=0,
        trials=(),
    )


def closed(known: Condition, cause: Cause, *, now_ms: int, window: int = 0) -> Condition:
    """Return a closed condition; what happened before is not held against it."""
    return replace(
        known,
        version=known.version + 1,
        state=State.CLOSED,
        cause=cause,
        since_ms=now_ms,
        until_ms=0,
        window=window,
        over=0,
        trials=(),
    )


def passes(breaker: Breaker, known: Condition, *, seconds: float, failed: bool) -> bool:
    """Tell whether a trial counts as a success: it worked, and within the bound of latency."""
    limit = thresholds(breaker, known.load)[1]
    return not failed and (limit is None or seconds <= limit)


def tried(
    breaker: Breaker, known: Condition, *, passed: bool, now_ms: int, draw: float
) -> Condition:
    """Return the condition after a trial; a trial that ends after half-open has decided counts not.

    Args:
        breaker: what was declared.
        known: the condition before.
        passed: what `passes` says of it.
        now_ms: the store's time.
        draw: a uniform random number in [0, 1), for the jitter.

    """
    if known.state is not State.HALF_OPEN:
        return known
    trials = (*known.trials, passed)[-breaker.trials :]
    after = replace(known, version=known.version + 1, trials=trials)
    needed = math.ceil(breaker.close_at * breaker.trials - 1e-9)
    if trials.count(False) > breaker.trials - needed:
        return replace(
            opened(breaker, known, Cause.TRIALS_FAILED, now_ms=now_ms, draw=draw), trials=trials
        )
    if len(trials) == breaker.trials:
        window = now_ms // breaker.slice_ms // SLICES
        ended = closed(known, Cause.TRIALS_SUCCEEDED, now_ms=now_ms, window=window)
        return replace(ended, trials=trials)
    return after


def forced(known: Condition, mode: str, *, now_ms: int) -> Condition:
    """Return the condition an administrator wants: ``open``, ``closed``, or ``auto`` again.

    Back on ``auto`` a breaker is closed and judges by what happens from now on.
    """
    if mode == State.OPEN:
        state, word = State.OPEN, mode
    else:
        state, word = State.CLOSED, mode if mode == State.CLOSED else ""
    return replace(
        closed(known, Cause.FORCED, now_ms=now_ms),
        state=state,
        forced=word,
        mode=known.mode if state is State.OPEN else "",
    )

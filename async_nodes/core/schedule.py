"""Schedules, the pure part: when they tick, and which ticks are fired when some were late.

A tick is a moment, in milliseconds since 1970. Knows neither cron's grammar nor a clock: what
reads one brings the times that a wall clock shows, and `Wall` says when it shows them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from typing import Final, Protocol

LATE_MS: Final = 10_000
"""How late a tick may be fired and still count as fired on time: a process that died with it in
hand is followed by another within half of this."""

MOST_MADE_UP: Final = 100
"""Ticks that ``all`` makes up for after an outage, the newest ones."""

MOST_WALKED: Final = 10_000
"""Ticks that are looked at in one go: a week of minutes, or some hours of seconds."""

SHORTEST_INTERVAL_MS: Final = 1_000
_DAY: Final = timedelta(days=1)


class Missed(StrEnum):
    """What becomes of ticks that nobody was there to fire."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of a tick while the task of the one before has not ended."""

    ALLOW = "allow"
    SKIP = "skip"


class Timetable(Protocol):
    """Tells when a schedule ticks."""

    def after(self, moment: int) -> Iterator[int]:
        """Return the ticks later than a moment, rising; they may end."""


@dataclass(frozen=True, slots=True)
class Every:
    """Tick at a steady pace, whatever a wall clock does.

    Args:
        interval_ms: between two ticks, at least 1.
        first: the first tick.

    """

    interval_ms: int
    first: int

    def after(self, moment: int) -> Iterator[int]:
        """Return the ticks later than a moment."""
        behind = max((moment - self.first) // self.interval_ms + 1, 0)
        return itertools.count(self.first + behind * self.interval_ms, self.interval_ms)


@dataclass(frozen=True, slots=True)
class Wall:
    """Tick when a wall clock in a time zone shows certain times.

    Where a clock is put forward, some times are never shown; where it is put back, some are shown
    twice. Times that stand for an hour of the day tick once in either case, as in Debian's cron:
    what was left out at the moment of the change, what comes twice the first time. Times that
    stand for a pace (every five minutes, every hour) tick whenever they are shown.

    Args:
        zone: the time zone.
        times: returns the times later than one, without a zone, rising.
        keeps_pace: whether they stand for a pace.

    """

    zone: tzinfo
    times: Callable[[datetime], Iterator[datetime]]
    keeps_pace: bool

    def after(self, moment: int) -> Iterator[int]:
        """Return the ticks later than a moment."""
        return itertools.dropwhile(
            lambda tick: tick <= moment, self._from(_to_start_with(moment, self.zone))
        )

    def _from(self, start: datetime) -> Iterator[int]:
        shown_again: deque[int] = deque()
        last: int | None = None
        for time in self.times(start):
            first, second = _moment(time, self.zone, 0), _moment(time, self.zone, 1)
            if first > second:  # never shown: PEP 495 gives it the offsets the other way round
                if self.keeps_pace:
                    continue
                first = second = _change_between(second, first, self.zone)
            while shown_again and shown_again[0] < first:
                yield shown_again.popleft()
            if last is None or first > last:
                yield first
                last = first
            if self.keeps_pace and second > first:
                shown_again.append(second)
        yield from shown_again


@dataclass(frozen=True, slots=True)
class Bounded:
    """Tick as another timetable does, within bounds.

    Args:
        timetable: the other.
        starts: the first moment at which it may tick; None for no bound.
        ends: the first at which it may not tick any more; None for no bound.

    """

    timetable: Timetable
    starts: int | None = None
    ends: int | None = None

    def after(self, moment: int) -> Iterator[int]:
        """Return the ticks later than a moment."""
        start = moment if self.starts is None else max(moment, self.starts - 1)
        ticks = self.timetable.after(start)
        ends = self.ends
        return ticks if ends is None else itertools.takewhile(lambda tick: tick < ends, ticks)


def _to_start_with(moment: int, zone: tzinfo) -> datetime:
    """Return a time on the wall before which nothing is shown later than a moment.

    Near a change that is earlier than what the clock shows at the moment, by what it is put back.
    """
    now = datetime.fromtimestamp(moment // 1000, zone)
    offset = now.utcoffset() or timedelta()
    changes = [abs(((now + away).utcoffset() or timedelta()) - offset) for away in (-_DAY, _DAY)]
    return now.replace(tzinfo=None) - max(changes)


def _moment(time: datetime, zone: tzinfo, fold: int) -> int:
    return round(time.replace(tzinfo=zone, fold=fold).timestamp()) * 1000


def _change_between(low: int, high: int, zone: tzinfo) -> int:
    """Return the moment at which the clock is changed; there is one in (low, high]."""
    old = datetime.fromtimestamp(low // 1000, zone).utcoffset()
    before, changed = low // 1000, high // 1000
    while changed - before > 1:
        middle = (before + changed) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == old:
            before = middle
        else:
            changed = middle
    return changed * 1000


# -- what is fired ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Hold what decides about the ticks of a schedule.

    Attributes:
        timetable: when it ticks.
        missed: see `Missed`.
        jitter_ms: by how much at most a tick is fired later than it is, and never as late as the
            next one; the same for each look at the same tick.
        seed: what makes its jitter another than that of other schedules.

    """

    timetable: Timetable
    missed: Missed = Missed.ONCE
    jitter_ms: int = 0
    seed: str = ""

    def due(self, tick: int) -> int:
        """Return when a tick is to be fired."""
        if not self.jitter_ms:
            return tick
        following = next(self.timetable.after(tick), None)
        room = self.jitter_ms if following is None else following - tick - 1
        digest = hashlib.blake2b(f"{self.seed} {tick}".encode(), digest_size=8).digest()
        return tick + int.from_bytes(digest) % (min(self.jitter_ms, room) + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Say what to do now.

    Attributes:
        fires: ticks to fire, in this order.
        passed: how many ticks are given up; after a very long outage, at least so many.
        following: the tick to wait for then; None when there is none.

    """

    fires: tuple[int, ...]
    passed: int
    following: int | None


def first_tick(timetable: Timetable, now: int) -> int | None:
    """Return the tick that a schedule begins with, None when it has none left."""
    return next(timetable.after(now), None)


def plan(schedule: Schedule, expected: int, now: int) -> Plan:
    """Decide about the ticks up to now.

    Args:
        schedule: whose.
        expected: the first tick that has not been dealt with.
        now: milliseconds since 1970.

    """
    newest: deque[int] = deque(maxlen=MOST_MADE_UP)
    count = 0
    following: int | None = None
    for tick in itertools.chain([expected], schedule.timetable.after(expected)):
        if schedule.due(tick) > now:
            following = tick
            break
        if count == MOST_WALKED:
            newest = _newest(schedule, now)
            following = first_tick(schedule.timetable, newest[-1])
            break
        newest.append(tick)
        count += 1
    missed = [tick for tick in newest if schedule.due(tick) < now - LATE_MS]
    timely = [tick for tick in newest if schedule.due(tick) >= now - LATE_MS]
    fires = _fires(schedule.missed, missed, timely)
    return Plan(fires, count - len(fires), following)


def _newest(schedule: Schedule, now: int) -> deque[int]:
    """Return the newest ticks that are due; there are more than enough."""
    span = 2 * LATE_MS
    while True:
        ticks = schedule.timetable.after(now - span)
        due = itertools.takewhile(lambda tick: schedule.due(tick) <= now, ticks)
        newest = deque(due, maxlen=MOST_MADE_UP)
        if len(newest) == MOST_MADE_UP:
            return newest
        span *= 2


def _fires(policy: Missed, missed: Sequence[int], timely: Sequence[int]) -> tuple[int, ...]:
    """Return the ticks to fire.

    ``once`` is about the time after an outage: the newest tick stands for all, the timely ones
    among them.
    """
    if not missed or policy is Missed.SKIP:
        return tuple(timely)
    if policy is Missed.ONCE:
        return tuple(timely or missed)[-1:]
    return (*missed, *timely)

"""When schedules tick, and which ticks are fired: against walks that try every minute."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.schedule import (
    LATE_MS,
    MOST_MADE_UP,
    MOST_WALKED,
    Bounded,
    Every,
    Missed,
    Plan,
    Schedule,
    first_tick,
    plan,
)
from async_nodes.dispatch.cron import NAMED, timetable

MINUTE = 60_000
# Places and days at which clocks are put forward or back, by an hour or half, at 2, 0 or 24 h.
CHANGES = (
    ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 4, 5, tzinfo=UTC)),
    ("Asia/Beirut", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Asia/Beirut", datetime(2026, 10, 25, tzinfo=UTC)),
    ("Asia/Shanghai", datetime(2026, 5, 1, tzinfo=UTC)),
    ("UTC", datetime(2026, 5, 1, tzinfo=UTC)),
)


def ms(moment: datetime) -> int:
    return round(moment.timestamp()) * 1000


def minutes(start: int, end: int) -> range:
    return range(start, end, MINUTE)


def walked(  # every minute that a clock shows, and every minute that it could
    zone: ZoneInfo, start: int, end: int, minute: set[int], hour: set[int], *, pace: bool
) -> list[int]:
    """Return the ticks in [start, end) by trying each minute."""
    margin = 3 * 86_400_000
    shown: dict[datetime, list[int]] = {}
    for moment in minutes(start - margin, end + margin):
        wall = datetime.fromtimestamp(moment // 1000, zone).replace(tzinfo=None)
        shown.setdefault(wall, []).append(moment)
    ticks = set()
    wall, last = min(shown), max(shown)
    walls = sorted(shown)
    while wall < last:
        if wall.minute in minute and wall.hour in hour:
            if pace:
                ticks |= set(shown.get(wall, ()))
            elif wall in shown:
                ticks.add(shown[wall][0])
            else:
                ticks.add(shown[walls[bisect_right(walls, wall)]][0])
        wall += timedelta(minutes=1)
    return sorted(tick for tick in ticks if start <= tick < end)


@st.composite
def expressions(draw: st.DrawFn) -> tuple[str, set[int], set[int], bool]:
    """Return an expression, its minutes, its hours, whether it keeps pace."""
    one_minute = st.integers(0, 59).map(lambda m: (str(m), {m}))
    two_minutes = st.tuples(st.integers(0, 59), st.integers(0, 59)).map(
        lambda two: (f"{two[0]},{two[1]}", set(two))
    )
    each_minutes = st.sampled_from([7, 15, 20, 30]).map(lambda n: (f"*/{n}", set(range(0, 60, n))))
    hours = st.one_of(
        st.integers(0, 4).map(lambda h: (str(h), {h})),
        st.tuples(st.integers(0, 2), st.integers(2, 23)).map(
            lambda two: (f"{two[0]}-{two[1]}", set(range(two[0], two[1] + 1)))
        ),
        st.sampled_from([1, 2, 5]).map(lambda n: (f"*/{n}", set(range(0, 24, n)))),
    )
    minute, hour = draw(st.one_of(one_minute, two_minutes, each_minutes)), draw(hours)
    pace = minute[0].startswith("*") or hour[0].startswith("*")
    return f"{minute[0]} {hour[0]} * * *", minute[1], hour[1], pace


@given(
    change=st.sampled_from(CHANGES),
    asked=expressions(),
    hours=st.integers(-30, 30),
    minute=st.integers(0, 59),
)
@example(change=CHANGES[4], asked=("*/10 */2 * * *", set(range(0, 60, 10)), set(range(0, 24, 2)), True), hours=13, minute=50)  # fmt: skip  # noqa: E501
def test_cron_ticks_as_a_walk_over_every_minute_does(
    change: tuple[str, datetime],
    asked: tuple[str, set[int], set[int], bool],
    hours: int,
    minute: int,
) -> None:
    """From any moment near a change of the clock, cron's ticks are those of the definition."""
    zone = ZoneInfo(change[0])
    expression, minute_set, hour_set, pace = asked
    start = ms(change[1] + timedelta(hours=hours, minutes=minute))
    end = start + 40 * 60 * MINUTE
    ticks = timetable(expression, zone).after(start - 1)

    found = list(takewhile(lambda tick: tick < end, ticks))

    assert found == walked(zone, start, end, minute_set, hour_set, pace=pace)


@given(change=st.sampled_from(CHANGES), asked=expressions(), seconds=st.integers(-90_000, 90_000))
def test_the_tick_after_a_tick_is_the_next(
    change: tuple[str, datetime], asked: tuple[str, set[int], set[int], bool], seconds: int
) -> None:
    """Asking anew after each tick gives the same ticks as going on: none twice, none left out."""
    table = timetable(asked[0], ZoneInfo(change[0]))
    start = ms(change[1] + timedelta(seconds=seconds))
    whole = list(islice(table.after(start), 6))

    one_by_one = []
    moment = start
    for _ in range(6):
        moment = next(table.after(moment))
        one_by_one.append(moment)

    assert one_by_one == whole
    assert whole == sorted(set(whole))


def local(expression: str, zone: str, after: str, count: int) -> list[str]:
    moment = ms(datetime.fromisoformat(after))
    ticks = islice(timetable(expression, ZoneInfo(zone)).after(moment), count)
    return [datetime.fromtimestamp(t // 1000, ZoneInfo(zone)).isoformat() for t in ticks]


def test_a_time_that_a_change_leaves_out_ticks_at_the_change() -> None:
    """02:30 does not exist on that night: the job runs at 03:00, once."""
    assert local("15,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00+01:00", 3) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:15:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_a_change_shows_twice_ticks_the_first_time() -> None:
    """02:30 comes twice on that night: the job runs at the first."""
    assert local("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00+02:00", 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_pace_is_kept_through_both_passes() -> None:
    """Every half hour is every half hour, in the hour that comes twice too."""
    assert local("*/30 * * * *", "Europe/Berlin", "2026-10-25T01:59+02:00", 5) == [
        "2026-10-25T02:00:00+02:00",
        "2026-10-25T02:30:00+02:00",
        "2026-10-25T02:00:00+01:00",
        "2026-10-25T02:30:00+01:00",
        "2026-10-25T03:00:00+01:00",
    ]


@pytest.mark.parametrize("name", NAMED)
def test_named_expressions_are_what_they_stand_for(name: str) -> None:
    """@hourly and its kin, in either case."""
    start = ms(datetime(2026, 5, 1, 7, 7, tzinfo=UTC))
    spelt, named = (
        list(islice(timetable(text, UTC).after(start), 3)) for text in (NAMED[name], name.upper())
    )
    assert spelt == named


def test_names_of_months_and_days() -> None:
    """Whatever their case."""
    assert local("0 9 * jan Mon-FRI", "UTC", "2026-01-01T09:00+00:00", 2) == [
        "2026-01-02T09:00:00+00:00",
        "2026-01-05T09:00:00+00:00",
    ]


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "@reboot",
        "a b c d e",
        "0 0 30 2 *",
        "-1 * * * *",
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    """With the place, and a word that names the fault."""
    with pytest.raises(AsyncNodesError) as caught:
        timetable(expression, UTC)
    assert (caught.value.code, caught.value.pointer) == ("invalid_request", "/cron")


@given(
    interval=st.integers(1_000, 10**9),
    first=st.integers(0, 10**13),
    moment=st.integers(0, 10**13),
)
def test_a_steady_pace(interval: int, first: int, moment: int) -> None:
    """The ticks are the first and its multiples, the next one later than the moment."""
    tick = next(Every(interval, first).after(moment))

    assert tick > moment
    assert (tick - first) % interval == 0
    assert tick == first or (tick > first and tick - interval <= moment)


@given(
    starts=st.none() | st.integers(0, 200_000),
    ends=st.none() | st.integers(0, 200_000),
    moment=st.integers(0, 200_000),
)
def test_bounds(starts: int | None, ends: int | None, moment: int) -> None:
    """The start belongs to it, the end does not."""
    table = Bounded(Every(7_000, 0), starts, ends)
    found = list(takewhile(lambda tick: tick < 300_000, table.after(moment)))

    assert found == [
        tick
        for tick in range(0, 300_000, 7_000)
        if tick > moment and (starts is None or tick >= starts) and (ends is None or tick < ends)
    ]


# -- what is fired ---------------------------------------------------------------------------------


def brute(schedule: Schedule, expected: int, now: int) -> tuple[list[int], int | None]:
    """Return the ticks that are due and the first that is not."""
    due = []
    tick: int | None = expected
    while tick is not None and schedule.due(tick) <= now:
        due.append(tick)
        tick = first_tick(schedule.timetable, tick)
    return due, tick


schedules = st.builds(
    lambda interval, ends, missed, jitter: Schedule(
        timetable=Bounded(Every(interval, 0), None, ends),
        missed=missed,
        jitter_ms=jitter,
        seed="s",
    ),
    st.integers(1_000, 60_000),
    st.none() | st.integers(10_000, 2_000_000),
    st.sampled_from(Missed),
    st.sampled_from([0, 0, 400, 30_000]),
)


@given(schedule=schedules, start=st.integers(0, 50), away=st.integers(0, 600_000))
def test_a_plan_deals_with_every_due_tick_once(schedule: Schedule, start: int, away: int) -> None:
    """Each due tick is fired or given up, in order, by the policy; the first other one follows."""
    expected = first_tick(schedule.timetable, start * 1_000)
    if expected is None:
        return
    now = expected + away
    due, following = brute(schedule, expected, now)

    made = plan(schedule, expected, now)

    missed = [tick for tick in due if schedule.due(tick) < now - LATE_MS]
    timely = [tick for tick in due if tick not in missed]
    fires = {
        Missed.SKIP: timely,
        Missed.ONCE: due[-1:] if missed and not timely else timely[-1:] if missed else timely,
        Missed.ALL: due[-MOST_MADE_UP:] if len(due) > MOST_MADE_UP else [*missed, *timely],
    }[schedule.missed]
    assert list(made.fires) == fires
    assert made.passed == len(due) - len(fires)
    assert made.following == following


@given(schedule=schedules, steps=st.lists(st.integers(0, 45_000), max_size=20))
def test_no_tick_is_planned_twice(schedule: Schedule, steps: list[int]) -> None:
    """Plan after plan, each from where the last one left off: ticks rise."""
    expected = first_tick(schedule.timetable, 0)
    now, fired = 0, []
    for step in steps:
        now += step
        if expected is None:
            break
        made = plan(schedule, expected, now)
        fired += made.fires
        expected = made.following

    assert fired == sorted(set(fired))


def test_ticks_that_are_a_little_late_are_all_fired() -> None:
    """A keeper that dies with a tick in hand costs seconds, and no tick."""
    assert plan(Schedule(timetable=Every(1_000, 0)), 100_000, 106_500) == Plan(
        tuple(range(100_000, 107_000, 1_000)), 0, 107_000
    )


@pytest.mark.parametrize("missed", Missed)
def test_a_very_long_outage_is_bounded(missed: Missed) -> None:
    """A year of seconds: no endless walk, and the newest ticks are those made up for."""
    now = 365 * 86_400_000
    made = plan(Schedule(timetable=Every(1_000, 0), missed=missed), 0, now)

    assert made.following == now + 1_000
    assert made.fires[-1] == now
    assert len(made.fires) == {Missed.SKIP: 11, Missed.ONCE: 1, Missed.ALL: MOST_MADE_UP}[missed]
    assert made.passed >= MOST_WALKED - MOST_MADE_UP


def test_jitter_is_the_same_for_everybody_and_spreads() -> None:
    """Two processes agree about a tick; two schedules do not fall together."""
    one, other = (
        Schedule(timetable=Every(60_000, 0), jitter_ms=10_000, seed=seed) for seed in ("a", "b")
    )
    ticks = range(0, 3_000_000, 60_000)

    delays = [one.due(tick) - tick for tick in ticks]

    assert delays == [one.due(tick) - tick for tick in ticks]
    assert delays != [other.due(tick) - tick for tick in ticks]
    assert all(0 <= delay <= 10_000 for delay in delays)
    assert max(delays) - min(delays) > 5_000


@given(schedule=schedules, start=st.integers(0, 100_000))
def test_jitter_keeps_the_order(schedule: Schedule, start: int) -> None:
    """However large it is, a tick is due before the next one comes."""
    found = list(islice(schedule.timetable.after(start), 20))
    for tick, following in pairwise(found):
        assert tick <= schedule.due(tick) < following <= schedule.due(following)


def test_an_end_ends_it() -> None:
    """The last tick is fired and nothing follows."""
    schedule = Schedule(timetable=Bounded(Every(10_000, 0), None, 25_000))
    assert plan(schedule, 20_000, 21_000) == Plan((20_000,), 0, None)

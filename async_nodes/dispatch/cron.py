"""Cron expressions, read by cronsim: five fields, names of months and days, ``@hourly`` and kin.

cronsim walks a calendar without a zone here; what a change of the clock means is decided by
`core.schedule.Wall`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo
from typing import Final

from cronsim import CronSim, CronSimError

from async_nodes.core.errors import AsyncNodesError
from async_nodes.core.schedule import Wall

NAMED: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
LONGEST: Final = 200
"""Characters of an expression."""

_FIELDS: Final = 5
_ORIGIN: Final = datetime(2000, 1, 1)  # noqa: DTZ001 - what a wall clock shows has no zone


def timetable(expression: str, zone: tzinfo) -> Wall:
    """Return the ticks of an expression on the wall clocks of a time zone.

    Raises:
        AsyncNodesError: ``invalid_request`` at ``/cron``.

    """
    text = NAMED.get(expression.strip().lower(), expression)
    fields = text.split()
    if text.startswith("@") and not fields[1:]:
        raise _invalid(f"cron knows {', '.join(NAMED)}, not {expression[:40]!r}")
    if len(fields) != _FIELDS:
        raise _invalid(
            "cron must have 5 fields (minute, hour, day of month, month, day of week), "
            f"not {len(fields)}"
        )
    try:
        CronSim(text, _ORIGIN)
    except CronSimError as error:
        raise _invalid(
            f"cron cannot be read: {str(error).lower()} in {expression[:80]!r}"
        ) from None

    def times(start: datetime) -> Iterator[datetime]:
        return CronSim(text, start)

    # Debian's cron tells by the first character as well; * stands for "whatever it is now".
    return Wall(zone, times, keeps_pace=fields[0][0] == "*" or fields[1][0] == "*")


def _invalid(why: str) -> AsyncNodesError:
    return AsyncNodesError("invalid_request", why, pointer="/cron")

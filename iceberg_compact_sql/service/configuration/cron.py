"""When a cron expression fires next in a time zone. Pure: the moment is an argument."""

from __future__ import annotations

import datetime as dt
from itertools import islice

from croniter import croniter

from iceberg_compact_sql.units import zone

_AROUND = dt.timedelta(hours=3)
_NAMED = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
# More steps than seconds in six hours: enough for a cron of seconds around a change of the clock.
_MOST_STEPS = 30_000


def check_cron(text: str) -> str:
    """The expression without outer blanks; raises ValueError with the rule."""
    cron = " ".join(text.split())
    fields = 5 if cron.startswith("@") else len(cron.split())
    if (cron.startswith("@") and cron.lower() not in _NAMED) or fields not in (5, 6):
        raise ValueError(f"{text!r} is not a cron expression: write 5 fields, 6 with seconds first, or @daily")
    if not croniter.is_valid(cron, second_at_beginning=True):
        raise ValueError(f"{text!r} is not a cron expression: a field is out of its range")
    return cron


def next_after(cron: str, time_zone: str, moment_ms: int) -> int | None:
    """The first moment after `moment_ms` at which the expression fires; None if it never does.

    A local time that does not exist fires at the next one that does. One that exists twice fires once, unless the
    expression names every hour.

    >>> next_after("0 2 * * *", "UTC", 0)
    7200000
    """
    place = zone(time_zone)
    moment = dt.datetime.fromtimestamp(moment_ms / 1000, dt.timezone.utc)
    start = moment.astimezone(place).replace(tzinfo=None)
    try:
        wall = _steps(cron, start).get_next(dt.datetime)
    except Exception:
        # croniter gives up after 50 years: 30 February.
        return None
    first = _instants(wall, place, twice=False)[0]
    if _offset(moment - _AROUND, place) == _offset(first + _AROUND, place):
        return _ms(first)
    twice = "*" in _hour_field(cron)
    steps = _steps(cron, start - _AROUND)
    best: dt.datetime | None = None
    for wall in islice(iter(lambda: steps.get_next(dt.datetime), None), _MOST_STEPS):
        for instant in _instants(wall, place, twice=twice):
            if instant > moment and (best is None or instant < best):
                best = instant
        if best is not None and _instants(wall, place, twice=False)[0] > best + _AROUND:
            break
    return None if best is None else _ms(best)


def missed(cron: str, time_zone: str, after_ms: int, until_ms: int, *, most: int = 1000) -> tuple[int, int | None]:
    """How many times the expression fired after one moment and until another, and the last time; counts to `most`."""
    count, last, at = 0, None, next_after(cron, time_zone, after_ms)
    while at is not None and at <= until_ms and count < most:
        count, last = count + 1, at
        at = next_after(cron, time_zone, at)
    return count, last


def _steps(cron: str, start: dt.datetime) -> croniter:
    return croniter(cron, start, second_at_beginning=True)


def _hour_field(cron: str) -> str:
    if cron.startswith("@"):
        return "*" if cron.lower() == "@hourly" else "0"
    fields = cron.split()
    return fields[2] if len(fields) == 6 else fields[1]


def _instants(wall: dt.datetime, place: dt.tzinfo, *, twice: bool) -> list[dt.datetime]:
    """The moments at which clocks in the zone show this time; the next that exists where none does."""
    early, late = (wall.replace(tzinfo=place, fold=fold).astimezone(dt.timezone.utc) for fold in (0, 1))
    if early.astimezone(place).replace(tzinfo=None) != wall.replace(tzinfo=None):
        # The clock jumped over it. Both readings lie around the jump: search the first moment after it.
        low, high = min(early, late), max(early, late)
        before = _offset(low - dt.timedelta(days=1), place)
        while high - low > dt.timedelta(seconds=1):
            middle = low + (high - low) / 2
            if _offset(middle, place) == before:
                low = middle
            else:
                high = middle
        return [high.replace(microsecond=0)]
    return [early, late] if twice and late != early else [early]


def _offset(moment: dt.datetime, place: dt.tzinfo) -> dt.timedelta | None:
    return moment.astimezone(place).utcoffset()


def _ms(moment: dt.datetime) -> int:
    return int(moment.timestamp() * 1000)

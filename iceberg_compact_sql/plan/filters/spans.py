"""Time spans given as a date or a string in a filter: `months(ts) = '2026-01'` is a range of `ts`."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

from pyiceberg.types import IcebergType, TimestamptzType

from iceberg_compact_sql.plan.filters.comparisons import Unusable, local_time, read_timestamp, utc_time

_PARTITION_TEXT = re.compile(r"(\d{4})(?:-(\d{2})(?:-(\d{2})(?:-(\d{2}))?)?)?")


def span_bounds(span: str, value: Any, column_type: IcebergType, time_zone: str) -> tuple[dt.datetime, dt.datetime]:
    """Start and end of the span that contains the constant, as values to compare the column with.

    `span` is years, months or hours, in UTC. A string may be a date, a timestamp, or a span as in partition paths:
    `2026`, `2026-01`, `2026-01-31`, `2026-01-31-07`.
    """
    if isinstance(value, str):
        match = _PARTITION_TEXT.fullmatch(value.strip())
        if match is not None:
            year, month, day, hour = (int(part) if part else None for part in match.groups())
            try:
                value = dt.datetime(year or 1, month or 1, day or 1, hour or 0)
            except ValueError as error:
                raise Unusable(f"'{match[0]}' is not a date") from error
        else:
            value = read_timestamp(value)
    if not isinstance(value, dt.date):
        raise Unusable(f"{value!r} is not a date; {span}() is compared with dates and numbers")
    zoned = isinstance(value, dt.datetime) and value.tzinfo is not None
    in_utc = isinstance(column_type, TimestamptzType)
    # A date or a string names the span itself; a timestamp with a zone is converted to UTC.
    moment = utc_time(value, time_zone) if in_utc and zoned else local_time(value, time_zone)
    start, end = _bounds(span, moment)
    if in_utc:
        return start.replace(tzinfo=dt.timezone.utc), end.replace(tzinfo=dt.timezone.utc)
    return start, end


def _bounds(span: str, moment: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    try:
        if span == "years":
            return dt.datetime(moment.year, 1, 1), dt.datetime(moment.year + 1, 1, 1)
        if span == "months":
            later = (moment.year + moment.month // 12, moment.month % 12 + 1)
            return dt.datetime(moment.year, moment.month, 1), dt.datetime(*later, 1)
        start = dt.datetime(moment.year, moment.month, moment.day, moment.hour)
        return start, start + dt.timedelta(hours=1)
    except (ValueError, OverflowError) as error:
        raise Unusable(f"{moment} is out of range") from error

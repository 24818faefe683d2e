"""Sizes, durations and points in time as users write them; beyond the edge there are only bytes and milliseconds."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_SIZE_UNITS = {
    "": 0, "b": 0, "k": 1, "kb": 1, "kib": 1, "m": 2, "mb": 2, "mib": 2, "g": 3, "gb": 3, "gib": 3,
    "t": 4, "tb": 4, "tib": 4, "p": 5, "pb": 5, "pib": 5,
}  # fmt: skip
_DURATION = re.compile(r"\s*(?:interval\s+)?((?:[0-9]+(?:\.[0-9]+)?\s*[a-z]+[\s,]*)+)\s*", re.IGNORECASE)
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.IGNORECASE)
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_UNITS = {
    "ms": "ms", "millisecond": "ms", "milliseconds": "ms", "msec": "ms",
    "s": "s", "sec": "s", "secs": "s", "second": "s", "seconds": "s",
    "m": "m", "min": "m", "mins": "m", "minute": "m", "minutes": "m",
    "h": "h", "hr": "h", "hrs": "h", "hour": "h", "hours": "h",
    "d": "d", "day": "d", "days": "d",
    "w": "w", "week": "w", "weeks": "w",
}  # fmt: skip
_OFFSET = re.compile(r"(?:UTC|GMT)?([+-])(\d{1,2})(?::?(\d{2}))?", re.IGNORECASE)
LONG_MAX = 2**63 - 1


def parse_size(value: object) -> int:
    """Bytes of a size; units are binary, as in Spark.

    >>> parse_size("512MB"), parse_size("1g"), parse_size("1.5 GiB"), parse_size(1024)
    (536870912, 1073741824, 1610612736, 1024)
    """
    if isinstance(value, bool):
        raise ValueError("is not a size such as '512MB'")
    if isinstance(value, (int, Decimal)) and value == int(value):
        return _bounded(int(value))
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("is not a size such as '512MB', '1g', '1.5 GiB' or a number of bytes")
    try:
        return _bounded(int(Decimal(match[1]) * 1024 ** _SIZE_UNITS[match[2].lower()]))
    except (InvalidOperation, OverflowError) as error:
        raise ValueError("is not a size that fits in 64 bits") from error


def parse_duration_ms(value: object) -> int:
    """Milliseconds of a duration.

    >>> parse_duration_ms("7d"), parse_duration_ms("30 minutes"), parse_duration_ms("1 day 12 hours")
    (604800000, 1800000, 129600000)
    """
    if isinstance(value, dt.timedelta):
        if value < dt.timedelta(0):
            raise ValueError("is negative; give a duration such as '7d'")
        return int(value / dt.timedelta(milliseconds=1))
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        parts = _DURATION_PART.findall(match[1])
        if all(unit.lower() in _DURATION_UNITS for _, unit in parts):
            return _bounded(int(sum(Decimal(n) * _MS[_DURATION_UNITS[unit.lower()]] for n, unit in parts)))
    raise ValueError("is not a duration such as '7d', '168h', '30 minutes' or INTERVAL 7 DAYS")


def parse_time_ms(value: object, *, now_ms: int, time_zone: str) -> int:
    """Epoch milliseconds of a point in time: a timestamp or date, an ISO string in the session's zone, or an age.

    >>> parse_time_ms("2026-01-01", now_ms=0, time_zone="UTC")
    1767225600000
    >>> parse_time_ms("7d", now_ms=1767225600000, time_zone="UTC")
    1766620800000
    """
    if isinstance(value, dt.datetime):
        return _epoch_ms(value, time_zone)
    if isinstance(value, dt.date):
        return _epoch_ms(dt.datetime(value.year, value.month, value.day), time_zone)
    if isinstance(value, dt.timedelta):
        return now_ms - parse_duration_ms(value)
    if isinstance(value, str):
        text = value.strip()
        try:
            return _epoch_ms(parse_timestamp(text), time_zone)
        except ValueError:
            pass
        try:
            return now_ms - parse_duration_ms(text)
        except ValueError:
            pass
    raise ValueError(
        "is not a time: give TIMESTAMP '2026-01-31 12:00:00', an ISO string, a date, "
        "or an age such as '7d' or INTERVAL 7 DAYS"
    )


def parse_timestamp(text: str) -> dt.datetime:
    """A datetime from ISO text, also with `Z`, a zone name after a space, or a bare date."""
    match = re.fullmatch(r"(\d{4}-\d{1,2}-\d{1,2})(?:[T ](\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?))?\s*(\S+)?", text)
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp")
    year, month, day = (int(part) for part in match[1].split("-"))
    moment = dt.datetime(year, month, day)
    if match[2]:
        clock, _, fraction = match[2].partition(".")
        hours, minutes, *seconds = (int(part) for part in clock.split(":"))
        micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
        moment = moment.replace(hour=hours, minute=minutes, second=seconds[0] if seconds else 0, microsecond=micros)
    return moment.replace(tzinfo=zone(match[3])) if match[3] else moment


def zone(name: str) -> dt.tzinfo:
    """The time zone of a Spark zone id: `Z`, `+02:00`, `UTC+2`, `Europe/Berlin`."""
    if name.upper() in ("Z", "UTC", "GMT"):
        return dt.timezone.utc
    if match := _OFFSET.fullmatch(name):
        offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or 0))
        return dt.timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone") from error


def format_bytes(count: float) -> str:
    """A size for people, in the units that users type.

    >>> format_bytes(3_250_586), format_bytes(402653184), format_bytes(12)
    ('3.1 MB', '384 MB', '12 B')
    """
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if abs(count) < 1024 or unit == "TB":
            break
        count /= 1024
    text = f"{count:.1f}".rstrip("0").rstrip(".")
    return f"{text} {unit}"


def format_duration(milliseconds: float) -> str:
    """A duration for people.

    >>> format_duration(720_000), format_duration(3_600_000), format_duration(1_500)
    ('12 minutes', '1 hour', '1.5 seconds')
    """
    units = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
    size, name = next((unit for unit in units if milliseconds >= unit[0]), units[-1])
    count = milliseconds / size
    text = f"{count:.1f}".rstrip("0").rstrip(".")
    return f"{text} {name}{'' if text == '1' else 's'}"


def _bounded(count: int) -> int:
    if not 0 <= count <= LONG_MAX:
        raise ValueError("does not fit in 64 bits")
    return count


def _epoch_ms(moment: dt.datetime, time_zone: str) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone(time_zone))
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1))

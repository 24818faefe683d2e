"""Parses sizes, durations and times of users into bytes and milliseconds, and formats them."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

# Python rounds decimals to 28 digits by default; Iceberg has up to 38, and constants in filters more.
EXACT_DECIMALS = Context(prec=4096)

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
_MONTHS = {"month": 1, "months": 1, "mon": 1, "mons": 1, "year": 12, "years": 12, "yr": 12, "yrs": 12, "y": 12}
_ISO_DURATION = re.compile(
    r"P(?=[0-9T])(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?"
    r"(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)S)?)?",
    re.IGNORECASE,
)
_ISO_UNITS = ("years", "months", "weeks", "days", "hours", "minutes", "seconds")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{2})|:([0-9]))?", re.IGNORECASE)
_MAX_OFFSET = dt.timedelta(hours=18)
_DAY = r"([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_CLOCK = r"[T ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?)?)?"
_TIMESTAMP = re.compile(rf"{_DAY}(?:{_CLOCK})?\s*([^\s0-9.]\S*)?)?)?")
_DATE = re.compile(rf"{_DAY}(?:[T ].*)?)?)?", re.DOTALL)
# Java's short names, which Spark takes too; EST, MST and HST are in the zone database.
_SHORT_ZONES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
LONG_MAX = 2**63 - 1
_Moment = TypeVar("_Moment", bound=dt.date)
# Python's own limit for the digits of a number in a text.
_MAX_DIGITS = 4300


@dataclass(frozen=True)
class Months:
    """A calendar interval; its length depends on a date."""

    count: int

    def __neg__(self) -> Months:
        return Months(-self.count)

    def __str__(self) -> str:
        return f"INTERVAL {self.count} MONTHS"

    def added_to(self, moment: _Moment) -> _Moment:
        """Return the same day of another month, or the last day of a shorter month.

        >>> Months(1).added_to(dt.date(2026, 1, 31))
        datetime.date(2026, 2, 28)
        """
        year, month = divmod(moment.year * 12 + moment.month - 1 + self.count, 12)
        for day in range(moment.day, 27, -1):
            try:
                return on_same_offset(moment, moment.replace(year=year, month=month + 1, day=day))
            except ValueError:
                continue
        return on_same_offset(moment, moment.replace(year=year, month=month + 1))


def on_same_offset(moment: _Moment, later: _Moment) -> _Moment:
    """Return a wall time that occurs twice (end of summer time) with the offset of the original time, as in Java."""
    if isinstance(moment, dt.datetime) and isinstance(later, dt.datetime):
        second = later.replace(fold=1)
        if second.utcoffset() != later.utcoffset() and second.utcoffset() == moment.utcoffset():
            return second
    return later


def parse_size(value: object) -> int:
    """Return the bytes of a size; units are binary, as in Spark.

    >>> parse_size("512MB"), parse_size("1g"), parse_size("1.5 GiB"), parse_size(1024)
    (536870912, 1073741824, 1610612736, 1024)
    """
    whole = whole_number(value)
    if whole is not None:
        return _bounded(whole)
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in _SIZE_UNITS:
        raise ValueError("is not a size such as '512MB', '1g', '1.5 GiB' or a number of bytes")
    try:
        return _bounded(whole_part(Decimal(match[1]) * 1024 ** _SIZE_UNITS[match[2].lower()]))
    except ArithmeticError as error:
        raise ValueError("is not a size that fits in 64 bits") from error


def parse_duration_ms(value: object) -> int:
    """Return the milliseconds of a duration.

    >>> parse_duration_ms("7d"), parse_duration_ms("30 minutes"), parse_duration_ms("1 day 12 hours")
    (604800000, 1800000, 129600000)

    Months and years are refused: they have no fixed length.
    """
    if isinstance(value, dt.timedelta):
        if value < dt.timedelta(0):
            raise ValueError("is negative; give a duration such as '7d'")
        return int(value / dt.timedelta(milliseconds=1))
    if isinstance(value, Months):
        raise ValueError(_NO_LENGTH)
    parts = _duration_parts(value) if isinstance(value, str) else None
    if parts is None:
        raise ValueError("is not a duration such as '7d', '168h', '30 minutes' or INTERVAL 7 DAYS")
    months, milliseconds = _sum_of(parts)
    if months:
        raise ValueError(_NO_LENGTH)
    return milliseconds


def parse_interval(text: str) -> dt.timedelta | Months:
    """Parse the text of an INTERVAL literal into a duration or months."""
    parts = _duration_parts(text)
    months, milliseconds = _sum_of(parts) if parts is not None else (0, parse_duration_ms(text))
    if months and milliseconds:
        raise ValueError("mixes months with days or hours; give one of them")
    return Months(months) if months else dt.timedelta(milliseconds=milliseconds)


_NO_LENGTH = "has no fixed length, since months and years differ; give days, such as '30 days'"


def _duration_parts(text: str) -> list[tuple[str, str]] | None:
    """Return amounts and units of a text such as '1 day 12 hours' or 'P1DT12H'; None for anything else.

    A capital M alone is refused: some read it as months, others as minutes.
    """
    if iso := _ISO_DURATION.fullmatch(text.strip()):
        return [(amount, unit) for amount, unit in zip(iso.groups(), _ISO_UNITS, strict=True) if amount]
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    parts: list[tuple[str, str]] = _DURATION_PART.findall(match[1])
    for amount, unit in parts:
        if unit == "M":
            raise ValueError(f"is ambiguous: write '{amount} months' or '{amount} minutes'")
    return parts if all(unit.lower() in _DURATION_UNITS or unit.lower() in _MONTHS for _, unit in parts) else None


def _sum_of(parts: list[tuple[str, str]]) -> tuple[int, int]:
    """Return the sums of months and of milliseconds."""
    months, milliseconds = Decimal(), Decimal()
    try:
        for amount, unit in parts:
            if unit.lower() in _MONTHS:
                months += Decimal(amount) * _MONTHS[unit.lower()]
            else:
                milliseconds += Decimal(amount) * _MS[_DURATION_UNITS[unit.lower()]]
        if months != whole_part(months):
            raise ValueError("is not a whole number of months")
        return _bounded(whole_part(months)), _bounded(whole_part(milliseconds))
    except ArithmeticError as error:
        raise ValueError("is not a duration that fits in 64 bits") from error


def parse_time_ms(value: object, *, now_ms: int, time_zone: str) -> int:
    """Return epoch milliseconds of a time: a timestamp or date, an ISO string in the session's zone, or an age.

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
    if isinstance(value, Months) and value.count >= 0:
        return _months_before(now_ms, value.count, time_zone)
    if isinstance(value, str):
        text = value.strip()
        if not text.isdecimal():
            # A plain number could mean seconds or milliseconds instead of a year.
            with contextlib.suppress(ValueError):
                return _epoch_ms(parse_timestamp(text), time_zone)
        parts = _duration_parts(text)
        if parts is not None:
            months, milliseconds = _sum_of(parts)
            return _months_before(now_ms, months, time_zone) - milliseconds
    raise ValueError(
        "is not a time: give TIMESTAMP '2026-01-31 12:00:00', an ISO string, a date, "
        "or an age such as '7d', '6 months' or INTERVAL 7 DAYS"
    )


def _months_before(now_ms: int, months: int, time_zone: str) -> int:
    """Return the same day and time in an earlier month, in the session's time zone."""
    if not months:
        return now_ms
    now = dt.datetime.fromtimestamp(now_ms // 1000, zone(time_zone))
    try:
        return _epoch_ms(Months(-months).added_to(now), time_zone) + now_ms % 1000
    except (ValueError, OverflowError) as error:
        raise ValueError("is before the first year of the calendar") from error


def parse_timestamp(text: str) -> dt.datetime:
    """Parse a timestamp as Spark does, also with `Z` or a zone name; a missing month or day is 1, a missing time 0.

    >>> parse_timestamp("2026-02").isoformat(), parse_timestamp("2026-02-03 4:5 UTC").isoformat()
    ('2026-02-01T00:00:00', '2026-02-03T04:05:00+00:00')
    """
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a timestamp")
    year, month, day, hours, minutes, seconds, fraction, place = match.groups()
    micros = int((fraction or "")[:6].ljust(6, "0"))
    parts = (
        int(part or least) for part, least in ((year, 1), (month, 1), (day, 1), (hours, 0), (minutes, 0), (seconds, 0))
    )
    moment = dt.datetime(*parts, microsecond=micros)  # type: ignore[arg-type,misc]
    return moment.replace(tzinfo=zone(place)) if place else moment


def parse_date(text: str) -> dt.date:
    """Parse a date as Spark does: text after a space or a `T` is ignored."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a date")
    return dt.date(int(match[1]), int(match[2] or 1), int(match[3] or 1))


def zone(name: str) -> dt.tzinfo:
    """Return the time zone of a Spark zone id: `Z`, `+02:00`, `UTC+2`, `Europe/Berlin`."""
    if name.upper() in ("Z", "UTC", "GMT", "UT"):
        return dt.timezone.utc
    if match := _OFFSET.fullmatch(name):
        offset = dt.timedelta(hours=int(match[2]), minutes=int(match[3] or match[4] or 0))
        if offset > _MAX_OFFSET:
            raise ValueError(f"{name!r} is not a time zone: at most 18 hours")
        return dt.timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(_SHORT_ZONES.get(name, name))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a time zone") from error


def plain_python(value: object) -> object:
    """Convert a caller's value: numpy numbers and arrays to Python's, datetimes to datetimes with a zone.

    A datetime without a zone is in the time zone of this machine, as in pyspark.
    """
    if type(value).__module__ == "numpy":
        if getattr(value, "dtype", None) is not None and value.dtype.kind == "M":  # type: ignore[attr-defined]
            value = value.astype("datetime64[us]")  # type: ignore[attr-defined]
        value = value.tolist()  # type: ignore[attr-defined]
    if not isinstance(value, dt.datetime) or value.tzinfo is not None:
        return value
    try:
        return value.astimezone()
    except (OverflowError, ValueError):
        # The first or last day of the calendar: conversion would overflow.
        return value.replace(tzinfo=dt.timezone.utc)


def whole_number(value: object) -> int | None:
    """Return the integer value of a number of any type, or None; booleans are not numbers.

    >>> whole_number(Decimal("2.0")), whole_number(1e9), whole_number(1.5), whole_number("2")
    (2, 1000000000, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    try:
        whole = whole_part(value)
    except (ArithmeticError, ValueError):
        return None
    return whole if value == whole else None


def whole_part(number: float | Decimal) -> int:
    """Truncate a number to an integer; ValueError for thousands of digits, which would take minutes."""
    if isinstance(number, Decimal) and number.is_finite() and number.adjusted() >= _MAX_DIGITS:
        raise ValueError("has too many digits")
    return int(number)


def utc_time(time_ms: int | None) -> dt.datetime | None:
    """Convert epoch milliseconds to a datetime, exactly; None stays None.

    >>> utc_time(1500)
    datetime.datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    if time_ms is None:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=time_ms)


def format_bytes(count: float) -> str:
    """Format a size, in the units that users type.

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
    """Format a duration.

    >>> format_duration(720_000), format_duration(3_600_000), format_duration(1_500)
    ('12 minutes', '1 hour', '1.5 seconds')
    """
    units = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second"))
    size, name = next((unit for unit in units if milliseconds >= unit[0]), units[-1])
    count = milliseconds / size
    text = f"{count:.1f}".rstrip("0").rstrip(".")
    return f"{text} {name}{'' if text == '1' else 's'}"


def _bounded(count: int) -> int:
    if count < 0:
        raise ValueError("is negative")
    if count > LONG_MAX:
        raise ValueError("does not fit in 64 bits")
    return count


def _epoch_ms(moment: dt.datetime, time_zone: str) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone(time_zone))
    return int((moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(milliseconds=1))

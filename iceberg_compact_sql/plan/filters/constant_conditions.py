"""Conditions without a column: `1 = 1`, `'a' IN ('a', 'b')`, `2 BETWEEN 1 AND 3`."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from iceberg_compact_sql.plan.filters.comparisons import Unusable, read_date, read_number, read_timestamp, utc_time


def holds(left: Any, operator: str, right: Any, time_zone: str) -> bool:
    """Whether a comparison of two constants is true in Spark; a comparison with NULL is not."""
    if left is None or right is None:
        return False
    left, right = _to_common_type(left, right, time_zone)
    before, same = bool(left < right), bool(left == right)
    results = {"=": same, "!=": not same, "<": before, "<=": before or same, ">": not before and not same}
    return results.get(operator, not before)


def _to_common_type(left: Any, right: Any, time_zone: str) -> tuple[Any, Any]:
    """Convert two constants to one type, in which Python's order is Spark's order."""
    if isinstance(left, str) and not isinstance(right, str):
        left = _read_as(right, left)
    if isinstance(right, str) and not isinstance(left, str):
        right = _read_as(left, right)
    for kinds in ((bool,), (str,), (int, float, Decimal), (dt.date,)):
        if isinstance(left, kinds) and isinstance(right, kinds) and isinstance(left, bool) is isinstance(right, bool):
            if kinds == (dt.date,):
                return utc_time(left, time_zone), utc_time(right, time_zone)
            return (_sort_key(left), _sort_key(right)) if kinds == (int, float, Decimal) else (left, right)
    raise Unusable(f"{left!r} and {right!r} cannot be compared")


def _sort_key(number: float | Decimal) -> tuple[bool, float | Decimal]:
    """A key by which NaN equals NaN and is above every other number."""
    return (True, 0) if number != number else (False, number)


def _read_as(other: Any, text: str) -> Any:
    if isinstance(other, bool):
        if text.strip().lower() in ("true", "false"):
            return text.strip().lower() == "true"
        raise Unusable(f"'{text}' is not true or false")
    if isinstance(other, (int, float, Decimal)):
        return read_number(text)
    return read_timestamp(text) if isinstance(other, dt.datetime) else read_date(text)

"""Casts of constants as in Spark's ANSI mode: a value that does not fit is an error, never another value."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, DecimalException, InvalidOperation
from typing import Any

from sqlglot import exp

from iceberg_compact_sql.units import parse_date, parse_timestamp, whole_part, zone

_Type = exp.DataType.Type
# sqlglot's types for the keyword TIMESTAMP.
_SESSION_TIMESTAMPS = {_Type.TIMESTAMP, _Type.TIMESTAMPTZ}
_TIMESTAMPS = {*_SESSION_TIMESTAMPS, _Type.TIMESTAMPLTZ, _Type.DATETIME, _Type.TIMESTAMPNTZ}
_BITS = {_Type.TINYINT: 8, _Type.SMALLINT: 16, _Type.INT: 32, _Type.BIGINT: 64}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
# Spark's decimals have at most 38 digits; DECIMAL without a size is DECIMAL(10, 0).
MAX_DIGITS = 38
EXACT = Context(prec=2 * MAX_DIGITS + 2, rounding=ROUND_HALF_UP)
_DEFAULT_SIZE = (10, 0)


def cast(node: exp.Cast, value: Any, time_zone: str, *, zoneless: bool = False) -> Any:
    """Cast a value to the node's type; ValueError when Spark would refuse it, or when the cast is not supported.

    `zoneless`: TIMESTAMP means TIMESTAMP_NTZ in the session.
    """
    target: exp.DataType = node.to
    kind = target.this
    if kind in _TIMESTAMPS:
        moment = _moment(value)
        # sqlglot reads the literal TIMESTAMP '...' as Cast and a written CAST as TryCast. The literal keeps its zone.
        literal = type(node) is exp.Cast and kind == _Type.TIMESTAMPTZ and moment.tzinfo is not None
        if kind == _Type.TIMESTAMPNTZ or (zoneless and kind in _SESSION_TIMESTAMPS and not literal):
            return _without_zone(moment, value, time_zone)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone(time_zone))
    if kind == _Type.DATE:
        return date_of(value, time_zone)
    if kind in _BITS:
        return _whole(value, _BITS[kind])
    if kind == _Type.DECIMAL:
        return _round_to_size(_decimal(value), target)
    convert = _OTHERS.get(kind)
    if convert is None:
        raise ValueError(f"a cast to {target.sql('spark')} is not evaluated here")
    return convert(value)


def date_of(value: Any, time_zone: str) -> dt.date:
    """The date of a string, a date, or a timestamp in the session's time zone."""
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo is None else value.astimezone(zone(time_zone))).date()
    if isinstance(value, dt.date):
        return value
    if isinstance(value, str):
        return parse_date(value.strip())
    raise ValueError(f"{value!r} is not a date")


def check_digits(number: Decimal) -> Decimal:
    """Return the decimal; ValueError when it has more digits than Spark allows."""
    if number.is_finite() and len(number.as_tuple().digits) > MAX_DIGITS:
        raise ValueError(f"has more than {MAX_DIGITS} digits")
    return number


def text_of(value: Any) -> str:
    """The result of Spark's CAST(... AS STRING), for types where it does not depend on settings."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, (str, int)):
        return str(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    raise ValueError("only strings, whole numbers, decimals, booleans and dates become text here")


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, str):
        return parse_timestamp(value.strip())
    if isinstance(value, dt.datetime):
        return value
    if isinstance(value, dt.date):
        return dt.datetime(value.year, value.month, value.day)
    raise ValueError(f"{value!r} is not a timestamp")


def _without_zone(moment: dt.datetime, value: Any, time_zone: str) -> dt.datetime:
    """The local time: Spark drops a zone in a string, and converts a timestamp to the session's time zone."""
    if moment.tzinfo is None or isinstance(value, str):
        return moment.replace(tzinfo=None)
    return moment.astimezone(zone(time_zone)).replace(tzinfo=None)


def _whole(value: Any, bits: int) -> int:
    if isinstance(value, str):
        if _WHOLE.fullmatch(value.strip()) is None:
            raise ValueError(f"{value!r} is not a whole number")
        number = whole_part(Decimal(value.strip()))
    elif isinstance(value, (int, Decimal)) or (isinstance(value, float) and math.isfinite(value)):
        number = whole_part(value)
    else:
        raise ValueError(f"{value!r} is not a whole number")
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(f"{number} does not fit in {bits} bits")
    return number


def _float(value: Any) -> float:
    if isinstance(value, (int, float, Decimal)) or (isinstance(value, str) and _FLOAT.fullmatch(value.strip())):
        return float(value)
    raise ValueError(f"{value!r} is not a number")


def _decimal(value: Any) -> Decimal:
    if isinstance(value, (str, int, float, Decimal)):
        try:
            # Spark converts a double to a decimal by its shortest decimal text.
            return Decimal(str(value).strip() if not isinstance(value, bool) else int(value))
        except DecimalException:
            pass
    raise ValueError(f"{value!r} is not a number")


def _round_to_size(number: Decimal, target: exp.DataType) -> Decimal:
    sizes = [int(size.name) for size in target.expressions]
    precision, scale = (*sizes, 0)[:2] if sizes else _DEFAULT_SIZE
    try:
        rounded = number.quantize(Decimal(1).scaleb(-scale), context=EXACT)
    except InvalidOperation:
        rounded = None
    if rounded is None or not rounded.is_finite() or (rounded and rounded.adjusted() >= precision - scale):
        raise ValueError(f"{number} does not fit in DECIMAL({precision}, {scale})")
    return rounded


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _BOOLEANS:
        return _BOOLEANS[value.strip().lower()]
    raise ValueError(f"{value!r} is not true or false")


_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_OTHERS: dict[Any, Callable[[Any], Any]] = {
    _Type.DOUBLE: _float,
    _Type.FLOAT: _float,
    _Type.TEXT: text_of,
    _Type.VARCHAR: text_of,
    _Type.BOOLEAN: _boolean,
}

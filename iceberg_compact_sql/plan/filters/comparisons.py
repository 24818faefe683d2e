"""Comparisons of one column with constants as expression objects that keep every file with a matching row.

Values mean what they mean to Spark: text is read as the column's type, times without a zone are in the session's zone,
NaN is above every number. A constant that the column's type cannot hold exactly moves to the next one that it can.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

import numpy as np
from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, EqualTo, Or
from pyiceberg.expressions.literals import (
    DateLiteral,
    DecimalLiteral,
    DoubleLiteral,
    Literal,
    LongLiteral,
    TimestampLiteral,
    literal,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from iceberg_compact_sql.plan.filters.predicates import any_of, compared, is_nan, not_nan, not_null
from iceberg_compact_sql.units import parse_timestamp, zone

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1)
_LARGEST_FLOAT = 3.4e38
NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Unusable(ValueError):
    """A comparison that cannot be turned into an expression; the text says why."""


def compare(column: str, column_type: IcebergType, operator: str, value: Any, time_zone: str) -> BooleanExpression:
    """`column operator value` for every row that matches in Spark, and possibly more; `=` and `!=` never match null."""
    if isinstance(column_type, (FloatType, DoubleType)):
        return _compare_floating(column, column_type, operator, value)
    if isinstance(column_type, (BooleanType, UUIDType)) and operator not in ("=", "!="):
        raise Unusable(f"{column} is of type {column_type} and can only be compared with = and !=")
    constant, exact = _constant(column_type, value, time_zone)
    if constant is None:
        return _beyond(column, operator, above=exact)
    if not exact:
        if operator == "=":
            return AlwaysFalse()
        if operator == "!=":
            return not_null(column)
        operator = "<=" if operator in ("<", "<=") else ">"
    return compared(column, operator, constant)


def one_of(
    column: str, column_type: IcebergType, values: Sequence[Any], negate: bool, time_zone: str
) -> BooleanExpression:
    """`column IN (values)`, or NOT IN."""
    constants: set[Literal[Any]] = set()
    others: list[BooleanExpression] = []
    for value in values:
        single = compare(column, column_type, "=", value, time_zone)
        if isinstance(single, EqualTo):
            constants.add(single.literal)
        elif not isinstance(single, AlwaysFalse):
            others.append(single)
    if negate:
        if others or isinstance(column_type, FloatType):
            return not_null(column)
        excluded = compared(column, "not in", constants) if constants else not_null(column)
        return Or(excluded, is_nan(column)) if isinstance(column_type, DoubleType) else excluded
    included = compared(column, "in", constants) if constants else AlwaysFalse()
    return any_of([included, *others])


def within(
    column: str, column_type: IcebergType, operator: str, start: Any, end: Any, time_zone: str
) -> BooleanExpression:
    """How the span that `column` falls into compares with the span [start, end): days, months, years, hours."""
    first = compare(column, column_type, ">=", start, time_zone)
    if operator == "=":
        return And(first, compare(column, column_type, "<", end, time_zone))
    if operator == "!=":
        before = compare(column, column_type, "<", start, time_zone)
        return Or(before, compare(column, column_type, ">=", end, time_zone))
    if operator == "<":
        return compare(column, column_type, "<", start, time_zone)
    if operator == "<=":
        return compare(column, column_type, "<", end, time_zone)
    if operator == ">":
        return compare(column, column_type, ">=", end, time_zone)
    return first


def read_date(text: str) -> dt.date:
    try:
        moment = parse_timestamp(text.strip())
    except ValueError as error:
        raise Unusable(f"'{text}' is not a date") from error
    if moment.tzinfo is not None or moment.time() != dt.time():
        raise Unusable(f"'{text}' is not a date")
    return moment.date()


def read_moment(text: str) -> dt.datetime:
    try:
        return parse_timestamp(text.strip())
    except ValueError as error:
        raise Unusable(f"'{text}' is not a timestamp") from error


def read_number(text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation as error:
        raise Unusable(f"'{text}' is not a number") from error
    if not number.is_finite():
        raise Unusable(f"'{text}' is not a number")
    return number


def clock_time(value: dt.datetime | dt.date, time_zone: str) -> dt.datetime:
    """What a clock in the session's zone shows at a moment."""
    if not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(zone(time_zone)).replace(tzinfo=None)


def utc_time(value: dt.datetime | dt.date, time_zone: str) -> dt.datetime:
    """A moment in UTC; a value without a zone is in the session's."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=zone(time_zone))
    return aware.astimezone(dt.timezone.utc).replace(tzinfo=None)


def _constant(column_type: IcebergType, value: Any, time_zone: str) -> tuple[Literal[Any] | None, bool]:
    """The constant as a literal of the column's type, and whether it is exact; if not, it is the next one below.

    None for a constant that is out of the type's range: then the flag says whether it is above it.
    """
    if isinstance(column_type, BooleanType):
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            value = value.strip().lower() == "true"
        return _expected(value, bool, column_type), True
    if isinstance(column_type, (IntegerType, LongType)):
        number = _number(value, column_type)
        whole = number.to_integral_value(ROUND_FLOOR)
        limit = 2 ** (31 if isinstance(column_type, IntegerType) else 63)
        if not -limit <= whole < limit:
            return None, whole > 0
        return LongLiteral(int(whole)), whole == number
    if isinstance(column_type, DecimalType):
        number = _number(value, column_type)
        if abs(number) >= Decimal(10) ** (column_type.precision - column_type.scale):
            return None, number > 0
        scaled = number.scaleb(column_type.scale).to_integral_value(ROUND_FLOOR)
        rounded = scaled.scaleb(-column_type.scale).quantize(Decimal(1).scaleb(-column_type.scale))
        return DecimalLiteral(rounded), rounded == number
    if isinstance(column_type, StringType):
        return _expected(value, str, column_type), True
    if isinstance(column_type, DateType):
        if isinstance(value, str):
            value = read_date(value)
        if not isinstance(value, dt.date):
            raise Unusable(f"{value!r} is not a date")
        clock = clock_time(value, time_zone)
        return DateLiteral((clock.date() - _EPOCH_DAY).days), clock.time() == dt.time()
    if isinstance(column_type, (TimestampType, TimestamptzType)):
        if isinstance(value, str):
            value = read_moment(value)
        if not isinstance(value, dt.date):
            raise Unusable(f"{value!r} is not a timestamp")
        in_utc = isinstance(column_type, TimestamptzType)
        moment = utc_time(value, time_zone) if in_utc else clock_time(value, time_zone)
        return TimestampLiteral((moment - _EPOCH) // dt.timedelta(microseconds=1)), True
    if isinstance(column_type, UUIDType):
        try:
            return literal(uuid.UUID(str(value))), True
        except ValueError as error:
            raise Unusable(f"{value!r} is not a uuid") from error
    raise Unusable(f"columns of type {column_type} cannot be compared here")


def _compare_floating(column: str, column_type: IcebergType, operator: str, value: Any) -> BooleanExpression:
    """Floating point as Spark orders it: NaN equals NaN and is above everything else."""
    number = _floating(value)
    if number != number:
        choices: dict[str, BooleanExpression] = {
            "=": is_nan(column),
            ">=": is_nan(column),
            ">": AlwaysFalse(),
            "<=": not_null(column),
        }
        return choices.get(operator, And(not_nan(column), not_null(column)))
    if isinstance(column_type, FloatType):
        return _compare_single(column, operator, number)
    found = compared(column, operator, DoubleLiteral(number))
    return Or(found, is_nan(column)) if operator in (">", ">=", "!=") else found


def _compare_single(column: str, operator: str, number: float) -> BooleanExpression:
    """Engines round the constant to single precision or do not: its neighbours on both sides are let in."""
    if operator == "!=" or not abs(number) < _LARGEST_FLOAT:
        return not_null(column)
    nearest = np.float32(number)
    below = compared(column, ">=", DoubleLiteral(float(np.nextafter(nearest, np.float32(-np.inf)))))
    above = compared(column, "<=", DoubleLiteral(float(np.nextafter(nearest, np.float32(np.inf)))))
    if operator == "=":
        return And(below, above)
    return above if operator in ("<", "<=") else Or(below, is_nan(column))


def _floating(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise Unusable(f"{value!r} is not a number")
    try:
        return float(value)
    except (ValueError, OverflowError) as error:
        raise Unusable(f"{value!r} is not a number") from error


def _number(value: Any, column_type: IcebergType) -> Decimal:
    if isinstance(value, str):
        return read_number(value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise Unusable(f"{value!r} is not a number, as a column of type {column_type} needs")
    number = Decimal(value)
    if not number.is_finite():
        raise Unusable(f"{value!r} cannot be compared with a column of type {column_type}")
    return number


def _expected(value: Any, kind: type, column_type: IcebergType) -> Literal[Any]:
    if not isinstance(value, kind):
        raise Unusable(f"{value!r} is not a {column_type}")
    made: Literal[Any] = literal(value)
    return made


def _beyond(column: str, operator: str, *, above: bool) -> BooleanExpression:
    """A comparison with a constant that lies beyond every value of the column."""
    always = operator == "!=" or operator in (("<", "<=") if above else (">", ">="))
    return not_null(column) if always else AlwaysFalse()

"""Comparisons of one column with constants, as pyiceberg expressions that match every file with a matching row.

Values have Spark's meaning: a string is read as the column's type, a time without a zone is in the session's zone, and
NaN is above every number. A constant that the column's type cannot represent is rounded down to one that it can.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Sequence
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

from iceberg_compact_sql.plan.filters.predicates import Subject, any_of, compared, is_nan, not_nan, not_null
from iceberg_compact_sql.units import parse_timestamp, zone

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = dt.date(1970, 1, 1)
_LARGEST_FLOAT = 3.4e38
NEGATED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Unusable(ValueError):
    """A comparison that cannot become an expression; the text is the reason."""


def compare(column: Subject, column_type: IcebergType, operator: str, value: Any, time_zone: str) -> BooleanExpression:
    """`column operator value`: matches every row that matches in Spark, and maybe more; null never matches."""
    if value is None:
        return AlwaysFalse()
    if isinstance(column_type, (FloatType, DoubleType)):
        return _compare_floating(column, column_type, operator, value)
    converted = to_literal(column, column_type, operator, value, time_zone)
    return converted if isinstance(converted, BooleanExpression) else compared(column, *converted)


def to_literal(
    column: Subject, column_type: IcebergType, operator: str, value: Any, time_zone: str
) -> tuple[str, Literal[Any]] | BooleanExpression:
    """Convert `operator value` to an operator and a literal of the column's type with the same meaning.

    Returns an expression instead when the comparison is true for no value or for every value of the column.
    """
    if isinstance(column_type, (BooleanType, UUIDType)) and operator not in ("=", "!="):
        raise Unusable(f"{column} is of type {column_type} and can only be compared with = and !=")
    constant, exact = _constant(column_type, value, time_zone)
    if constant is None:
        return compare_out_of_range(column, operator, above=exact)
    if exact:
        return operator, constant
    if operator == "=":
        return AlwaysFalse()
    if operator == "!=":
        return not_null(column)
    return "<=" if operator in ("<", "<=") else ">", constant


def compare_in(
    column: Subject, column_type: IcebergType, values: Sequence[Any], negate: bool, time_zone: str
) -> BooleanExpression:
    """`column IN (values)`, or NOT IN, which is never true when the list contains NULL."""
    if negate and None in values:
        return AlwaysFalse()
    constants, rest = _plain_constants(column_type, values)
    others: list[BooleanExpression] = []
    for value in rest:
        single = _equality(column, column_type, value, time_zone)
        if isinstance(single, Literal):
            constants.add(single)
        elif not isinstance(single, AlwaysFalse):
            others.append(single)
    if negate:
        if others or isinstance(column_type, FloatType):
            return not_null(column)
        excluded = compared(column, "not in", constants) if constants else not_null(column)
        return Or(excluded, is_nan(column)) if isinstance(column_type, DoubleType) else excluded
    included = compared(column, "in", constants) if constants else AlwaysFalse()
    return any_of([included, *others])


def _equality(
    column: Subject, column_type: IcebergType, value: Any, time_zone: str
) -> Literal[Any] | BooleanExpression:
    """`column = value`, as the literal alone where the comparison is with one literal."""
    if value is None:
        return AlwaysFalse()
    if isinstance(column_type, (FloatType, DoubleType)):
        single = _compare_floating(column, column_type, "=", value)
        return single.literal if isinstance(single, EqualTo) else single
    converted = to_literal(column, column_type, "=", value, time_zone)
    return converted if isinstance(converted, BooleanExpression) else converted[1]


def _plain_constants(column_type: IcebergType, values: Sequence[Any]) -> tuple[set[Literal[Any]], Sequence[Any]]:
    """Separate the values that already have the column's type, for speed: a list may have 200,000 values."""
    if isinstance(column_type, (IntegerType, LongType)):
        limit = 2 ** (31 if isinstance(column_type, IntegerType) else 63)
        whole = {value for value in values if type(value) is int and -limit <= value < limit}
        return {LongLiteral(value) for value in whole}, [v for v in values if type(v) is not int or v not in whole]
    if isinstance(column_type, StringType):
        texts = {value for value in values if type(value) is str}
        return {literal(text) for text in texts}, [value for value in values if type(value) is not str]
    return set(), values


def compare_range(
    compare_column: Callable[[str, Any], BooleanExpression], operator: str, start: Any, end: Any
) -> BooleanExpression:
    """Compare the range that holds the column's value with the range [start, end).

    `compare_column(operator, bound)` compares the column itself with `start` or `end`.
    """
    if operator == "=":
        return And(compare_column(">=", start), compare_column("<", end))
    if operator == "!=":
        return Or(compare_column("<", start), compare_column(">=", end))
    if operator in ("<", "<="):
        return compare_column("<", start if operator == "<" else end)
    return compare_column(">=", end if operator == ">" else start)


def read_date(text: str) -> dt.date:
    """Read a date from a string; a string with a zone or a time of day is refused."""
    try:
        moment = parse_timestamp(text.strip())
    except ValueError as error:
        raise Unusable(f"'{text}' is not a date") from error
    if moment.tzinfo is not None or moment.time() != dt.time():
        raise Unusable(f"'{text}' is not a date")
    return moment.date()


def read_timestamp(text: str) -> dt.datetime:
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


def local_time(value: dt.datetime | dt.date, time_zone: str) -> dt.datetime:
    """The local time of a timestamp in the session's zone, without the zone."""
    if not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(zone(time_zone)).replace(tzinfo=None)


def utc_time(value: dt.datetime | dt.date, time_zone: str) -> dt.datetime:
    """The UTC time of a timestamp, without the zone; a value without a zone is in the session's zone."""
    if not isinstance(value, dt.datetime):
        value = dt.datetime(value.year, value.month, value.day)
    aware = value if value.tzinfo is not None else value.replace(tzinfo=zone(time_zone))
    return aware.astimezone(dt.timezone.utc).replace(tzinfo=None)


def _constant(column_type: IcebergType, value: Any, time_zone: str) -> tuple[Literal[Any] | None, bool]:
    """The constant as a literal of the column's type, and whether it is exact; if not, it is rounded down.

    None for a constant outside the type's range: the flag is then true when it is above the range.
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
        clock = local_time(value, time_zone)
        return DateLiteral((clock.date() - _EPOCH_DAY).days), clock.time() == dt.time()
    if isinstance(column_type, (TimestampType, TimestamptzType)):
        if isinstance(value, str):
            value = read_timestamp(value)
        if not isinstance(value, dt.date):
            raise Unusable(f"{value!r} is not a timestamp")
        in_utc = isinstance(column_type, TimestamptzType)
        moment = utc_time(value, time_zone) if in_utc else local_time(value, time_zone)
        return TimestampLiteral((moment - _EPOCH) // dt.timedelta(microseconds=1)), True
    if isinstance(column_type, UUIDType):
        try:
            return literal(uuid.UUID(str(value))), True
        except ValueError as error:
            raise Unusable(f"{value!r} is not a uuid") from error
    raise Unusable(f"columns of type {column_type} cannot be compared here")


def _compare_floating(column: Subject, column_type: IcebergType, operator: str, value: Any) -> BooleanExpression:
    """Compare a float or double in Spark's order: NaN equals NaN and is above every other value."""
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
    comparison = compared(column, operator, DoubleLiteral(number))
    return Or(comparison, is_nan(column)) if operator in (">", ">=", "!=") else comparison


def _compare_single(column: Subject, operator: str, number: float) -> BooleanExpression:
    """Also match the next float on both sides: some engines round the constant to single precision, others do not."""
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
    converted: Literal[Any] = literal(value)
    return converted


def compare_out_of_range(column: Subject, operator: str, *, above: bool) -> BooleanExpression:
    """Compare with a constant that is outside the range of the column's type."""
    always = operator == "!=" or operator in (("<", "<=") if above else (">", ">="))
    return not_null(column) if always else AlwaysFalse()

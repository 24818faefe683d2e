"""Functions of one column in a filter: Iceberg's years, months, days, hours, bucket and truncate, and CAST AS DATE.

A comparison of such a function becomes a range of the column with the same meaning. So column statistics and
partitions of any transform can be used for it. A bucket is not a range: bucket numbers are compared directly.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyiceberg.expressions import AlwaysFalse, And, BooleanExpression, Or
from pyiceberg.expressions.literals import DateLiteral, DecimalLiteral, Literal, LongLiteral, TimestampLiteral, literal
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
from sqlglot import exp

from iceberg_compact_sql.plan.filters.comparisons import (
    Unusable,
    compare,
    compare_out_of_range,
    compare_range,
    read_number,
    to_literal,
)
from iceberg_compact_sql.plan.filters.predicates import compared, not_null
from iceberg_compact_sql.plan.filters.spans import span_bounds
from iceberg_compact_sql.table.bucket_term import BucketTerm

_SPANS = ("years", "months", "days", "hours")
_WIDTHS = {"bucket": "number of buckets", "truncate": "truncate width"}
_TIMES = (DateType, TimestampType, TimestamptzType)
_WHOLE = (IntegerType, LongType, DecimalType)
# No uuid: Spark reads a uuid column as a string, and its bucket differs from Iceberg's bucket of the uuid.
_BUCKETED = (*_WHOLE, *_TIMES, StringType, BinaryType, FixedType)
_ACCEPTED_TYPES: dict[str, tuple[tuple[type[IcebergType], ...], str]] = {
    **dict.fromkeys(("date", "years", "months", "days"), (_TIMES, "a date or a timestamp")),
    "hours": (_TIMES, "a timestamp"),
    "bucket": (_BUCKETED, "a whole number, a decimal, a date, a timestamp, a string or binary"),
    "truncate": ((*_WHOLE, StringType), "a whole number, a decimal or a string"),
}
_LARGEST_WIDTH = 2**31 - 1
_DAY_MICROSECONDS = 86_400_000_000
_EPOCH_ORDINAL = dt.date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a column; `qualified` is true for `system.name` and `catalog.system.name`."""

    name: str
    width: int | None = None
    qualified: bool = False

    def check_type(self, column: str, column_type: IcebergType) -> None:
        """Refuse a column whose type the function does not support."""
        types, described = _ACCEPTED_TYPES[self.name]
        if not isinstance(column_type, types):
            raise Unusable(f"{column} is of type {column_type}, and {self.name}() takes {described}")
        if self.name == "hours" and isinstance(column_type, DateType):
            raise Unusable(f"{column} is a date and has no hours")


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function call in the syntax tree; `width` is the first argument of bucket and truncate."""

    name: str
    column: exp.Expression
    width: exp.Expression | None
    qualified: bool


def called_function(node: exp.Expression) -> FunctionCall | None:
    """The function call of a node, with or without `catalog.system.` before its name; None for other nodes."""
    if isinstance(node, exp.TsOrDsToDate) or (
        isinstance(node, (exp.Cast, exp.TryCast)) and node.to.this == exp.DataType.Type.DATE
    ):
        return FunctionCall("date", node.this, None, qualified=False)
    qualified = isinstance(node, exp.Dot)
    if isinstance(node, exp.Dot):
        namespace, node = node.this, node.expression
        if isinstance(namespace, exp.Dot) and isinstance(namespace.this, exp.Identifier):
            namespace = namespace.expression
        if not isinstance(namespace, exp.Identifier) or namespace.name.lower() != "system":
            return None
    name, arguments = _name_and_arguments(node)
    if name in _SPANS and len(arguments) == 1:
        return FunctionCall(name, arguments[0], None, qualified)
    if name in _WIDTHS and len(arguments) == 2:
        return FunctionCall(name, arguments[1], arguments[0], qualified)
    return None


def read_width(name: str, value: Any) -> int:
    """Check the number of buckets or the truncate width: a positive whole number."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _LARGEST_WIDTH:
        return value
    raise Unusable(f"Invalid {_WIDTHS[name]}: {value} (must be a whole number > 0)")


def compare_function(
    function: Function, column: str, column_type: IcebergType, operator: str, value: Any, time_zone: str
) -> BooleanExpression:
    """`function(column) operator value`: matches every row that matches in Spark, and maybe more."""
    if value is None:
        return AlwaysFalse()
    if function.name == "bucket":
        assert function.width is not None
        return compare(BucketTerm(column, function.width), IntegerType(), operator, value, time_zone)
    if function.name == "truncate":
        return _compare_truncated(function, column, column_type, operator, value, time_zone)
    if function.name in ("years", "months", "hours"):
        if isinstance(value, str) and function.qualified:
            value = read_number(value)
        if isinstance(value, (str, dt.date)):
            # A date or a string names the span itself. Iceberg does not accept that.
            start, end = span_bounds(function.name, value, column_type, time_zone)
            return compare_range(
                lambda sign, bound: compare(column, column_type, sign, bound, time_zone), operator, start, end
            )
    converted = to_literal(
        column, DateType() if function.name in ("date", "days") else IntegerType(), operator, value, time_zone
    )
    if isinstance(converted, BooleanExpression):
        return converted
    operator, number = converted
    if function.name == "date":
        # CAST AS DATE uses the session's time zone; the other functions use UTC.
        day = dt.date.fromordinal(_EPOCH_ORDINAL + number.value)
        return compare_range(
            lambda sign, bound: compare(column, column_type, sign, bound, time_zone),
            operator,
            day,
            day + dt.timedelta(days=1),
        )
    return compare_range(
        lambda sign, bound: _compare_units(column, column_type, sign, bound),
        operator,
        _span_start(function.name, column_type, number.value),
        _span_start(function.name, column_type, number.value + 1),
    )


def _name_and_arguments(node: exp.Expression) -> tuple[str, Sequence[exp.Expression]]:
    if isinstance(node, exp.Anonymous):
        return node.name.lower(), node.expressions
    # sqlglot parses `truncate(a, b)` as Trunc.
    if isinstance(node, exp.Trunc) and node.args.get("decimals") is not None:
        return "truncate", (node.this, node.args["decimals"])
    return "", ()


def _span_start(span: str, column_type: IcebergType, number: int) -> int:
    """The start of a span counted from 1970, in days for a date column and microseconds for a timestamp column."""
    if span == "hours":
        return number * 3_600_000_000
    days = number
    if span in ("years", "months"):
        year, month = divmod(number, 12) if span == "months" else (number, 0)
        days = _days_before(1970 + year, month + 1)
    return days if isinstance(column_type, DateType) else days * _DAY_MICROSECONDS


def _days_before(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first of a month, also for years outside the range of Python's dates."""
    # The calendar repeats every 400 years, that is every 146,097 days.
    cycles, year_of_cycle = divmod(year - 2000, 400)
    return dt.date(2000 + year_of_cycle, month, 1).toordinal() - _EPOCH_ORDINAL + cycles * 146_097


def _compare_truncated(
    function: Function, column: str, column_type: IcebergType, operator: str, value: Any, time_zone: str
) -> BooleanExpression:
    assert function.width is not None
    converted = to_literal(column, column_type, operator, value, time_zone)
    if isinstance(converted, BooleanExpression):
        return converted
    operator, constant = converted
    if isinstance(column_type, StringType):
        return _compare_prefix(column, operator, constant.value, function.width)
    scale = column_type.scale if isinstance(column_type, DecimalType) else 0
    units = int(Decimal(constant.value).scaleb(scale))
    start = units - units % function.width
    if start != units:
        # The constant is not a multiple of the width: no truncated value equals it.
        if operator in ("=", "!="):
            return AlwaysFalse() if operator == "=" else not_null(column)
        operator = "<=" if operator in ("<", "<=") else ">"
    return compare_range(
        lambda sign, bound: _compare_units(column, column_type, sign, bound), operator, start, start + function.width
    )


def _compare_prefix(column: str, operator: str, text: str, width: int) -> BooleanExpression:
    """Compare the first `width` characters of a string column with a constant, in code point order."""
    if len(text) > width:
        # The constant is longer than every truncated value: it sorts right after its own first characters.
        if operator in ("=", "!="):
            return AlwaysFalse() if operator == "=" else not_null(column)
        text, operator = text[:width], "<=" if operator in ("<", "<=") else ">"
    if len(text) < width or operator in ("<", ">="):
        return compared(column, operator, literal(text))
    if operator in ("=", "!="):
        return compared(column, "starts with" if operator == "=" else "not starts with", text)
    if operator == "<=":
        return Or(compared(column, "<", literal(text)), compared(column, "starts with", text))
    return And(compared(column, ">", literal(text)), compared(column, "not starts with", text))


def _compare_units(column: str, column_type: IcebergType, operator: str, units: int) -> BooleanExpression:
    """Compare with a constant in the smallest unit of the type; it may be outside the type's range."""
    constant: Literal[Any]
    if isinstance(column_type, DecimalType):
        limit = 10**column_type.precision
        constant = DecimalLiteral(Decimal(units).scaleb(-column_type.scale))
    elif isinstance(column_type, DateType):
        limit, constant = 2**31, DateLiteral(units)
    elif isinstance(column_type, (IntegerType, LongType)):
        limit, constant = 2 ** (31 if isinstance(column_type, IntegerType) else 63), LongLiteral(units)
    else:
        limit, constant = 2**63, TimestampLiteral(units)
    if not -limit <= units < limit:
        return compare_out_of_range(column, operator, above=units > 0)
    return compared(column, operator, constant)

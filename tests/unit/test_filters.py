"""Filters: text to expression, or to an error with the reason, the place and the columns."""

from __future__ import annotations

import re

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.filters.parse import parse_where

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "s", StringType()),
    NestedField(3, "ts", TimestamptzType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "x", DoubleType()),
    NestedField(6, "f", FloatType()),
    NestedField(7, "flag", BooleanType()),
    NestedField(8, "n", DecimalType(9, 2)),
    NestedField(9, "p", StructType(NestedField(10, "q", IntegerType()))),
    NestedField(11, "l", ListType(12, StructType(NestedField(13, "m", IntegerType())), element_required=False)),
    NestedField(14, "ntz", TimestampType()),
    NestedField(15, "u", UUIDType()),
    NestedField(16, "b", BinaryType()),
    NestedField(17, "Mixed Case", StringType()),
    NestedField(18, "wide", DecimalType(38, 10)),
)
JANUARY = 1767225600000000
WIDE = "1234567890123456789012345678.0123456789"
NEW_YORK = 5 * 3_600_000_000
HOUR, DAY = 3_600_000_000, 86_400_000_000


def shown(text: str, time_zone: str = "UTC") -> str:
    """An expression in short: operators and values only."""
    told = repr(parse_where(text, SCHEMA, time_zone=time_zone))
    told = re.sub(r"term=Reference\(name='([^']*)'\)|Reference\(name='([^']*)'\)", lambda m: m[1] or m[2], told)
    told = re.sub(r"(?:\w*Literal|literal)\((.*?)\)(?=[,)}])", r"\1", told)
    return told.replace("literal=", "").replace("left=", "").replace("right=", "")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id = 1", "EqualTo(id, 1)"),
        ("ID <> 1", "NotEqualTo(id, 1)"),
        ("5 > id", "LessThan(id, 5)"),
        ("id >= 2.5", "GreaterThan(id, 2)"),
        ("id < 2.5", "LessThanOrEqual(id, 2)"),
        ("id = 2.5", "AlwaysFalse()"),
        ("id = -5L", "EqualTo(id, -5)"),
        ("id = '7'", "EqualTo(id, 7)"),
        ("p.q > 3000000000", "AlwaysFalse()"),
        ("p.q < 3000000000", "NotNull(p.q)"),
        ("NOT (id = 1 OR s = 'a')", "And(NotEqualTo(id, 1), NotEqualTo(s, 'a'))"),
        ("NOT id BETWEEN 1 AND 3", "Or(LessThan(id, 1), GreaterThan(id, 3))"),
        ("id BETWEEN 1 AND 3", "And(GreaterThanOrEqual(id, 1), LessThanOrEqual(id, 3))"),
        ("id IN (3)", "EqualTo(id, 3)"),
        ("s NOT IN ('a')", "NotEqualTo(s, 'a')"),
        ("s IS NOT NULL", "NotNull(s)"),
        ("p.q <=> NULL", "IsNull(p.q)"),
        ("NOT (id <=> 5)", "Or(NotEqualTo(id, 5), IsNull(id))"),
        ("s LIKE 'ab%'", "StartsWith(s, 'ab')"),
        ("s NOT LIKE 'ab%'", "NotStartsWith(s, 'ab')"),
        ("s LIKE 'ab'", "EqualTo(s, 'ab')"),
        ("startswith(s, 'ab')", "StartsWith(s, 'ab')"),
        ("`Mixed Case` = 'x'", "EqualTo(Mixed Case, 'x')"),
        ("flag", "EqualTo(flag, True)"),
        ("flag IS NOT TRUE", "Or(NotEqualTo(flag, True), IsNull(flag))"),
        ("x > 1", "Or(GreaterThan(x, 1.0), IsNaN(x))"),
        ("x < 1", "LessThan(x, 1.0)"),
        ("x = double('NaN')", "IsNaN(x)"),
        ("NOT isnan(x)", "NotNaN(x)"),
        ("f > 0.5", "Or(GreaterThanOrEqual(f, 0.4999999701976776), IsNaN(f))"),
        ("f = 0.5", "And(GreaterThanOrEqual(f, 0.4999999701976776), LessThanOrEqual(f, 0.5000000596046448))"),
        ("f != 0.1", "NotNull(f)"),
        ("n = 1.5", "EqualTo(n, Decimal('1.50'))"),
        ("n > 1.005", "GreaterThan(n, Decimal('1.00'))"),
        ("n < 100000000000", "NotNull(n)"),
        ("wide = -1234567890123456789012345678.0123456789", f"EqualTo(wide, Decimal('-{WIDE}'))"),
        ("wide > 1234567890123456789012345678.01234567899", f"GreaterThan(wide, Decimal('{WIDE}'))"),
        ("wide IN (1234567890123456789012345678.0123456789)", f"EqualTo(wide, Decimal('{WIDE}'))"),
        ("wide = '9999999999999999999999999999.9999999999'", f"EqualTo(wide, Decimal('{'9' * 28}.{'9' * 10}'))"),
        (f"wide > 1.00{'9' * 90}", "GreaterThan(wide, Decimal('1.0099999999'))"),
        ("day = '2026-01-01'", "EqualTo(day, 20454)"),
        ("day >= TIMESTAMP '2026-01-01 12:00:00'", "GreaterThan(day, 20454)"),
        ("day < CAST('2026-01-01' AS DATE)", "LessThan(day, 20454)"),
        ("ntz = TIMESTAMP_NTZ '2026-01-01 00:00:00'", f"EqualTo(ntz, {JANUARY})"),
        # Spark drops a zone that stands in the text of a type without one.
        ("ntz = TIMESTAMP_NTZ '2026-01-01 00:00:00+05:00'", f"EqualTo(ntz, {JANUARY})"),
        ("ts >= TIMESTAMP '2026'", f"GreaterThanOrEqual(ts, {JANUARY})"),
        ("true", "AlwaysTrue()"),
        ("s = 'x' -- a comment", "EqualTo(s, 'x')"),
        ("days(ts) = DATE '2026-01-01'", f"And(GreaterThanOrEqual(ts, {JANUARY}), LessThan(ts, {JANUARY + DAY}))"),
        ("hours(ts) <= '2026-01-01-00'", f"LessThan(ts, {JANUARY + HOUR})"),
        ("months(day) >= '2026-01'", "GreaterThanOrEqual(day, 20454)"),
        ("years(day) > '2025'", "GreaterThanOrEqual(day, 20454)"),
        ("NOT days(ts) < '2026-01-01'", f"GreaterThanOrEqual(ts, {JANUARY})"),
    ],
)
def test_expressions(text: str, expected: str) -> None:
    assert shown(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A time without a zone is on the session's clock; Iceberg's days() are days of UTC, CAST AS DATE is not.
        ("ts >= '2026-01-01'", f"GreaterThanOrEqual(ts, {JANUARY + NEW_YORK})"),
        ("ts >= TIMESTAMP '2026-01-01 00:00:00Z'", f"GreaterThanOrEqual(ts, {JANUARY})"),
        ("ntz >= '2026-01-01'", f"GreaterThanOrEqual(ntz, {JANUARY})"),
        ("ntz >= TIMESTAMP '2026-01-01 05:00:00Z'", f"GreaterThanOrEqual(ntz, {JANUARY})"),
        ("days(ts) >= '2026-01-01'", f"GreaterThanOrEqual(ts, {JANUARY})"),
        ("CAST(ts AS DATE) >= '2026-01-01'", f"GreaterThanOrEqual(ts, {JANUARY + NEW_YORK})"),
        ("date(ts) > '2025-12-31'", f"GreaterThanOrEqual(ts, {JANUARY + NEW_YORK})"),
    ],
)
def test_time_zones(text: str, expected: str) -> None:
    assert shown(text, "America/New_York") == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("id =", "it cannot be read near '='"),
        ("id = 1; DROP TABLE t", "it cannot be read near 'DROP'"),
        ("id = 1 GROUP BY id", "it cannot be read near 'GROUP BY'"),
        ("idd = 1", "there is no column 'idd', at line 1, column 1 of the filter: idd. Did you mean 'id'?"),
        ("s = 'a' AND\n  foo > 1", "there is no column 'foo', at line 2, column 3 of the filter: foo"),
        ("id = p.q", "one side of a comparison must be a constant"),
        ("id + 1 = 2", "this is neither a column nor a time function of one"),
        ("upper(s) = 'A'", "this is neither a column nor a time function of one"),
        ("bucket(4, id) = 1", "this is neither a column nor a time function of one"),
        ("id = (SELECT max(id) FROM t)", "one side of a comparison must be a constant"),
        ("id IN (SELECT 1)", "query cannot be used here"),
        ("id IN (1, NULL)", "nothing equals NULL, use IS NULL"),
        ("s RLIKE 'a'", "this cannot be used in a filter"),
        ("s ILIKE 'a%'", "this cannot be used in a filter"),
        ("s LIKE 'a_b%'", "LIKE 'a_b%' is not a plain prefix such as 'abc%'"),
        ("s LIKE '%b'", "LIKE '%b' is not a plain prefix"),
        ("s LIKE 'a!%' ESCAPE '!'", "this cannot be used in a filter"),
        ("s = 5", "5 is not a string"),
        ("id = 'abc'", "'abc' is not a number"),
        ("id = true", "True is not a number"),
        ("day = 'soon'", "'soon' is not a date"),
        ("ts = 'soon'", "'soon' is not a timestamp"),
        ("flag > true", "flag is of type boolean and can only be compared with = and !="),
        ("u > 'x'", "u is of type uuid and can only be compared with = and !="),
        ("u = 'x'", "'x' is not a uuid"),
        ("b = 'x'", "columns of type binary cannot be compared here"),
        ("l = 1", "l is of type list<"),
        ("l.element.m = 1", "l.element.m is inside a list or a map"),
        ("p = 1", "p is of type struct<"),
        ("id", "id is of type long, not a condition"),
        ("hours(day) = '2026-01-01-00'", "day is a date and has no hours"),
        ("days(id) = 1", "id is of type long, not a date or a timestamp"),
        ("days(ts) = 7", "7 is not a date"),
        ("isnan(id)", "isnan takes a float or double column"),
        ("(" * 3000 + "id = 1" + ")" * 3000, "it is nested too deeply"),
    ],
)
def test_refusals_say_why(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_where(text, SCHEMA, time_zone="UTC")
    message = str(caught.value)
    assert message.startswith("where is refused: ")
    assert reason in message
    assert "Columns: id long, s string" in message
    assert caught.value.argument == "where"


def test_case_matters_when_asked() -> None:
    parse_where("S = 'a'", SCHEMA, time_zone="UTC")
    with pytest.raises(InvalidArgumentError, match="there is no column 'S'"):
        parse_where("S = 'a'", SCHEMA, time_zone="UTC", case_sensitive=True)


def test_long_lists_are_shallow() -> None:
    parse_where(" OR ".join(f"id = {n}" for n in range(2000)), SCHEMA, time_zone="UTC")
    parse_where(f"day IN ({', '.join(repr(f'2026-01-{n:02d}') for n in range(1, 32))})", SCHEMA, time_zone="UTC")


def test_constant_arithmetic_and_doubled_quotes() -> None:
    now_ms = 1_767_225_600_000  # 2026-01-01 00:00:00 UTC
    schema = Schema(
        NestedField(1, "ts", TimestamptzType()), NestedField(2, "d", DateType()), NestedField(3, "s", StringType())
    )

    def parsed(text: str) -> str:
        return str(parse_where(text, schema, time_zone="UTC", now_ms=now_ms))

    assert parsed("ts >= current_timestamp() - INTERVAL 7 DAYS") == parsed("ts >= TIMESTAMP '2025-12-25 00:00:00'")
    assert parsed("d < current_date() - 1") == parsed("d < DATE '2025-12-31'")
    assert parsed("s = 'it''s'") == parsed('s = "it\'s"')
    with pytest.raises(InvalidArgumentError, match="where is refused"):
        parsed("ts >= current_timestamp() - ts")
    with pytest.raises(InvalidArgumentError, match="where is refused"):
        parsed("ts >= INTERVAL 7 DAYS")

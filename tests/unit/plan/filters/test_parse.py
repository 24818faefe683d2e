"""Filters: text to expression, or to an error with the reason, the place and the columns."""

from __future__ import annotations

import contextlib
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
    shown = repr(parse_where(text, SCHEMA, time_zone=time_zone))
    shown = re.sub(r"term=Reference\(name='([^']*)'\)|Reference\(name='([^']*)'\)", lambda m: m[1] or m[2], shown)
    shown = shown.replace("term=", "")
    shown = re.sub(r"(?:\w*Literal|literal)\((.*?)\)(?=[,)}])", r"\1", shown)
    return shown.replace("literal=", "").replace("left=", "").replace("right=", "")


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
        # Conditions without a column.
        ("1=1", "AlwaysTrue()"),
        ("0=1", "AlwaysFalse()"),
        ("not (1=1)", "AlwaysFalse()"),
        ("id > 0 AND 1=1", "GreaterThan(id, 0)"),
        ("id > 0 OR 1=1", "AlwaysTrue()"),
        ("id > 0 AND 0=1", "AlwaysFalse()"),
        ("id > 2 OR 1 > 1", "GreaterThan(id, 2)"),
        ("'a' < 'b' AND 1 <> '2' AND 1.0 <=> 1", "AlwaysTrue()"),
        ("1 IN (1, 2) AND 2 BETWEEN 1 AND 3 AND NULL IS NULL", "AlwaysTrue()"),
        ("1 NOT IN (1, 2) OR 2 NOT BETWEEN 1 AND 3 OR 1 IS NULL", "AlwaysFalse()"),
        ("DATE '2026-01-01' < TIMESTAMP '2026-01-01 00:00:01'", "AlwaysTrue()"),
        ("double('NaN') > 1 AND double('NaN') = double('NaN')", "AlwaysTrue()"),
        # What is NULL is not true, and neither is its negation.
        ("1 = NULL OR NOT (id = NULL)", "AlwaysFalse()"),
        ("id > 2 AND NULL", "AlwaysFalse()"),
        ("id IN (1, NULL)", "EqualTo(id, 1)"),
        ("id NOT IN (1, NULL)", "AlwaysFalse()"),
        ("days(ts) IN (NULL)", "AlwaysFalse()"),
        ("id NOT BETWEEN NULL AND 3", "GreaterThan(id, 3)"),
        ("NULL <=> NULL", "AlwaysTrue()"),
        ("id = id", "NotNull(id)"),
        ("(id > 2) = true", "GreaterThan(id, 2)"),
        ("false = (id > 2)", "LessThanOrEqual(id, 2)"),
        ("isnull(id) OR NOT isnotnull(s)", "Or(IsNull(id), IsNull(s))"),
        ("s = 'x' -- a comment", "EqualTo(s, 'x')"),
        ("days(ts) = DATE '2026-01-01'", f"And(GreaterThanOrEqual(ts, {JANUARY}), LessThan(ts, {JANUARY + DAY}))"),
        ("hours(ts) <= '2026-01-01-00'", f"LessThan(ts, {JANUARY + HOUR})"),
        ("months(day) >= '2026-01'", "GreaterThanOrEqual(day, 20454)"),
        ("years(day) > '2025'", "GreaterThanOrEqual(day, 20454)"),
        ("NOT days(ts) < '2026-01-01'", f"GreaterThanOrEqual(ts, {JANUARY})"),
        # Iceberg's functions count from 1970; a text is a number for them when they are qualified.
        ("lake.system.years(ts) = 56", f"And(GreaterThanOrEqual(ts, {JANUARY}), LessThan(ts, {JANUARY + 365 * DAY}))"),
        ("years(day) = 56", "And(GreaterThanOrEqual(day, 20454), LessThan(day, 20819))"),
        ("lake.system.years(day) >= '56'", "GreaterThanOrEqual(day, 20454)"),
        ("system.months(ntz) < 672", f"LessThan(ntz, {JANUARY})"),
        ("months(day) > 671.5", "GreaterThanOrEqual(day, 20454)"),
        ("`lake`.`system`.`Hours`(ts) > 490895", f"GreaterThanOrEqual(ts, {JANUARY})"),
        ("years(ts) > 300000", "AlwaysFalse()"),
        ("years(day) < -400000", "LessThan(day, -146097000)"),
        ("lake.system.days(ts) = TIMESTAMP '2026-01-01 10:00:00'", "AlwaysFalse()"),
        ("days(ts) != TIMESTAMP '2026-01-01 10:00:00'", "NotNull(ts)"),
        ("days(ts) < TIMESTAMP '2026-01-01 10:00:00'", f"LessThan(ts, {JANUARY + DAY})"),
        ("CAST(ts AS DATE) != TIMESTAMP '2026-01-01 10:00:00'", "NotNull(ts)"),
        ("lake.system.bucket(4, s) = 1", "EqualTo(bucket(4, s), 1)"),
        ("bucket(4, id) IN (1, 2, 1.5, NULL)", "In(bucket(4, id), {1, 2})"),
        ("3 <> bucket(4, b)", "NotEqualTo(bucket(4, b), 3)"),
        (
            "bucket(4, p.q) BETWEEN '1' AND 2.5",
            "And(GreaterThanOrEqual(bucket(4, p.q), 1), LessThanOrEqual(bucket(4, p.q), 2))",
        ),
        ("bucket(4, id) IS NULL", "IsNull(id)"),
        ("bucket(4, id) != 1.5", "NotNull(id)"),
        ("truncate(10, id) = 20", "And(GreaterThanOrEqual(id, 20), LessThan(id, 30))"),
        ("truncate(10, id) = 25", "AlwaysFalse()"),
        ("truncate(10, id) != 25", "NotNull(id)"),
        ("truncate(10, id) < 25", "LessThan(id, 30)"),
        ("truncate(10, id) >= -25", "GreaterThanOrEqual(id, -20)"),
        ("truncate(10, p.q) <= 2147483647", "NotNull(p.q)"),
        ("lake.system.truncate(50, n) > 1.25", "GreaterThanOrEqual(n, Decimal('1.50'))"),
        ("truncate(3, s) = 'abc'", "StartsWith(s, 'abc')"),
        ("truncate(3, s) = 'ab'", "EqualTo(s, 'ab')"),
        ("truncate(3, s) = 'abcd'", "AlwaysFalse()"),
        ("truncate(3, s) <= 'abcd'", "Or(LessThan(s, 'abc'), StartsWith(s, 'abc'))"),
        ("truncate(3, s) > 'abc'", "And(GreaterThan(s, 'abc'), NotStartsWith(s, 'abc'))"),
        ("truncate(3, s) >= 'abc'", "GreaterThanOrEqual(s, 'abc')"),
        ("truncate(3, s) NOT IN ('abc', 'x')", "And(NotStartsWith(s, 'abc'), NotEqualTo(s, 'x'))"),
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
        ("id + 1 = 2", "this is neither a column nor a function of one"),
        ("upper(s) = 'A'", "this is neither a column nor a function of one"),
        ("bucket(0, id) = 1", "Invalid number of buckets: 0 (must be a whole number > 0)"),
        ("lake.system.truncate('a', id) = 1", "Invalid truncate width: a (must be a whole number > 0)"),
        ("bucket(id, 4) = 1", "this is neither a column nor a function of one"),
        ("lake.other.bucket(4, id) = 1", "this is not a column"),
        ("lake.system.year(ts) = 56", "this is not a column"),
        (
            "bucket(4, u) = 1",
            "u is of type uuid, and bucket() takes a whole number, a decimal, a date",
        ),
        (
            "bucket(4, x) = 1",
            "x is of type double, and bucket() takes a whole number, a decimal, a date",
        ),
        ("truncate(4, day) = 1", "day is of type date, and truncate() takes a whole number, a decimal or a string"),
        ("truncate(4, s) LIKE 'a%'", "a prefix needs a string column, not truncate() of one"),
        ("bucket(4, id) = 'abc'", "'abc' is not a number"),
        ("NULL", "NULL is not a condition"),
        ("1", "this cannot be used in a filter"),
        ("1 = 'abc'", "'abc' is not a number"),
        ("true = 1", "True and 1 cannot be compared"),
        ("(id > 1) = 5", "a condition can be compared with true and false only"),
        ("id = (SELECT max(id) FROM t)", "one side of a comparison must be a constant"),
        ("id IN (SELECT 1)", "query cannot be used here"),
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
        ("days(id) = 1", "id is of type long, and days() takes a date or a timestamp"),
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


def test_names_that_differ_by_case_only_are_not_guessed() -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "A", LongType()))
    with pytest.raises(InvalidArgumentError, match="'a' may be any of a, A; set spark"):
        parse_where("a = 1", schema, time_zone="UTC")
    assert "name='A'" in repr(parse_where("A = 1", schema, time_zone="UTC", case_sensitive=True))


@pytest.mark.parametrize(
    "text", ["lake.system.bucket(2, id) = 0", "truncate(2, id) = 0", "trunc(2, foo) = 0", "x() = 1"]
)
def test_filters_write_nothing_to_stderr(
    text: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with contextlib.suppress(InvalidArgumentError):
        parse_where(text, SCHEMA, time_zone="UTC")
    assert capfd.readouterr().err == ""
    assert caplog.records == []


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

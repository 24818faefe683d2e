"""A filter chooses files, and never passes over one that holds a matching row: DuckDB says which rows match."""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
)

from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.table.pruning import ColumnStatistics, FilePruner

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "s", StringType(), required=False),
    NestedField(3, "d", DateType(), required=False),
    NestedField(4, "ts", TimestampType(), required=False),
    NestedField(5, "x", DoubleType(), required=False),
    NestedField(6, "f", FloatType(), required=False),
    NestedField(7, "n", DecimalType(6, 2), required=False),
    NestedField(8, "flag", BooleanType(), required=False),
)
DAYS = [dt.date(1969, 12, 30) + dt.timedelta(days=n) for n in range(5)] + [dt.date(2026, 1, 31), dt.date(2026, 2, 1)]
VALUES: dict[str, list[Any]] = {
    "i": [None, -(2**31), -3, 0, 1, 2, 7, 2**31 - 1],
    "s": [None, "", "a", "ab", "abc", "b", "ä", "\U0001f600z"],
    "d": [None, *DAYS],
    "ts": [None, *(dt.datetime(day.year, day.month, day.day, hour) for day in DAYS for hour in (0, 23))],
    "x": [None, -math.inf, -1.5, -0.0, 0.0, 0.1, 2.0, math.inf, math.nan],
    "f": [None, *(struct.unpack("f", struct.pack("f", v))[0] for v in (-1.5, -0.0, 0.1, 2.0, math.inf, math.nan))],
    "n": [None, *(Decimal(v) for v in ("-9.99", "0.00", "0.01", "1.50", "9999.99"))],
    "flag": [None, True, False],
}
LITERALS: dict[str, list[str]] = {
    "i": ["-3", "0", "1.5", "2", "3000000000", "-2147483648", "7.0"],
    "s": ["''", "'a'", "'ab'", "'ä'", "'zz'"],
    "d": [f"DATE '{day}'" for day in DAYS] + ["'1970-01-01'"],
    "ts": [f"TIMESTAMP '{day} {clock}'" for day in DAYS for clock in ("00:00:00", "12:00:00", "23:00:00")],
    "x": ["-1.5", "0", "0.1", "2", "1e300", "CAST('nan' AS DOUBLE)", "CAST('infinity' AS DOUBLE)"],
    "f": ["-1.5", "0.1", "2", "1e300", "CAST('nan' AS DOUBLE)"],
    "n": ["0", "0.005", "0.01", "1.5", "99999.99", "-9.99"],
    "flag": ["true", "false"],
}
PREFIXES = ["''", "'a%'", "'ab%'", "'%'", "'ä%'", "'abc'"]


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(conditions(depth=depth - 1)), draw(conditions(depth=depth - 1))
        return draw(st.sampled_from([f"({left} AND {right})", f"({left} OR {right})", f"NOT ({left})"]))
    column = draw(st.sampled_from(list(VALUES)))
    literals = st.sampled_from(LITERALS[column])
    kind = draw(st.sampled_from(["compare", "in", "between", "null", "like"]))
    if kind == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "in":
        chosen = draw(st.lists(literals, min_size=1, max_size=3))
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({', '.join(chosen)})"
    if kind == "between" and column != "flag":
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {draw(literals)} AND {draw(literals)}"
    if kind == "like" and column == "s":
        return f"s {draw(st.sampled_from(['', 'NOT ']))}LIKE {draw(st.sampled_from(PREFIXES))}"
    operators = ["=", "<>"] if column == "flag" else ["=", "<>", "<", "<=", ">", ">="]
    sign = draw(st.sampled_from(operators))
    if draw(st.booleans()):
        return f"{draw(literals)} {sign} {column}"
    return f"{column} {sign} {draw(literals)}"


rows = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), min_size=1, max_size=4
)


def metrics_of(held: list[dict[str, Any]], *, truncate: int | None = None) -> ColumnStatistics:
    """Statistics as a writer makes them: NaN outside the bounds, long text cut short."""
    values, nulls, nans, lower, upper = {}, {}, {}, {}, {}
    for field in SCHEMA.fields:
        column = [row[field.name] for row in held]
        present = [value for value in column if value is not None]
        real = [value for value in present if not (isinstance(value, float) and math.isnan(value))]
        values[field.field_id], nulls[field.field_id] = len(column), len(column) - len(present)
        if isinstance(field.field_type, (DoubleType, FloatType)):
            nans[field.field_id] = len(present) - len(real)
        if real:
            assert isinstance(field.field_type, PrimitiveType)
            low, high = min(real), max(real)
            if truncate and isinstance(low, str):
                low, high = low[:truncate], high if len(high) <= truncate else high[: truncate - 1] + "\U0010ffff"
            lower[field.field_id], upper[field.field_id] = (to_bytes(field.field_type, v) for v in (low, high))
    return ColumnStatistics(len(held), values, nulls, nans, lower, upper)


@pytest.fixture(scope="module")
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def matches(duck: duckdb.DuckDBPyConnection, held: list[dict[str, Any]], text: str) -> list[bool]:
    """For each row whether the filter is true of it."""
    table = pa.Table.from_pylist(held, schema=schema_to_pyarrow(SCHEMA, include_field_ids=False))
    duck.register("held", table)
    return [bool(row[0]) for row in duck.execute(f"SELECT {text} FROM held").fetchall()]


@settings(max_examples=250)
@given(rows, conditions(), st.sampled_from([None, 1, 2]))
def test_statistics_never_hide_a_matching_row(
    duck: duckdb.DuckDBPyConnection, held: list[dict[str, Any]], text: str, truncate: int | None
) -> None:
    pruner = FilePruner(parse_where(text, SCHEMA, time_zone="UTC"), SCHEMA, {})
    if any(matches(duck, held, text)):
        assert pruner.file_may_match(metrics_of(held, truncate=truncate)), text


TRANSFORMS: list[tuple[int, Transform[Any, Any]]] = [
    (1, IdentityTransform()),
    (1, BucketTransform(4)),
    (1, TruncateTransform(3)),
    (2, IdentityTransform()),
    (2, TruncateTransform(1)),
    (2, VoidTransform()),
    (3, IdentityTransform()),
    (3, MonthTransform()),
    (4, DayTransform()),
    (4, IdentityTransform()),
    (5, IdentityTransform()),
    (7, TruncateTransform(10)),
    (7, IdentityTransform()),
    (8, IdentityTransform()),
]


@settings(max_examples=250)
@given(rows, conditions(), st.sampled_from(TRANSFORMS))
def test_partitions_never_hide_a_matching_row(
    duck: duckdb.DuckDBPyConnection,
    held: list[dict[str, Any]],
    text: str,
    partitioned: tuple[int, Transform[Any, Any]],
) -> None:
    source, transform = partitioned
    field = SCHEMA.find_field(source)
    spec = PartitionSpec(PartitionField(source, 1000, transform, "part"))
    pruner = FilePruner(parse_where(text, SCHEMA, time_zone="UTC"), SCHEMA, {0: spec})
    apply = transform.transform(field.field_type)
    for row, matching in zip(held, matches(duck, held, text), strict=True):
        value = apply(internal(row[field.name]))
        if matching:
            assert pruner.partition_may_match(0, (value,)), (text, value)


def internal(value: Any) -> Any:
    """A value as manifests hold it."""
    if isinstance(value, dt.datetime):
        return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else value


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("i = 5", {"b"}),
        ("i > 9", {"c"}),
        ("i < 4 OR s = 'z'", {"a", "c"}),
        ("i IS NULL", {"d"}),
        ("s LIKE 'm%'", {"b"}),
        ("NOT i IN (1, 2)", {"a", "b", "c"}),
        ("i = 50", set()),
    ],
)
def test_files_that_cannot_match_are_passed_over(text: str, kept: set[str]) -> None:
    base = dict.fromkeys(VALUES)
    files = {
        "a": [{**base, "i": 1, "s": "b"}, {**base, "i": 3, "s": "c"}],
        "b": [{**base, "i": 4, "s": "m"}, {**base, "i": 6, "s": "mm"}],
        "c": [{**base, "i": 10, "s": "x"}, {**base, "i": 12, "s": "z"}],
        "d": [{**base, "s": "a"}],
    }
    pruner = FilePruner(parse_where(text, SCHEMA, time_zone="UTC"), SCHEMA, {})
    assert {name for name, held in files.items() if pruner.file_may_match(metrics_of(held))} == kept


# What Iceberg's functions give, with constants of the type that they have in Spark.
FUNCTIONS: list[tuple[str, str, Transform[Any, Any], list[Any]]] = [
    ("lake.system.bucket(4, i)", "i", BucketTransform(4), [0, 1, 3, 9]),
    ("bucket(3, s)", "s", BucketTransform(3), [0, 2]),
    ("system.bucket(2, ts)", "ts", BucketTransform(2), [0, 1]),
    ("truncate(3, i)", "i", TruncateTransform(3), [-3, 0, 1, 2, 2**31 - 1]),
    ("lake.system.truncate(2, s)", "s", TruncateTransform(2), ["", "a", "ab", "abc", "b", "ä"]),
    ("truncate(10, n)", "n", TruncateTransform(10), [Decimal("0.00"), Decimal("-10.00"), Decimal("1.45")]),
    ("lake.system.years(d)", "d", YearTransform(), [-1, 0, 56]),
    ("months(ts)", "ts", MonthTransform(), [-1, 0, 672]),
    ("lake.system.hours(ts)", "ts", HourTransform(), [-25, -1, 0, 490919]),
    ("days(ts)", "ts", DayTransform(), [-1, 0, 20484]),
]
OPERATORS: dict[str, Any] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@settings(max_examples=400)
@given(rows, st.sampled_from(FUNCTIONS), st.sampled_from(list(OPERATORS)), st.data())
def test_functions_keep_every_matching_row_and_partitions_of_the_same_transform_prune(
    held: list[dict[str, Any]],
    function: tuple[str, str, Transform[Any, Any], list[Any]],
    sign: str,
    data: st.DataObject,
) -> None:
    call, column, transform, constants = function
    constant = data.draw(st.sampled_from(constants))
    shown = f"DATE '{dt.date(1970, 1, 1) + dt.timedelta(days=constant)}'" if call.startswith("days") else repr(constant)
    shown = str(constant) if isinstance(constant, Decimal) else shown
    field = SCHEMA.find_field(column)
    spec = PartitionSpec(PartitionField(field.field_id, 1000, transform, "part"))
    pruner = FilePruner(parse_where(f"{call} {sign} {shown}", SCHEMA, time_zone="UTC"), SCHEMA, {0: spec})
    results = [transform.transform(field.field_type)(internal(row[column])) for row in held]
    matching = [result is not None and OPERATORS[sign](result, constant) for result in results]
    if any(matching):
        assert pruner.file_may_match(metrics_of(held))
    for result, match in zip(results, matching, strict=True):
        # A prefix of a text is compared through the text itself, which is exact for = only.
        exact = not isinstance(result, str) or sign == "="
        if result is not None and (match or exact):
            assert pruner.partition_may_match(0, (result,)) == match


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("i NOT IN (1, 2)", {"c", "d"}),
        ("i <> 1", {"b", "c", "d"}),
        ("NOT (i = 1 OR i = 2)", {"c", "d"}),
        ("x NOT IN (1.5)", {"b"}),
        ("s NOT IN ('a', 'b', 'c')", {"d"}),
        ("s NOT LIKE 'a%'", {"b", "c", "d"}),
        ("1=1", {"a", "b", "c", "d"}),
        ("0=1", set()),
    ],
)
def test_files_of_one_excluded_value_are_passed_over(text: str, kept: set[str]) -> None:
    """As in Iceberg: not where there are nulls or NaN beside the value, and not on long text, whose bounds are cut."""
    base = dict.fromkeys(VALUES)
    files = {
        "a": [{**base, "i": 1, "s": "a", "x": 1.5}] * 2,
        "b": [{**base, "i": 2, "s": "b", "x": 1.5}, {**base, "i": 2, "s": "b", "x": math.nan}],
        "c": [{**base, "i": 1, "s": "c"}, {**base, "i": 2, "s": "c"}],
        "d": [{**base, "i": 1, "s": "d" * 16}, {**base, "s": "d" * 16}],
    }
    pruner = FilePruner(parse_where(text, SCHEMA, time_zone="UTC"), SCHEMA, {})
    assert {name for name, held in files.items() if pruner.file_may_match(metrics_of(held))} == kept

"""Ranges and the exact sort inside them, against Python's own comparison, for every type, direction and null order."""

from __future__ import annotations

import datetime
import decimal
import functools
import itertools
import math
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.rewrite.clustering.batches import from_blob, one_batch, to_blob
from iceberg_compact_sql.rewrite.clustering.layout import Layout, RowOrder, row_ties
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema

ROWS = 1_600
RANDOM = np.random.default_rng(11)


def _micros(count: int) -> datetime.datetime:
    return datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=count)


TEXTS = ["", "a", "abcdefgh", "abcdefghi", "abcdefgh\x00", "abcdefgh\x00\x00", "é", "～", "\U0001f600", "\x7f", "\x80"]
TEXTS += [f"a prefix that all of these texts share {number}" for number in range(40)]
NAN_OTHER_BITS = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000001))[0]
DOUBLES = [math.nan, NAN_OTHER_BITS, math.inf, -math.inf, 0.0, -0.0, -1.5, 5e-324, -5e-324, 1.7e308, -1.7e308, 2.5]
LONGS = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**53 + 1, 2**63 - 1]
# A type, some of its values, and what Python compares.
KINDS: dict[str, tuple[IcebergType, Sequence[Any]]] = {
    "boolean": (BooleanType(), [False, True]),
    "int": (IntegerType(), [-(2**31), -1, 0, 1, 2**31 - 1]),
    "long": (LongType(), LONGS),
    "float": (FloatType(), [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, 1e-45]),
    "double": (DoubleType(), DOUBLES),
    "short decimal": (DecimalType(18, 2), [decimal.Decimal(v) / 100 for v in (-(10**17), -1, 0, 1, 10**17)]),
    "long decimal": (
        DecimalType(38, 4),
        [decimal.Decimal(f"{v}e-4") for v in (-(10**38) + 1, -(2**64), -1, 0, 1, 2**63, 2**64, 10**38 - 1)],
    ),
    "string": (StringType(), TEXTS),
    "binary": (BinaryType(), [b"", b"\x00", b"\x00\x00", b"\x7f", b"\x80", b"\xff", b"\xff" * 9, b"\xff" * 8]),
    "fixed": (FixedType(11), [bytes([value]) * 11 for value in (0, 1, 127, 128, 255)] + [b"\xff" * 10 + b"\x00"]),
    "uuid": (UUIDType(), [uuid.UUID(int=value) for value in (0, 1, 2**63, 2**64, 2**127 - 1, 2**127, 2**128 - 1)]),
    "date": (DateType(), [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(9999, 12, 31)]),
    "time": (TimeType(), [datetime.time(0), datetime.time(12, 0, 0, 1), datetime.time(23, 59, 59, 999999)]),
    "timestamp": (TimestampType(), [_micros(value) for value in (-1, 0, 1, -(10**15), 10**15)]),
    "timestamptz": (
        TimestamptzType(),
        [_micros(value).replace(tzinfo=datetime.timezone.utc) for value in (-1, 0, 1, 10**15)],
    ),
    "timestamp_ns": (TimestampNanoType(), [-(2**62), -1, 0, 1, 2**62]),
    "timestamptz_ns": (TimestamptzNanoType(), [-(2**62), -1, 0, 1, 2**62]),
}


def _column(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array([v and v.bytes for v in values], pa.binary(16)))
    return pa.array(values, kind)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, str):
        return value.encode()
    return value.bytes if isinstance(value, uuid.UUID) else value


def comparison(keys: Sequence[tuple[str, OrderField]]) -> Callable[[Any, Any], int]:
    """The order as Spark has it, written a second time and without words."""

    def compare(left: dict[str, Any], right: dict[str, Any]) -> int:
        for name, field in keys:
            a, b = left[name], right[name]
            if a is None or b is None:
                if a is not b:
                    return -1 if (a is None) == field.nulls_first else 1
                continue
            a, b = _plain(a), _plain(b)
            if a != b:
                return (1 if a > b else -1) * (-1 if field.descending else 1)
        return 0

    return compare


def in_ranges(
    rows: pa.RecordBatch, order: RowOrder, ranges: int, sampled: int = ROWS // 2
) -> tuple[Layout, list[pa.RecordBatch]]:
    """Split rows by a layout of some of them, send each range through bytes, and sort it."""
    columns = order.columns(rows)
    chosen = pa.array(np.sort(RANDOM.permutation(rows.num_rows)[:sampled]))
    ties = row_ties("file", 0, rows.num_rows)
    layout = order.layout(
        [column.take(chosen) for column in columns],
        ties[chosen.to_numpy()],
        [column.null_count > 0 for column in columns],
        ranges=ranges,
    )
    numbers = order.ranges(rows, ties, layout)
    parts = []
    plain = pa.schema([(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in rows.schema])
    for number in range(layout.ranges):
        mine = rows.take(pa.array(np.flatnonzero(numbers == number)))
        half = mine.num_rows // 2
        blobs = [to_blob(rows) for rows in (mine.slice(0, half), mine.slice(half)) if rows.num_rows]
        batches = [batch for blob in blobs for batch in from_blob(blob)]
        parts.append(order.sorted(one_batch(batches or [mine], plain), layout))
    return layout, parts


@pytest.mark.parametrize("nulls", ["no nulls", "nulls first", "nulls last", "almost all nulls"])
@pytest.mark.parametrize("descending", [False, True], ids=["asc", "desc"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_in_every_direction(kind: str, descending: bool, nulls: str) -> None:
    iceberg_type, values = KINDS[kind]
    schema = Schema(
        NestedField(1, "key", iceberg_type), NestedField(2, "other", LongType()), NestedField(3, "row", LongType())
    )
    arrow = arrow_schema(schema)
    share = {"no nulls": 0.0, "almost all nulls": 0.9}.get(nulls, 0.1)
    keys = [None if RANDOM.random() < share else values[i] for i in RANDOM.integers(0, len(values), ROWS)]
    others = RANDOM.integers(-5, 5, ROWS)
    rows = pa.RecordBatch.from_arrays(
        [_column(arrow.field(0).type, keys), pa.array(others), pa.array(range(ROWS))], schema=arrow
    )
    fields = (OrderField(1, descending=descending, nulls_first=nulls != "nulls last"), OrderField(2))
    order = RowOrder(schema, ClusterOrder("sort", fields), None)
    _, parts = in_ranges(rows, order, 8)
    found = [
        {"key": keys[row], "other": int(others[row]), "row": row}
        for part in parts
        for row in part.column(2).to_pylist()
    ]
    assert sorted(row["row"] for row in found) == list(range(ROWS))
    compare = comparison([("key", fields[0]), ("other", fields[1])])
    assert all(compare(a, b) <= 0 for a, b in itertools.pairwise(found))
    sizes = [part.num_rows for part in parts]
    assert len(sizes) == 8
    assert max(sizes) < 1.6 * ROWS / 8, sizes


@pytest.mark.parametrize("dictionary", [False, True], ids=["plain", "dictionary"])
def test_texts_that_share_a_long_prefix(dictionary: bool) -> None:
    schema = Schema(NestedField(1, "key", StringType()))
    texts = [f"{'x' * 5000}{value}" for value in RANDOM.integers(0, 500, 2000)]
    column = pa.array(texts).dictionary_encode() if dictionary else pa.array(texts)
    rows = pa.RecordBatch.from_arrays([column], names=["key"])
    _, parts = in_ranges(rows, RowOrder(schema, ClusterOrder("sort", (OrderField(1),)), None), 7, 1000)
    found = [value for part in parts for value in part.column(0).to_pylist()]
    assert found == sorted(texts)


@pytest.mark.parametrize(
    ("transform", "value_of"),
    [
        ("bucket[4]", None),
        ("truncate[3]", lambda text: text[:3]),
        ("void", lambda text: None),
    ],
)
def test_transforms_of_texts(transform: str, value_of: Callable[[str], Any] | None) -> None:
    schema = Schema(NestedField(1, "key", StringType()), NestedField(2, "row", LongType()))
    texts = [TEXTS[index] for index in RANDOM.integers(0, len(TEXTS), ROWS)]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(texts).dictionary_encode(), pa.array(range(ROWS))], names=["key", "row"]
    )
    order = RowOrder(schema, ClusterOrder("sort", (OrderField(1, transform),)), None)
    if value_of is None:
        from pyiceberg.transforms import BucketTransform

        value_of = BucketTransform(4).transform(StringType())  # type: ignore[assignment]
    assert value_of is not None
    _, parts = in_ranges(rows, order, 4)
    found = [_plain(value_of(texts[row])) for part in parts for row in part.column(1).to_pylist()]
    assert len(found) == ROWS
    assert [value for value in found if value is not None] == sorted(value for value in found if value is not None)


@pytest.mark.parametrize(("transform", "per_unit"), [("hour", 3_600), ("day", 86_400)])
@pytest.mark.parametrize(("kind", "per_second"), [(TimestampType(), 10**6), (TimestampNanoType(), 10**9)])
def test_transforms_of_times(transform: str, per_unit: int, kind: IcebergType, per_second: int) -> None:
    schema = Schema(NestedField(1, "at", kind))
    numbers = RANDOM.integers(-(10**6), 10**6, ROWS) * per_second
    rows = pa.RecordBatch.from_arrays([pa.array(numbers).cast(arrow_schema(schema).field(0).type)], names=["at"])
    order = RowOrder(schema, ClusterOrder("sort", (OrderField(1, transform, descending=True),)), None)
    _, parts = in_ranges(rows, order, 4)
    found = [value // per_second // per_unit for part in parts for value in part.column(0).cast(pa.int64()).to_pylist()]
    assert found == sorted((number // per_second // per_unit for number in numbers.tolist()), reverse=True)


def test_a_field_of_a_struct_is_null_where_the_struct_is() -> None:
    schema = Schema(NestedField(1, "st", StructType(NestedField(2, "a", LongType()))))
    values = [None if i % 5 == 0 else {"a": None if i % 7 == 0 else int(i % 100)} for i in range(ROWS)]
    rows = pa.RecordBatch.from_arrays([pa.array(values, arrow_schema(schema).field(0).type)], names=["st"])
    order = RowOrder(schema, ClusterOrder("sort", (OrderField(2, nulls_first=False),)), None)
    _, parts = in_ranges(rows, order, 4)
    found = [value and value["a"] for part in parts for value in part.column(0).to_pylist()]
    numbers = sorted(value["a"] for value in values if value and value["a"] is not None)
    assert found == numbers + [None] * (ROWS - len(numbers))


@pytest.mark.parametrize("layout", ["zorder", "hilbert"])
@pytest.mark.parametrize("columns", [2, 3, 7])
def test_curves_of_mixed_columns_keep_all_rows_and_narrow_every_column(layout: str, columns: int) -> None:
    rows = 40_000
    schema = Schema(*(NestedField(n + 1, f"c{n}", StringType() if n == 1 else LongType()) for n in range(columns)))
    arrays = []
    for number in range(columns):
        values = RANDOM.integers(0, 10 ** (3 + 2 * (number % 5)), rows)
        arrays.append(pa.array([f"{v:09d}" for v in values]) if number == 1 else pa.array(values))
    batch = pa.RecordBatch.from_arrays(arrays, names=schema.column_names)
    order = RowOrder(schema, ClusterOrder(layout, tuple(OrderField(n + 1) for n in range(columns))), None)  # type: ignore[arg-type]
    _, parts = in_ranges(batch, order, 16, 20_000)
    assert sorted(map(str, pa.Table.from_batches(parts).to_pylist())) == sorted(map(str, batch.to_pylist()))
    if columns < 4:
        for number in range(columns):
            ends = [sorted(part.column(number).to_pylist())[:: part.num_rows - 1] for part in parts]
            middle = sorted(batch.column(number).to_pylist())[rows // 3]
            assert sum(low <= middle <= high for low, high in ends) <= 12, (number, ends)


def test_partitions_come_first_and_no_range_joins_two_of_them() -> None:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import IdentityTransform

    schema = Schema(NestedField(1, "p", StringType()), NestedField(2, "key", LongType()))
    names = [None if i % 9 == 0 else f"part-{i % 4}" for i in range(ROWS)]
    rows = pa.RecordBatch.from_arrays([pa.array(names), pa.array(RANDOM.integers(0, 1000, ROWS))], names=["p", "key"])
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"), spec_id=1)
    order = RowOrder(schema, ClusterOrder("sort", (OrderField(2, descending=True),)), spec)
    layout, parts = in_ranges(rows, order, 20, 500)
    assert len(layout.starts) == 4
    for part in parts:
        assert len(set(part.column(0).to_pylist())) <= 1
    found = [(row["p"] or "", -row["key"]) for part in parts for row in part.to_pylist()]
    assert found == sorted(found)


def test_equal_keys_fill_as_many_ranges_as_they_need() -> None:
    schema = Schema(NestedField(1, "key", LongType()))
    for name, values in {
        "one value in 40 %": np.where(RANDOM.random(50_000) < 0.4, 500, RANDOM.integers(0, 1000, 50_000)),
        "all equal": np.zeros(50_000, np.int64),
    }.items():
        rows = pa.RecordBatch.from_arrays([pa.array(values)], names=["key"])
        _, parts = in_ranges(rows, RowOrder(schema, ClusterOrder("sort", (OrderField(1),)), None), 10, 20_000)
        sizes = [part.num_rows for part in parts]
        assert len(sizes) == 10, name
        assert max(sizes) < 1.1 * 5000, (name, sizes)
        assert min(sizes) > 0.9 * 5000, (name, sizes)


def test_the_number_of_a_row_is_the_same_on_every_attempt_and_differs_between_files() -> None:
    assert row_ties("a", 10, 5).tolist() == row_ties("a", 0, 15)[10:].tolist()
    assert not set(row_ties("a", 0, 1000).tolist()) & set(row_ties("b", 0, 1000).tolist())


def test_comparison_is_a_total_order() -> None:
    compare = comparison([("key", OrderField(1))])
    values = [{"key": value} for value in (3.0, math.nan, None, -0.0, 0.0)]
    ordered = sorted(values, key=functools.cmp_to_key(compare))
    assert ordered[0]["key"] is None
    assert math.isnan(ordered[-1]["key"])

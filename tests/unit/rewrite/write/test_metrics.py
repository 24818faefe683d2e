"""Metrics from footers: what pyiceberg's own encoding gives, and bounds that never cut a value off."""

from __future__ import annotations

import datetime as dt
import io
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
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
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.parquet.footer import ParquetFooter, parse_footer
from iceberg_compact_sql.parquet.thrift import BINARY, FALSE, I64, LIST, STRUCT, Struct, ThriftList, write_struct
from iceberg_compact_sql.rewrite.write.bounds import lower_string, upper_binary, upper_string
from iceberg_compact_sql.rewrite.write.metrics import (
    COUNTS,
    FULL,
    NONE,
    TRUNCATED,
    MetricsMode,
    column_modes,
    file_metrics,
)
from tests.support.parquet_bytes import footer_of, joined, parquet_bytes, with_id


def one_column(kind: pa.DataType, *row_groups: list[Any], **options: Any) -> ParquetFooter:
    schema = pa.schema([with_id("c", kind, 1)])
    files = [parquet_bytes(pa.table([pa.array(values, kind)], schema=schema), **options) for values in row_groups]
    return joined(files)[1]


def bounds(footer: ParquetFooter, kind: IcebergType, mode: str = "truncate(16)") -> tuple[bytes | None, bytes | None]:
    metrics = file_metrics(
        footer, Schema(NestedField(1, "c", kind, required=False)), {"write.metadata.metrics.default": mode}
    )
    return metrics.lower_bounds.get(1), metrics.upper_bounds.get(1)


U1, U2 = uuid.UUID(int=2**127 + 5), uuid.UUID(int=2**127 + 9)
TYPES: list[tuple[PrimitiveType, pa.DataType, Any, Any, Any]] = [
    (BooleanType(), pa.bool_(), False, True, None),
    (IntegerType(), pa.int32(), -5, 7, None),
    (LongType(), pa.int64(), -(2**40), 2**50, None),
    (LongType(), pa.int32(), -5, 7, None),
    (FloatType(), pa.float32(), -1.5, 2.25, None),
    (DoubleType(), pa.float64(), -math.inf, 1e300, None),
    (DoubleType(), pa.float32(), -1.5, 2.25, None),
    (DateType(), pa.date32(), -400, 20000, lambda v: dt.date(1970, 1, 1) + dt.timedelta(v)),
    (TimeType(), pa.time64("us"), 1, 86_399_999_999, lambda v: (dt.datetime.min + dt.timedelta(microseconds=v)).time()),
    (TimestampType(), pa.timestamp("us"), -(10**15), 10**15, None),
    (TimestamptzType(), pa.timestamp("us", tz="UTC"), -(10**15), 10**15, None),
    (TimestampNanoType(), pa.timestamp("ns"), -(10**17), 10**17 + 1, None),
    (StringType(), pa.string(), "a", "é", None),
    (StringType(), pa.large_string(), "a", "é", None),
    (BinaryType(), pa.binary(), b"\0\1", b"\xfe\xff", None),
    (FixedType(3), pa.binary(3), b"\0\1\2", b"\xfe\xff\xff", None),
    (UUIDType(), pa.uuid(), U1.bytes, U2.bytes, None),
    (UUIDType(), pa.binary(16), U1.bytes, U2.bytes, None),
]


@pytest.mark.parametrize(("target", "arrow", "least", "greatest", "convert"), TYPES, ids=lambda value: str(value)[:20])
@pytest.mark.parametrize("options", [{}, {"use_dictionary": False, "version": "2.6"}])
def test_bounds_are_encoded_as_pyiceberg_does(
    target: PrimitiveType, arrow: pa.DataType, least: Any, greatest: Any, convert: Any, options: dict[str, Any]
) -> None:
    low, high = (convert(least), convert(greatest)) if convert else (least, greatest)
    footer = one_column(arrow, [low, None], [None], [high, low], [high], **options)
    assert bounds(footer, target) == (to_bytes(target, least), to_bytes(target, greatest))
    assert bounds(footer, target, "full") == (to_bytes(target, least), to_bytes(target, greatest))
    assert bounds(footer, target, "counts") == (None, None)


@pytest.mark.parametrize("values", [(0, 2**128 - 1), (0, 2**63), (2**64, 2**65), (2**127 + 5, 2**128 - 1)])
def test_uuid_bounds_that_java_takes_for_another_range_are_left_out(values: tuple[int, int]) -> None:
    octets = [uuid.UUID(int=value).bytes for value in values]
    assert bounds(one_column(pa.uuid(), octets), UUIDType()) == (None, None)
    assert bounds(one_column(pa.uuid(), octets[:1], octets[1:]), UUIDType()) == (None, None)
    assert bounds(one_column(pa.uuid(), octets[:1]), UUIDType()) == (octets[0], octets[0])


@pytest.mark.parametrize(("precision", "scale"), [(4, 2), (9, 0), (18, 3), (19, 2), (38, 10), (38, 38)])
@pytest.mark.parametrize("as_integer", [False, True])
def test_decimals_in_every_storage(precision: int, scale: int, as_integer: bool) -> None:
    nines = (9,) * precision
    values = [
        Decimal((1, nines, -scale)),
        Decimal((0, (1, 2, 8), -scale)),
        Decimal((1, (1, 2, 8), -scale)),
        Decimal((0, nines, -scale)),
        Decimal((0, (0,), -scale)),
    ]
    kind = DecimalType(precision, scale)
    footer = one_column(pa.decimal128(precision, scale), values[:2], values[2:], store_decimal_as_integer=as_integer)
    assert bounds(footer, kind) == (to_bytes(kind, values[0]), to_bytes(kind, values[3]))
    small = one_column(pa.decimal128(precision, scale), values[1:3], store_decimal_as_integer=as_integer)
    assert bounds(small, kind) == (b"\x80", b"\x00\x80")
    wider = DecimalType(38, scale)
    assert bounds(footer, wider) == bounds(footer, kind)
    assert bounds(footer, DecimalType(38, (scale + 1) % 38)) == (None, None)


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_timestamps_of_other_units_widen_outwards(unit: str) -> None:
    per_micro = {"ms": 1000, "us": 1, "ns": 0.001}[unit]
    raw = pa.array([-1001, 1001], pa.int64()).cast(pa.timestamp(unit))
    schema = pa.schema([with_id("c", pa.timestamp(unit), 1)])
    footer = footer_of(parquet_bytes(pa.table([raw], schema=schema)))
    low, high = bounds(footer, TimestampType())
    assert low is not None and high is not None
    assert low == to_bytes(LongType(), math.floor(-1001 * per_micro))
    assert high == to_bytes(LongType(), math.ceil(1001 * per_micro))


def test_int96_and_foreign_types_have_no_bounds() -> None:
    stamps = [dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)]
    footer = one_column(pa.timestamp("ns"), stamps, use_deprecated_int96_timestamps=True)
    assert bounds(footer, TimestampType()) == (None, None)
    assert bounds(one_column(pa.uint32(), [1, 2**32 - 1]), LongType()) == (None, None)
    assert bounds(one_column(pa.int64(), [1, 2]), TimestampType()) == (None, None)
    assert bounds(one_column(pa.int64(), [1, 2]), IntegerType()) == (None, None)
    assert bounds(one_column(pa.date32(), [dt.date(2020, 1, 1)]), TimestampType()) == (None, None)


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_and_their_odd_values(kind: str) -> None:
    arrow = pa.float32() if kind == "float" else pa.float64()
    target: PrimitiveType = FloatType() if kind == "float" else DoubleType()
    minus_zero, zero = to_bytes(target, -0.0), to_bytes(target, 0.0)
    assert bounds(one_column(arrow, [0.0]), target) == (minus_zero, zero)
    assert bounds(one_column(arrow, [-0.0]), target) == (minus_zero, zero)
    assert bounds(one_column(arrow, [1.5, math.nan, 2.5]), target) == (to_bytes(target, 1.5), to_bytes(target, 2.5))
    # Other writers keep the zero that they happen to see.
    kept = edited(one_column(arrow, [0.0]), lambda s: s.replaced({6: (BINARY, zero), 5: (BINARY, minus_zero)}))
    assert bounds(kept, target) == (minus_zero, zero)
    nan = to_bytes(target, math.nan)
    assert bounds(edited(kept, lambda s: s.replaced({5: (BINARY, nan)})), target) == (None, None)
    # A row group of nothing but NaN states no bounds, so the column has none.
    assert bounds(one_column(arrow, [1.5], [math.nan]), target) == (None, None)


def edited(footer: ParquetFooter, change: Callable[[Struct], Struct | None], last_only: bool = True) -> ParquetFooter:
    """The footer with the statistics of its (last) chunk changed."""
    groups = list(footer.tree.elements(4, STRUCT) or ())
    for place in range(len(groups) - 1 if last_only else 0, len(groups)):
        chunk = next(iter(groups[place].elements(1, STRUCT) or ()))
        meta = chunk.need(3, STRUCT)
        statistics = change(meta.need(12, STRUCT))
        meta = meta.replaced({12: None if statistics is None else (STRUCT, statistics)})
        chunks = ThriftList(STRUCT, [chunk.replaced({3: (STRUCT, meta)})])
        groups[place] = groups[place].replaced({1: (LIST, chunks)})
    return parse_footer(write_struct(footer.tree.replaced({4: (LIST, ThriftList(STRUCT, groups))})))


def test_a_row_group_that_states_no_bounds_takes_them_from_the_column() -> None:
    footer = one_column(pa.int64(), [1, None], [5, 9])
    assert bounds(edited(footer, lambda s: s.replaced({1: None, 2: None, 5: None})), LongType()) == (None, None)
    assert bounds(edited(footer, lambda s: None), LongType()) == (None, None)
    # A value above 4 KB has no statistics in pyarrow's files.
    text = one_column(pa.string(), ["a"], ["z" * 5000])
    assert bounds(text, StringType()) == (None, None)
    nulls = one_column(pa.int64(), [None, None], [5, 9])
    assert bounds(nulls, LongType()) == (to_bytes(LongType(), 5), to_bytes(LongType(), 9))


def test_deprecated_statistics_count_for_signed_numbers_only() -> None:
    def deprecated(s: Struct) -> Struct:
        return s.replaced({1: s.fields[5], 2: s.fields[6], 5: None, 6: None})

    numbers = edited(one_column(pa.int64(), [-3, 5]), deprecated)
    assert bounds(numbers, LongType()) == (to_bytes(LongType(), -3), to_bytes(LongType(), 5))
    assert bounds(edited(one_column(pa.string(), ["a"]), deprecated), StringType()) == (None, None)
    plain = one_column(pa.string(), ["a"])
    unordered = parse_footer(write_struct(plain.tree.replaced({7: None})))
    assert bounds(unordered, StringType()) == (None, None)
    strange_order = ThriftList(STRUCT, [Struct({7: (STRUCT, Struct({}))})])
    assert bounds(parse_footer(write_struct(plain.tree.replaced({7: (LIST, strange_order)}))), StringType()) == (
        None,
        None,
    )


def test_statistics_cut_short_by_the_writer() -> None:
    text = one_column(pa.string(), ["abcdef", "xyz"])
    cut = edited(
        text,
        lambda s: s.replaced({6: (BINARY, b"abc"), 8: (FALSE, False), 5: (BINARY, b"y"), 7: (FALSE, False)}),
    )
    assert bounds(cut, StringType()) == (b"abc", b"y")
    # Cut inside a character: what is left of it still bounds.
    inside = edited(text, lambda s: s.replaced({6: (BINARY, b"ab\xc3"), 5: (BINARY, b"xy\xc3")}))
    assert bounds(inside, StringType()) == (b"ab", b"xz")
    number = one_column(pa.decimal128(20, 0), [Decimal(300), Decimal(400)])
    short = edited(number, lambda s: s.replaced({7: (FALSE, False)}))
    assert bounds(short, DecimalType(20, 0)) == (None, None)
    wrong_size = edited(one_column(pa.int64(), [1, 2]), lambda s: s.replaced({6: (BINARY, b"\0\0")}))
    assert bounds(wrong_size, LongType()) == (None, None)
    crossed = edited(one_column(pa.int64(), [1, 2]), lambda s: s.replaced({6: (BINARY, b"\x09" + b"\0" * 7)}))
    assert bounds(crossed, LongType()) == (None, None)


@pytest.mark.parametrize(
    ("value", "length", "expected"),
    [
        ("abcd", 4, "abcd"),
        ("abcd", 3, "abd"),
        ("a\U0010ffff!", 2, "b"),
        ("\U0010ffff\U0010ffff!", 2, None),
        ("\ud7ff!", 1, "\ue000"),
        ("a\ud7ff!", 2, "a\ue000"),
        ("日本語の文字列です長い長い長い長い", 3, "日本誟"),
        ("", 1, ""),
    ],
)
def test_upper_bounds_of_strings(value: str, length: int, expected: str | None) -> None:
    found = upper_string(value.encode(), length)
    assert found == (None if expected is None else expected.encode())


@given(st.text(max_size=30), st.integers(1, 20))
def test_string_bounds_hold(value: str, length: int) -> None:
    raw = value.encode()
    assert lower_string(raw, length) <= raw
    assert len(lower_string(raw, length).decode()) <= length
    upper = upper_string(raw, length)
    assert upper is None or (raw <= upper and len(upper.decode()) <= length)
    if upper is None:
        assert value[:length] == "\U0010ffff" * length


@given(st.binary(max_size=40), st.integers(1, 20))
def test_arbitrary_bytes_are_bounded(raw: bytes, length: int) -> None:
    assert lower_string(raw, length) <= raw
    for upper in (upper_string(raw, length), upper_binary(raw, length)):
        assert upper is None or raw <= upper
    if upper_binary(raw, length) is None:
        assert raw[:length] == b"\xff" * length


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.none() | st.text(max_size=40) | st.text("\ud7ff\U0010ffff\x00é", max_size=25), max_size=6),
        min_size=1,
        max_size=3,
    )
)
def test_bounds_of_joined_files_enclose_every_value(row_groups: list[list[str | None]]) -> None:
    footer = one_column(pa.string(), *row_groups)
    low, high = bounds(footer, StringType())
    values = [value.encode() for group in row_groups for value in group if value is not None]
    assert all(low is None or low <= value for value in values)
    assert all(high is None or value <= high for value in values)
    assert (low is None) == (not values)


NESTED = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "tags", ListType(8, StringType(), element_required=False), required=False),
    NestedField(
        3, "point", StructType(NestedField(9, "x", DoubleType(), False), NestedField(10, "n", StringType(), False))
    ),
    NestedField(4, "props", MapType(11, StringType(), 12, IntegerType(), value_required=False), required=False),
    NestedField(5, "later", StringType(), required=False),
)


def nested_footer() -> ParquetFooter:
    schema = pa.schema(
        [
            with_id("id", pa.int64(), 1, False),
            with_id("tags", pa.list_(with_id("element", pa.string(), 8)), 2),
            with_id("point", pa.struct([with_id("x", pa.float64(), 9), with_id("n", pa.string(), 10)]), 3),
            with_id("props", pa.map_(with_id("key", pa.string(), 11, False), with_id("value", pa.int32(), 12)), 4),
            with_id("dropped", pa.string(), 77),
            pa.field("no_id", pa.string()),
        ]
    )
    rows: list[dict[str, Any]] = [
        {
            "id": 1,
            "tags": ["a", None],
            "point": {"x": 2.0, "n": "q"},
            "props": [("k", 1)],
            "dropped": "d",
            "no_id": "n",
        },
        {"id": 2, "tags": None, "point": None, "props": [], "dropped": None, "no_id": None},
        {"id": 3, "tags": [], "point": {"x": None, "n": "r"}, "props": None, "dropped": "d", "no_id": "n"},
    ]
    return footer_of(parquet_bytes(pa.Table.from_pylist(rows, schema=schema), row_group_size=2))


def test_nested_columns_by_field_id() -> None:
    footer = nested_footer()
    metrics = file_metrics(footer, NESTED, {}, {9: 0, 99: 4})
    assert metrics.column_sizes.keys() == {1, 8, 9, 10, 11, 12}
    assert metrics.value_counts == {1: 3, 8: 4, 9: 3, 10: 3, 11: 3, 12: 3}
    assert metrics.null_value_counts == {1: 0, 8: 3, 9: 2, 10: 1, 11: 2, 12: 2}
    assert metrics.nan_value_counts == {9: 0}
    assert metrics.lower_bounds.keys() == metrics.upper_bounds.keys() == {1, 9, 10}
    assert metrics.upper_bounds[10] == b"r"
    assert metrics.split_offsets == tuple(group.start for group in footer.row_groups)
    assert sum(metrics.column_sizes.values()) < sum(group.compressed_bytes for group in footer.row_groups)


def test_a_chunk_without_null_count_leaves_it_out() -> None:
    footer = edited(one_column(pa.int64(), [1], [2]), lambda s: s.replaced({3: None}))
    metrics = file_metrics(footer, Schema(NestedField(1, "c", LongType(), required=False)), {})
    assert metrics.null_value_counts == {}
    assert metrics.value_counts == {1: 2}
    lying = edited(one_column(pa.int64(), [1], [2]), lambda s: s.replaced({3: (I64, 7)}))
    assert file_metrics(lying, Schema(NestedField(1, "c", LongType(), required=False)), {}).null_value_counts == {}


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, {1: TRUNCATED, 8: TRUNCATED, 9: TRUNCATED, 10: TRUNCATED, 11: TRUNCATED, 12: TRUNCATED, 5: TRUNCATED}),
        ({"default": "counts", "column.id": "full"}, {1: FULL, 8: COUNTS, 9: COUNTS, 10: COUNTS, 5: COUNTS}),
        ({"default": "None", "column.point.x": "Truncate(4)"}, {1: NONE, 9: MetricsMode(length=4), 10: NONE}),
        ({"default": "nonsense", "column.id": "truncate(0)"}, {1: TRUNCATED, 9: TRUNCATED}),
        ({"max-inferred-column-defaults": "2"}, {1: TRUNCATED, 5: TRUNCATED, 8: NONE, 9: NONE, 12: NONE}),
        ({"max-inferred-column-defaults": "2", "default": "counts"}, {1: COUNTS, 12: COUNTS}),
        ({"max-inferred-column-defaults": "0", "column.tags.element": "counts"}, {1: NONE, 8: COUNTS}),
    ],
)
def test_metrics_modes(properties: dict[str, str], expected: dict[int, MetricsMode]) -> None:
    modes = column_modes(NESTED, {f"write.metadata.metrics.{key}": value for key, value in properties.items()})
    assert {field_id: modes[field_id] for field_id in expected} == expected


def test_sorted_columns_keep_their_bounds() -> None:
    properties = {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.id": "counts"}
    modes = column_modes(NESTED, properties, sorted_columns=["later", "id"])
    assert (modes[5], modes[1], modes[10]) == (TRUNCATED, COUNTS, NONE)


def test_modes_decide_what_is_kept() -> None:
    metrics = file_metrics(
        nested_footer(),
        NESTED,
        {"write.metadata.metrics.default": "none", "write.metadata.metrics.column.point.n": "counts"},
        {9: 0, 10: 0},
    )
    assert metrics.column_sizes.keys() == {1, 8, 9, 10, 11, 12}
    assert metrics.value_counts == {10: 3}
    assert metrics.nan_value_counts == {10: 0}
    assert metrics.lower_bounds == {}


def test_pyiceberg_still_takes_bounds_from_the_row_groups_that_have_some() -> None:
    """Canary for trap 15: once pyiceberg omits such bounds itself, this fails and our reason to differ is gone."""
    schema = Schema(NestedField(1, "c", StringType(), required=False))
    arrow = pa.schema([with_id("c", pa.string(), 1)])
    data, footer, _ = joined([parquet_bytes(pa.table([[v]], schema=arrow)) for v in ("a", "z" * 5000)])
    theirs = data_file_statistics_from_parquet_metadata(
        pq.ParquetFile(io.BytesIO(data)).metadata,
        compute_statistics_plan(schema, {}),
        parquet_path_to_id_mapping(schema),
    )
    assert theirs.column_aggregates[1].max_as_bytes() == b"a"
    assert bounds(footer, StringType()) == (None, None)

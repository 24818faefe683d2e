"""Files written under one schema and read under another: exact rows for every evolution that Iceberg's spec allows."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
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
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from tests.support.rows_in import job_of, read_rows, read_table, readers, slice_of, task_of, with_id, write_file

UTC = dt.timezone.utc


def optional(field_id: int, name: str, kind: IcebergType, **more: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False, **more)


def required(field_id: int, name: str, kind: IcebergType) -> NestedField:
    return NestedField(field_id, name, kind, required=True)


@dataclass(frozen=True)
class Case:
    """What is in the file, the table's schema, and the rows that must come out; `fits`: may be copied as it is."""

    name: str
    file: Sequence[pa.Field]
    rows: Sequence[tuple[Any, ...]]
    table: Sequence[NestedField]
    expected: Sequence[tuple[Any, ...]]
    fits: bool = False
    write: dict[str, Any] = field(default_factory=dict)


def point(a: pa.DataType, *more: pa.Field) -> pa.DataType:
    return pa.struct([with_id("a", a, 11), *more])


INT_POINT = StructType(optional(11, "a", IntegerType()))
LIST_OF_POINTS = ListType(10, INT_POINT, element_required=False)
TWO_FIELDS = StructType(optional(11, "a", LongType()), optional(12, "b", StringType()))
BEFORE = dt.datetime(1583, 1, 2, 3, 4, 5, 678901)

CASES = [
    Case(
        "as it is",
        [with_id("a", pa.int32(), 1)],
        [(1,), (None,)],
        [optional(1, "a", IntegerType())],
        [(1,), (None,)],
        fits=True,
    ),
    Case("renamed", [with_id("old", pa.int32(), 1)], [(1,)], [optional(1, "new", IntegerType())], [(1,)]),
    Case(
        "dropped and added again under its name",
        [with_id("a", pa.int32(), 1), with_id("b", pa.int32(), 2)],
        [(1, 2)],
        [optional(2, "b", IntegerType()), optional(3, "a", IntegerType())],
        [(2, None)],
    ),
    Case(
        "names swapped",
        [with_id("a", pa.string(), 1), with_id("b", pa.string(), 2)],
        [("x", "y")],
        [optional(1, "b", StringType()), optional(2, "a", StringType())],
        [("x", "y")],
    ),
    Case(
        "reordered",
        [with_id("a", pa.int32(), 1), with_id("b", pa.int32(), 2)],
        [(1, 2)],
        [optional(2, "b", IntegerType()), optional(1, "a", IntegerType())],
        [(2, 1)],
        fits=True,
    ),
    Case(
        "int to long",
        [with_id("a", pa.int32(), 1)],
        [(-(2**31),), (None,)],
        [optional(1, "a", LongType())],
        [(-(2**31),), (None,)],
    ),
    Case(
        "float to double",
        [with_id("a", pa.float32(), 1)],
        [(0.5,), (float("inf"),)],
        [optional(1, "a", DoubleType())],
        [(0.5,), (float("inf"),)],
    ),
    Case(
        "decimal widened",
        [with_id("a", pa.decimal128(4, 2), 1)],
        [(Decimal("-12.34"),), (None,)],
        [optional(1, "a", DecimalType(30, 2))],
        [(Decimal("-12.34"),), (None,)],
    ),
    Case(
        "column added",
        [with_id("a", pa.int32(), 1)],
        [(1,)],
        [optional(1, "a", IntegerType()), optional(2, "b", LIST_OF_POINTS)],
        [(1, None)],
        fits=True,
    ),
    Case(
        "column with a uuid inside added",
        [with_id("a", pa.int32(), 1)],
        [(1,)],
        [
            optional(1, "a", IntegerType()),
            optional(2, "b", StructType(optional(21, "u", UUIDType()))),
            optional(3, "c", ListType(31, UUIDType(), element_required=False)),
        ],
        [(1, None, None)],
        fits=True,
    ),
    Case(
        "required in the table, optional in the file, inside a struct that may be null",
        [with_id("s", point(pa.int32(), with_id("l", pa.list_(with_id("element", pa.int32(), 14)), 13)), 1)],
        [(None,), ({"a": 1, "l": [2]},), ({"a": 3, "l": []},)],
        [
            optional(
                1,
                "s",
                StructType(
                    required(11, "a", IntegerType()),
                    required(13, "l", ListType(14, IntegerType(), element_required=False)),
                ),
            )
        ],
        [(None,), ({"a": 1, "l": [2]},), ({"a": 3, "l": []},)],
    ),
    Case(
        "column added with a default",
        [with_id("a", pa.int32(), 1)],
        [(1,), (2,)],
        [
            optional(1, "a", IntegerType()),
            optional(2, "b", DateType(), initial_default=dt.date(1960, 2, 29)),
            optional(3, "u", UUIDType(), initial_default=uuid.UUID(int=7)),
        ],
        [(1, dt.date(1960, 2, 29), uuid.UUID(int=7)), (2, dt.date(1960, 2, 29), uuid.UUID(int=7))],
    ),
    Case(
        "dropped column left in the file",
        [with_id("a", pa.int32(), 1), with_id("b", pa.int32(), 2)],
        [(1, 2)],
        [optional(1, "a", IntegerType())],
        [(1,)],
    ),
    Case(
        "all columns new",
        [with_id("a", pa.int32(), 1)],
        [(1,), (2,)],
        [optional(2, "b", IntegerType())],
        [(None,), (None,)],
    ),
    Case(
        "struct: widened, dropped, added and reordered below",
        [with_id("s", point(pa.int32(), with_id("x", pa.int32(), 19)), 1)],
        [({"a": 1, "x": 5},), (None,), ({"a": None, "x": None},)],
        [optional(1, "s", StructType(optional(12, "b", StringType()), optional(11, "a2", LongType())))],
        [({"b": None, "a2": 1},), (None,), ({"b": None, "a2": None},)],
    ),
    Case(
        "struct whose children are all new",
        [with_id("s", point(pa.int32()), 1)],
        [({"a": 1},), (None,)],
        [optional(1, "s", StructType(optional(12, "b", StringType())))],
        [({"b": None},), (None,)],
    ),
    Case(
        "field added to a struct in a list",
        [with_id("l", pa.list_(with_id("element", point(pa.int32()), 10)), 1)],
        [(None,), ([],), ([None, {"a": 1}, {"a": None}],)],
        [optional(1, "l", ListType(10, TWO_FIELDS, False))],
        [(None,), ([],), ([None, {"a": 1, "b": None}, {"a": None, "b": None}],)],
    ),
    Case(
        "null and empty lists of structs",
        [with_id("l", pa.list_(with_id("element", point(pa.int32()), 10)), 1)],
        [(None,), ([],), ([None],), ([{"a": None}],)],
        [optional(1, "l", LIST_OF_POINTS)],
        [(None,), ([],), ([None],), ([{"a": None}],)],
        fits=True,
    ),
    Case(
        "null and empty maps of structs",
        [
            with_id(
                "m", pa.map_(with_id("key", pa.int32(), 20, required=True), with_id("value", point(pa.int32()), 10)), 1
            )
        ],
        [(None,), ([],), ([(1, None), (2, {"a": 3})],)],
        [optional(1, "m", MapType(20, LongType(), 10, TWO_FIELDS, value_required=False))],
        [(None,), ([],), ([(1, None), (2, {"a": 3, "b": None})],)],
    ),
    Case(
        "lists of lists",
        [with_id("l", pa.list_(with_id("element", pa.list_(with_id("element", pa.int32(), 11)), 10)), 1)],
        [([[1, None], None, []],), (None,), ([],)],
        [optional(1, "l", ListType(10, ListType(11, LongType(), False), False))],
        [([[1, None], None, []],), (None,), ([],)],
    ),
    Case(
        "required child of an optional struct",
        [with_id("s", pa.struct([with_id("a", pa.string(), 11, required=True)]), 1)],
        [({"a": "x"},), (None,)],
        [optional(1, "s", StructType(required(11, "a", StringType())))],
        [({"a": "x"},), (None,)],
        fits=True,
    ),
    Case(
        "optional in the file, required in the table",
        [with_id("a", pa.int32(), 1)],
        [(1,)],
        [required(1, "a", IntegerType())],
        [(1,)],
    ),
    Case(
        "required in the file, optional in the table",
        [with_id("a", pa.int32(), 1, required=True)],
        [(1,)],
        [optional(1, "a", IntegerType())],
        [(1,)],
        fits=True,
    ),
    Case(
        "times of other units",
        [
            with_id("a", pa.timestamp("ms"), 1),
            with_id("b", pa.timestamp("ms", "UTC"), 2),
            with_id("c", pa.time32("ms"), 3),
        ],
        [(dt.datetime(1960, 1, 1, 0, 0, 0, 1000), dt.datetime(1960, 1, 1, tzinfo=UTC), dt.time(1, 2, 3, 4000))],
        [optional(1, "a", TimestampType()), optional(2, "b", TimestamptzType()), optional(3, "c", TimeType())],
        [(dt.datetime(1960, 1, 1, 0, 0, 0, 1000), dt.datetime(1960, 1, 1, tzinfo=UTC), dt.time(1, 2, 3, 4000))],
    ),
    Case(
        "INT96",
        [with_id("a", pa.timestamp("us"), 1), with_id("b", pa.timestamp("us"), 2)],
        [(BEFORE, BEFORE), (None, None)],
        [optional(1, "a", TimestampType()), optional(2, "b", TimestamptzType())],
        [(BEFORE, BEFORE.replace(tzinfo=UTC)), (None, None)],
        write={"use_deprecated_int96_timestamps": True},
    ),
    Case(
        "zone of the file is only a label",
        [with_id("a", pa.timestamp("us", "Asia/Tokyo"), 1), with_id("b", pa.timestamp("us"), 2)],
        [(dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1))],
        [optional(1, "a", TimestamptzType()), optional(2, "b", TimestamptzType())],
        [(dt.datetime(2020, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, tzinfo=UTC))],
    ),
    Case(
        "Arrow's other layouts",
        [
            with_id("a", pa.large_string(), 1),
            with_id("b", pa.dictionary(pa.int8(), pa.string()), 2),
            with_id("c", pa.large_list(with_id("element", pa.int16(), 10)), 3),
            with_id("d", pa.list_(with_id("element", pa.int32(), 20), 2), 4),
            with_id("e", pa.string_view(), 5),
            with_id("f", pa.null(), 6),
        ],
        [("x", "y", [1, None], [1, 2], "z", None), (None, None, None, None, None, None)],
        [
            optional(1, "a", StringType()),
            optional(2, "b", StringType()),
            optional(3, "c", ListType(10, IntegerType(), False)),
            optional(4, "d", ListType(20, IntegerType(), False)),
            optional(5, "e", StringType()),
            optional(6, "f", LIST_OF_POINTS),
        ],
        [("x", "y", [1, None], [1, 2], "z", None), (None, None, None, None, None, None)],
    ),
    Case(
        "binary read as string",
        [with_id("a", pa.binary(), 1)],
        [(b"abc",)],
        [optional(1, "a", StringType())],
        [("abc",)],
    ),
    Case(
        "bytes of one length in an imported file",
        [with_id("a", pa.binary(3), 1)],
        [(b"abc",), (None,), (b"\0\xff\1",)],
        [optional(1, "a", BinaryType())],
        [(b"abc",), (None,), (b"\0\xff\1",)],
    ),
    Case(
        "names with dots",
        [with_id("a.b", pa.int32(), 1), with_id("a", point(pa.int32()), 2)],
        [(1, {"a": 2})],
        [optional(1, "a.b", IntegerType()), optional(2, "a", INT_POINT)],
        [(1, {"a": 2})],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("dictionaries", [False, True])
def test_evolution(case: Case, dictionaries: bool, tmp_path: Path) -> None:
    path = write_file(tmp_path, case.file, case.rows, **case.write)
    job, task = job_of(Schema(*case.table)), task_of([slice_of(path)])
    assert read_rows(job, task, dictionaries=dictionaries) == list(case.expected)
    (reader,) = readers(job, task)
    assert (reader.fits, reader.no_copy_reason is None) == (case.fits, case.fits), reader.no_copy_reason
    reader.close()


EVERY_TYPE: list[tuple[IcebergType, pa.DataType, list[Any]]] = [
    (BooleanType(), pa.bool_(), [True, None, False]),
    (IntegerType(), pa.int32(), [-(2**31), None, 2**31 - 1]),
    (LongType(), pa.int64(), [-(2**63), None, 2**63 - 1]),
    (FloatType(), pa.float32(), [1.5, None, float("-inf")]),
    (DoubleType(), pa.float64(), [5e-324, None, float("inf")]),
    (DecimalType(9, 2), pa.decimal128(9, 2), [Decimal("-9999999.99"), None, Decimal("0.01")]),
    (DecimalType(18, 0), pa.decimal128(18, 0), [Decimal(-(10**18) + 1), None, Decimal(1)]),
    (
        DecimalType(38, 10),
        pa.decimal128(38, 10),
        [Decimal("1234567890123456789012345678.0123456789"), None, Decimal(0)],
    ),
    (DateType(), pa.date32(), [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    (TimeType(), pa.time64("us"), [dt.time(0), None, dt.time(23, 59, 59, 999999)]),
    (TimestampType(), pa.timestamp("us"), [BEFORE, None, dt.datetime(9999, 12, 31, 23, 59, 59, 999999)]),
    (
        TimestamptzType(),
        pa.timestamp("us", "UTC"),
        [BEFORE.replace(tzinfo=UTC), None, dt.datetime(1970, 1, 1, tzinfo=UTC)],
    ),
    (StringType(), pa.string(), ["", None, "ü\U0001f600\0"]),
    (UUIDType(), pa.uuid(), [uuid.UUID(int=2**128 - 1), None, uuid.UUID(int=0)]),
    (FixedType(3), pa.binary(3), [b"\0\xff\1", None, b"abc"]),
    (BinaryType(), pa.binary(), [b"", None, b"\xff" * 5000]),
]


@pytest.mark.parametrize(("kind", "arrow", "values"), EVERY_TYPE, ids=lambda value: str(value)[:20])
def test_every_type_at_every_level(kind: IcebergType, arrow: pa.DataType, values: list[Any], tmp_path: Path) -> None:
    """As column, in a struct, a list and a map, through a file that may be copied and through one with other names."""
    table = Schema(
        optional(1, "v", kind),
        optional(2, "s", StructType(optional(3, "v", kind))),
        optional(4, "l", ListType(5, kind, element_required=False)),
        optional(6, "m", MapType(7, StringType(), 8, kind, value_required=False)),
    )
    stored = arrow.storage_type if isinstance(arrow, pa.BaseExtensionType) else arrow
    raw = [v.bytes if isinstance(v, uuid.UUID) else v for v in values]
    below = pa.array(raw, stored)
    below = arrow.wrap_array(below) if isinstance(arrow, pa.BaseExtensionType) else below
    fields = [
        with_id("v", arrow, 1),
        with_id("s", pa.struct([with_id("v", arrow, 3)]), 2),
        with_id("l", pa.list_(with_id("element", arrow, 5)), 4),
        with_id("m", pa.map_(with_id("key", pa.string(), 7, required=True), with_id("value", arrow, 8)), 6),
    ]
    columns = [
        below,
        pa.StructArray.from_arrays([below], fields=list(fields[1].type)),
        pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), below, type=fields[2].type),
        pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), pa.array(["x"] * 3), below, type=fields[3].type),
    ]
    expected = [(v, {"v": v}, [v], [("x", v)]) for v in values]
    path = write_file(tmp_path, fields, pa.table(columns, schema=pa.schema(fields)))
    job, task = job_of(table), task_of([slice_of(path)])
    assert read_rows(job, task) == expected
    (reader,) = readers(job, task)
    assert reader.no_copy_reason is None
    reader.close()
    again = tmp_path / "again.parquet"
    pq.write_table(read_table(job, task), again)
    assert read_rows(job, task_of([slice_of(str(again))])) == expected


def test_float_bits_are_kept(tmp_path: Path) -> None:
    """NaN payloads and the sign of zero come out bit for bit."""
    bits = pa.array([0x7FF8000000000001, -1, -(2**63), 0x7FF8DEADBEEF0000], pa.int64())
    path = write_file(tmp_path, [with_id("x", pa.float64(), 1)], pa.table([bits.view(pa.float64())], names=["x"]))
    table = read_table(job_of(Schema(optional(1, "x", DoubleType()))), task_of([slice_of(path)]))
    assert table.column("x").chunk(0).view(pa.int64()).to_pylist() == bits.to_pylist()


REFUSED = [
    ("long as int", pa.int64(), [1], IntegerType(), "is stored as int64, which cannot be read as int32"),
    ("string as int", pa.string(), ["1"], IntegerType(), "is stored as string"),
    ("another scale", pa.decimal128(9, 3), [Decimal("1.000")], DecimalType(9, 2), "cannot be read as decimal128(9, 2)"),
    ("date as timestamp before v3", pa.date32(), [dt.date(2020, 1, 1)], TimestampType(), "is stored as date32"),
    ("struct as int", pa.struct([with_id("a", pa.int32(), 2)]), [{"a": 1}], IntegerType(), "cannot be read as int"),
    ("int as list", pa.int32(), [1], LIST_OF_POINTS, "is stored as int32"),
    (
        "nanoseconds that would be lost",
        pa.timestamp("ns"),
        [pa.scalar(1, pa.timestamp("ns"))],
        TimestampType(),
        "lose data",
    ),
]


@pytest.mark.parametrize(("name", "arrow", "values", "kind", "reason"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_would_change_values_is_refused(
    name: str, arrow: pa.DataType, values: list[Any], kind: IcebergType, reason: str, tmp_path: Path
) -> None:
    path = write_file(tmp_path, [with_id("x", arrow, 1)], [(value,) for value in values])
    with pytest.raises(InputFileError) as caught:
        read_rows(job_of(Schema(optional(1, "x", kind))), task_of([slice_of(path)]))
    assert reason in str(caught.value)
    assert caught.value.path == path


def test_date_is_read_as_timestamp_in_v3(tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("x", pa.date32(), 1)], [(dt.date(1960, 1, 1),)])
    job = job_of(Schema(optional(1, "x", TimestampType())), format_version=3)
    assert read_rows(job, task_of([slice_of(path)])) == [(dt.datetime(1960, 1, 1),)]


def test_required_column_without_value(tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(None,)])
    for table in (Schema(required(1, "a", IntegerType())), Schema(required(2, "b", IntegerType()))):
        with pytest.raises(InputFileError, match="required column"):
            read_rows(job_of(table), task_of([slice_of(path)]))


MAPPING = """[
  {"field-id": 1, "names": ["id", "legacy_id"]},
  {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["x"]}]},
  {"field-id": 4, "names": ["l"], "fields": [{"field-id": 5, "names": ["element"],
     "fields": [{"field-id": 6, "names": ["y"]}]}]},
  {"field-id": 7, "names": ["m"], "fields": [{"field-id": 8, "names": ["key"]}, {"field-id": 9, "names": ["value"]}]}
]"""


def test_name_mapping(tmp_path: Path) -> None:
    """A file without ids is read by name at every level; columns the mapping does not know stay out."""
    fields = [
        pa.field("legacy_id", pa.int32()),
        pa.field("s", pa.struct([pa.field("x", pa.int32()), pa.field("unknown", pa.int32())])),
        pa.field("l", pa.list_(pa.struct([pa.field("y", pa.int32())]))),
        pa.field("m", pa.map_(pa.string(), pa.int32())),
        pa.field("other", pa.int32()),
    ]
    row = (1, {"x": 2, "unknown": 3}, [{"y": 4}, None], [("k", 5)], 6)
    # The list's repeated field is called 'item' in the file; the mapping knows it by the spec's name.
    path = write_file(tmp_path, fields, [row], use_compliant_nested_type=False)
    table = Schema(
        optional(1, "id", LongType()),
        optional(2, "struct", StructType(optional(3, "renamed", IntegerType()))),
        optional(4, "l", ListType(5, StructType(optional(6, "y", IntegerType())), False)),
        optional(7, "m", MapType(8, StringType(), 9, IntegerType(), False)),
        optional(10, "other", IntegerType()),
    )
    job = job_of(table, mapping=MAPPING)
    task = task_of([slice_of(path)])
    assert read_rows(job, task) == [(1, {"renamed": 2}, [{"y": 4}, None], [("k", 5)], None)]
    (reader,) = readers(job, task)
    assert reader.no_copy_reason == "the file carries no field ids"
    reader.close()
    with pytest.raises(InputFileError, match="carry no field ids and the table has no"):
        readers(job_of(table), task)


SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "day"),
    PartitionField(2, 1001, BucketTransform(4), "id_bucket"),
    PartitionField(3, 1002, IdentityTransform(), "kind"),
    spec_id=3,
)


@pytest.mark.parametrize("day", [-3653, dt.date(1960, 1, 1)])
def test_identity_partition_columns_that_are_not_in_the_file(day: object, tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("id", pa.int32(), 2)], [(7,), (8,)])
    table = Schema(optional(1, "day", DateType()), optional(2, "id", IntegerType()), optional(3, "kind", StringType()))
    job = job_of(table, specs=[SPEC])
    task = task_of([slice_of(path, spec_id=3, partition=(day, 2, "a/b"))])
    assert read_rows(job, task) == [(dt.date(1960, 1, 1), 7, "a/b"), (dt.date(1960, 1, 1), 8, "a/b")]
    (reader,) = readers(job, task)
    assert not reader.fits
    reader.close()
    null = task_of([slice_of(path, spec_id=3, partition=(None, 2, None))])
    assert read_rows(job, null) == [(None, 7, None), (None, 8, None)]


def test_a_null_partition_value_is_the_columns_value(tmp_path: Path) -> None:
    """It comes before the default, as in the spec's rules for columns that a file lacks."""
    path = write_file(tmp_path, [with_id("id", pa.int32(), 2)], [(7,)])
    table = Schema(optional(2, "id", IntegerType()), optional(3, "kind", StringType(), initial_default="z"))
    job = job_of(table, specs=[SPEC])
    assert read_rows(job, task_of([slice_of(path, spec_id=3, partition=(1, 2, None))])) == [(7, None)]
    assert read_rows(job, task_of([slice_of(path, spec_id=3, partition=(1, 2, "a"))])) == [(7, "a")]


@pytest.mark.parametrize("value", ["y", None])
def test_an_identity_partition_value_wins_over_the_file(tmp_path: Path, value: str | None) -> None:
    """Iceberg's readers take the partition value, also from a file that holds another one."""
    path = write_file(tmp_path, [with_id("id", pa.int32(), 2), with_id("kind", pa.string(), 3)], [(7, "x"), (8, None)])
    job = job_of(Schema(optional(2, "id", IntegerType()), optional(3, "kind", StringType())), specs=[SPEC])
    task = task_of([slice_of(path, spec_id=3, partition=(None, None, value))])
    assert read_rows(job, task) == [(7, value), (8, value)]


def test_two_columns_with_one_id_are_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("a", pa.int32(), 1), with_id("b", pa.int32(), 1)], [(1, 2)])
    with pytest.raises(InputFileError, match="have the field id 1"):
        readers(job_of(Schema(optional(1, "a", IntegerType()))), task_of([slice_of(path)]))

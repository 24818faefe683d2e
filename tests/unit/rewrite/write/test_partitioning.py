"""Rows spread over partitions: the same partition for a row as Iceberg gives it, for every type and transform."""

from __future__ import annotations

import math
import uuid
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteFailure
from iceberg_compact_sql.rewrite.write.partitioning import PartitioningError, PartitionSplitter
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from tests.support.rewriting import SCHEMA, Bench, local, numbered_rows, outputs, read_back

UTC = timezone.utc
VALUES: list[tuple[IcebergType, list[Any]]] = [
    (BooleanType(), [True, False, None, True]),
    (IntegerType(), [1, -5, None, 7, 1]),
    (LongType(), [1, -5, None, 10**12]),
    (DateType(), [date(1969, 12, 31), date(2024, 2, 29), None, date(1970, 1, 1)]),
    (TimeType(), [time(1, 2, 3, 4), None]),
    (TimestampType(), [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(2024, 1, 1), None]),
    (TimestamptzType(), [datetime(1960, 3, 1, 5, tzinfo=UTC), None, datetime(2024, 1, 1, tzinfo=UTC)]),
    (StringType(), ["héllo wörld", "", None, "😀😀😀😀😀", "a/b=c d%"]),
    (BinaryType(), [b"abcdef", None, b""]),
    (FixedType(4), [b"abcd", None, b"\x00\x00\x00\x00"]),
    (UUIDType(), [uuid.UUID(int=5), None, uuid.UUID(int=2**127 + 3)]),
    (DecimalType(9, 2), [Decimal("-1.23"), Decimal("10.65"), None]),
    (DecimalType(25, 3), [Decimal("-1.230"), Decimal("1234567890123456789.123"), None]),
    (FloatType(), [1.5, None, -0.0, 0.0, math.nan, math.inf]),
    (DoubleType(), [1.5, None, -0.0, 0.0, math.nan, -math.inf]),
]
TRANSFORMS: list[Transform[Any, Any]] = [
    IdentityTransform(),
    BucketTransform(7),
    TruncateTransform(3),
    YearTransform(),
    MonthTransform(),
    DayTransform(),
    HourTransform(),
    VoidTransform(),
]
CASES = [(kind, values, t) for kind, values in VALUES for t in TRANSFORMS if t.can_transform(kind)]


def internal(value: Any) -> Any:
    """A value as Iceberg's transforms take it."""
    if isinstance(value, datetime):
        return datetime_to_micros(value)
    if isinstance(value, date):
        return date_to_days(value)
    return time_to_micros(value) if isinstance(value, time) else value


def stored(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


@pytest.mark.parametrize(("kind", "values", "transform"), CASES, ids=lambda value: str(value)[:40])
def test_every_row_goes_to_the_partition_that_iceberg_gives_it(
    kind: IcebergType, values: list[Any], transform: Transform[Any, Any]
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "x", kind))
    spec = PartitionSpec(PartitionField(2, 1000, transform, "p"), spec_id=1)
    arrow = arrow_schema(schema)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values))), pa.array([stored(value) for value in values], arrow.field(1).type)],
        schema=arrow,
    )
    expected = {}
    for number, value in enumerate(values):
        partition = (transform.transform(kind)(internal(value)),)
        expected.setdefault(exact_partition_key(partition), (partition, []))[1].append(number)
    found = {
        exact_partition_key(partition): (partition, part.column(0).to_pylist())
        for partition, part in PartitionSplitter(schema, spec).split(batch)
    }
    assert set(found) == set(expected)
    for key, (partition, numbers) in expected.items():
        assert repr(found[key][0]) == repr(partition)
        assert found[key][1] == numbers


def test_a_column_inside_a_struct_can_be_the_source() -> None:
    inner = StructType(NestedField(3, "day", DateType()), NestedField(4, "kind", StringType()))
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "at", inner))
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "kind"), spec_id=1)
    values = [{"day": None, "kind": "a"}, None, {"day": None, "kind": "b"}, {"day": None, "kind": "a"}]
    batch = pa.RecordBatch.from_pylist(
        [{"n": number, "at": value} for number, value in enumerate(values)], schema=arrow_schema(schema)
    )
    found = {partition: part.column(0).to_pylist() for partition, part in PartitionSplitter(schema, spec).split(batch)}
    assert found == {("a",): [0, 3], (None,): [1], ("b",): [2]}


def test_a_dropped_source_column_is_refused() -> None:
    spec = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"), spec_id=1)
    with pytest.raises(PartitioningError, match="'gone'"):
        PartitionSplitter(SCHEMA, spec)


def by_name(spec_id: int = 1) -> PartitionSpec:
    return PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "name"),
        PartitionField(1, 1001, BucketTransform(2), "id_bucket"),
        spec_id=spec_id,
    )


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("memory_bytes", [768 * 1024**2, 200 * 1024])
def test_files_of_another_spec_are_spread(tmp_path: Path, threads: int, memory_bytes: int) -> None:
    bench = Bench(tmp_path, SCHEMA, (UNPARTITIONED_PARTITION_SPEC, by_name()))
    for number in range(3):
        bench.add(numbered_rows(1000, first=1000 * number))
    bench.delete(1, [0, 1, 2])
    job = bench.job(threads=threads, memory_bytes=memory_bytes)
    results = bench.rewrite(job, partition=None)
    expected = [row for row in numbered_rows(3000).to_pylist() if row["id"] not in (1000, 1001, 1002)]
    assert read_back(results) == expected
    assert results[0].live_rows == 2997
    bucket = BucketTransform(2).transform(LongType())
    for output in outputs(results):
        assert output.spec_id == 1
        name, number = output.partition
        folder = "null" if name is None else name
        assert f"/data/name={folder}/id_bucket={number}/" in output.path
        for row in pq.ParquetFile(local(output.path)).read().to_pylist():
            assert (row["name"], bucket(row["id"])) == (name, number)
    assert len({output.partition for output in outputs(results)}) == 2 * 98


def test_special_floats_get_partitions_of_their_own(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "value"), spec_id=1)
    bench = Bench(tmp_path, SCHEMA, (UNPARTITIONED_PARTITION_SPEC, spec))
    table = numbered_rows(6)
    values = [0.0, -0.0, math.nan, None, math.nan, -0.0]
    bench.add(table.set_column(2, table.schema.field(2), pa.array(values, pa.float64())))
    results = bench.rewrite(bench.job(), partition=None)
    sizes = {exact_partition_key(output.partition): output.rows for output in outputs(results)}
    assert sizes == {exact_partition_key((v,)): n for v, n in [(0.0, 1), (-0.0, 2), (math.nan, 2), (None, 1)]}


def test_uuid_and_fixed_partitions_have_folders(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", UUIDType()), NestedField(2, "code", FixedType(4)))
    spec = PartitionSpec(
        PartitionField(1, 1000, IdentityTransform(), "id"),
        PartitionField(2, 1001, IdentityTransform(), "code"),
        spec_id=1,
    )
    bench = Bench(tmp_path, schema, (UNPARTITIONED_PARTITION_SPEC, spec))
    key = uuid.UUID(int=2**127 + 3)
    arrow = arrow_schema(schema)
    bench.add(
        pa.Table.from_arrays(
            [pa.array([key.bytes], arrow.field(0).type), pa.array([b"abcd"], pa.binary(4))], schema=arrow
        )
    )
    (output,) = outputs(bench.rewrite(bench.job(), partition=None))
    assert output.partition == (key, b"abcd")
    assert local(output.path).exists()


def test_a_known_partition_is_kept_as_it_is(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "na me/%"), spec_id=0)
    bench = Bench(tmp_path, SCHEMA, (spec,))
    bench.add(numbered_rows(10), partition=("a b/=ü",))
    (output,) = outputs(bench.rewrite(bench.job(), partition=("a b/=ü",)))
    assert output.partition == ("a b/=ü",)
    assert "/data/na+me%2F%25=a+b%2F%3D%C3%BC/" in output.path
    assert local(output.path).exists()


def test_a_spec_that_cannot_be_computed_fails_the_task(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "gone"), spec_id=1)
    bench = Bench(tmp_path, SCHEMA, (UNPARTITIONED_PARTITION_SPEC, spec))
    bench.add(numbered_rows(10))
    job = bench.job()
    (task,) = cut_group(bench.group(job, partition=None), job)
    failure = run_task(job, task)
    assert isinstance(failure, RewriteFailure)
    assert "'gone'" in failure.reason

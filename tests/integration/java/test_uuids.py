"""uuid columns after compaction: Iceberg's Java readers find every value, whatever half of the range it is in."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, NestedField, StringType, StructType, UUIDType

import iceberg_compact_sql
from tests.integration.java.test_compact_table import compact, contents
from tests.support.java import Lake

# Both signs of either half, alone and with the first half in common.
VALUES = [
    uuid.UUID(int=0),
    uuid.UUID("00000000-0000-0000-8000-000000000001"),
    uuid.UUID("11111111-1111-1111-1111-111111111111"),
    uuid.UUID("11111111-1111-1111-ffff-111111111111"),
    uuid.UUID("7fffffff-ffff-ffff-7fff-ffffffffffff"),
    uuid.UUID("80000000-0000-0000-0000-000000000000"),
    uuid.UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"),
    uuid.UUID("019a0000-0000-7000-8000-000000000001"),
    uuid.UUID(int=2**128 - 1),
]


@pytest.fixture(autouse=True)
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "u", UUIDType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "v", UUIDType(), required=False)), required=False),
    NestedField(5, "pad", StringType(), required=False),
)


def append(lake: Lake, spec: PartitionSpec, layout: list[list[uuid.UUID]]) -> None:
    """One file for each list of values, written by Java out of a staged table of pyiceberg's."""
    lake.catalog.create_table(
        "db.t", SCHEMA, partition_spec=spec, properties={"write.parquet.compression-codec": "zstd"}
    )
    for number, values in enumerate(layout):
        ids = pa.array([number * 100 + i for i in range(len(values))], pa.int32())
        octets = pa.array([value.bytes for value in values], pa.binary(16))
        uuids = pa.ExtensionArray.from_storage(pa.uuid(), octets)
        nested = pa.StructArray.from_arrays([uuids], fields=[pa.field("v", pa.uuid())])
        rows = pa.table({"id": ids, "u": uuids, "s": nested, "pad": pa.array(["x" * 50] * len(values))})
        staged = lake.catalog.create_table("db.staged", SCHEMA)
        staged.append(rows)
        lake.sql(f"INSERT INTO {lake.full('db.t')} SELECT /*+ COALESCE(1) */ * FROM {lake.full('db.staged')}")
        lake.catalog.drop_table("db.staged")


def every_value_is_found(lake: Lake, layout: list[list[uuid.UUID]]) -> None:
    name = lake.full("db.t")
    expected: dict[uuid.UUID, int] = {}
    for value in [value for values in layout for value in values]:
        expected[value] = expected.get(value, 0) + 1
    for value, count in expected.items():
        for test in (f"u = '{value}'", f"u IN ('{value}')", f"s.v = '{value}'", f"u >= '{value}' AND u <= '{value}'"):
            assert lake.sql(f"SELECT count(*) FROM {name} WHERE {test}").first()[0] == count, test


LAYOUTS = {
    "spread": [VALUES, VALUES[::2], VALUES[1::2]],
    "a value each": [[value] for value in VALUES],
    "halves": [sorted(VALUES)[:6], sorted(VALUES)[6:]],
}


@pytest.mark.parametrize("way", ["copy", "decode"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_every_uuid_is_found_after_compaction(lake: Lake, layout: str, way: str) -> None:
    append(lake, PartitionSpec(), LAYOUTS[layout])
    before = contents(lake)
    extra = "min_input_files => 2, " + ("copy_min_row_group_size => '1B'" if way == "copy" else "copy => 'never'")
    done = compact(lake, extra=extra)
    assert done["added_data_files_count"] == 1
    assert (done["copied_row_groups_count"] > 0) is (way == "copy")
    assert contents(lake) == before
    every_value_is_found(lake, LAYOUTS[layout])
    [file] = lake.sql(f"SELECT null_value_counts, lower_bounds FROM {lake.full('db.t')}.files").collect()
    assert file[0][2] == 0, "counts stay"
    assert 2 not in file[1], "bounds go"


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(3)], ids=str)
def test_every_uuid_is_found_as_a_partition_source(lake: Lake, transform: Any) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, transform, "part"))
    layout = [VALUES, VALUES]
    append(lake, spec, layout)
    before = contents(lake)
    compact(lake, extra="min_input_files => 2")
    lake.spark.sql(f"CALL rewrite_manifests('{lake.full('db.t')}')").collect()
    assert contents(lake) == before
    every_value_is_found(lake, layout)


def test_bounds_of_one_value_stay(lake: Lake) -> None:
    layout = [[VALUES[6]] * 3] * 2
    append(lake, PartitionSpec(), layout)
    compact(lake, extra="min_input_files => 2")
    [file] = lake.sql(f"SELECT lower_bounds, upper_bounds FROM {lake.full('db.t')}.files").collect()
    assert file[0][2] == file[1][2] == VALUES[6].bytes
    every_value_is_found(lake, layout)

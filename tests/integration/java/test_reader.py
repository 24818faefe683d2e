"""Files and deletes that Iceberg's Java library wrote: our reader's rows are those that Java reads."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import FixedType, NestedField, TimeType, UUIDType

from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask
from iceberg_compact_sql.table.inventory import read_inventory
from tests.support.java import Lake
from tests.support.rows_in import job_of, read_table, readers, slice_of, task_of

Rows = list[tuple[Any, ...]]


def task_for(lake: Lake, name: str) -> tuple[RewriteJob, RewriteTask]:
    """All live files of a table with the deletes that apply to each."""
    table = lake.load(name)
    inventory = read_inventory(table, "main")
    deletes = list(inventory.deletes)
    numbers = {(delete.path, delete.content_offset): i for i, delete in enumerate(deletes)}
    slices = [
        slice_of(
            file.path,
            [numbers[(delete.path, delete.content_offset)] for delete in inventory.deletes_for(file)],
            spec_id=file.spec_id,
            partition=file.partition,
            sequence_number=file.sequence_number,
        )
        for file in inventory.files
    ]
    job = job_of(table.schema(), specs=list(table.specs().values()), format_version=table.format_version)
    return job, task_of(slices, deletes)


def ours(lake: Lake, name: str) -> Rows:
    job, task = task_for(lake, name)
    return sorted(
        (
            tuple(plain(value) for value in row.values())
            for row in read_table(job, task, dictionaries=True).to_pylist(maps_as_pydicts="strict")
        ),
        key=repr,
    )


def java(lake: Lake, name: str) -> Rows:
    return sorted((tuple(plain(value) for value in row) for row in lake.rows(name)), key=repr)


def plain(value: Any) -> Any:
    """One Python form for what Spark and Arrow hand out for the same value."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "asDict"):
        return {key: plain(item) for key, item in value.asDict().items()}
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None)
    return value


def reasons(lake: Lake, name: str) -> list[str | None]:
    found = []
    for reader in readers(*task_for(lake, name)):
        with reader:
            found.append(reader.no_copy_reason)
    return found


COLUMNS = """b BOOLEAN, i INT, l BIGINT, f FLOAT, d DOUBLE, c9 DECIMAL(9,2), c18 DECIMAL(18,3), c38 DECIMAL(38,10),
  day DATE, ts TIMESTAMP_NTZ, tz TIMESTAMP, s STRING, x BINARY, st STRUCT<a: INT, n: STRUCT<z: STRING>>,
  li ARRAY<STRUCT<a: INT, t: STRING>>, m MAP<STRING, ARRAY<INT>>"""

VALUES = """
  (true, -2147483648, 9223372036854775807, CAST('NaN' AS FLOAT), CAST('-0.0' AS DOUBLE), -1234567.89, 1.001, 1.5,
   DATE'1583-01-01', TIMESTAMP_NTZ'1583-01-01 00:00:00.000001', TIMESTAMP'1969-12-31 23:59:59.999999', '', X'',
   named_struct('a', 1, 'n', named_struct('z', 'q')), array(named_struct('a', 1, 't', 'x'), NULL),
   map('k', array(1, NULL))),
  (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
  (false, 1, 2, CAST(0.5 AS FLOAT), CAST('Infinity' AS DOUBLE), 0.01, -999999999999999.999, -1.0000000001,
   DATE'9999-12-31', TIMESTAMP_NTZ'2020-01-01 00:00:00', TIMESTAMP'2020-06-01 12:00:00', 'ü', X'00FF',
   named_struct('a', CAST(NULL AS INT), 'n', CAST(NULL AS STRUCT<z: STRING>)), array(), map())"""


def test_every_type_and_every_evolution(lake: Lake) -> None:
    """Each step leaves files of one more schema behind; those that need no change may be copied."""
    lake.sql(f"CREATE TABLE {{lake}}.db.t ({COLUMNS}) USING iceberg")
    name = "db.t"
    lake.sql(f"INSERT INTO {{lake}}.db.t SELECT * FROM VALUES {VALUES}").collect()
    assert repr(ours(lake, name)) == repr(java(lake, name))
    assert set(reasons(lake, name)) == {None}
    steps = [
        "ADD COLUMN added INT",
        "ALTER COLUMN i TYPE BIGINT",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN c9 TYPE DECIMAL(20,2)",
        "RENAME COLUMN s TO text",
        "ADD COLUMN li.element.more ARRAY<STRUCT<deep: INT>>",
        "ADD COLUMN st.n.y INT FIRST",
        "DROP COLUMN st.a",
        "ALTER COLUMN st.n.z FIRST",
        "DROP COLUMN l",
        "ADD COLUMN l STRING FIRST",
        "ALTER COLUMN d AFTER l",
    ]
    for number, step in enumerate(steps):
        lake.sql(f"ALTER TABLE {{lake}}.db.t {step}")
        found = reasons(lake, name)
        if number == 0:
            assert set(found) == {None}, "one ADD COLUMN must not switch copying off"
        elif number == 1:
            assert set(found) == {"column 'i' is stored as INT32 (None), not as long"}
        assert repr(ours(lake, name)) == repr(java(lake, name)), step
    lake.sql("INSERT INTO {lake}.db.t SELECT * FROM {lake}.db.t").collect()
    assert repr(ours(lake, name)) == repr(java(lake, name))
    assert None in reasons(lake, name)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_deletes_of_every_format(lake: Lake, file_format: str) -> None:
    """Position and equality deletes with keys of several types, nulls among them, and deletes of several ages."""
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT, k STRING, x DOUBLE, day DATE) USING iceberg")
    insert = """INSERT INTO {lake}.db.t SELECT id, IF(id % 5 = 0, NULL, CONCAT('k', id % 7)),
        IF(id % 3 = 0, CAST('NaN' AS DOUBLE), id / 2), DATE_ADD(DATE'1960-01-01', CAST(id % 4 AS INT))
        FROM range(0, 60, 1, 1)"""
    lake.sql(insert).collect()
    (path,) = lake.data_paths("db.t")
    lake.position_delete("db.t", [(path, 7), (path, 58)], file_format=file_format)
    lake.equality_delete("db.t", ["id"], [(3,), (4,)], file_format=file_format)
    lake.sql(insert).collect()
    lake.equality_delete(
        "db.t", ["k", "day"], [(None, dt.date(1960, 1, 1)), ("k2", dt.date(1960, 1, 3))], file_format=file_format
    )
    lake.equality_delete("db.t", ["x"], [(float("nan"),), (11.0,)], file_format=file_format)
    expected = java(lake, "db.t")
    assert 0 < len(expected) < 100
    assert repr(ours(lake, "db.t")) == repr(expected)
    lake.sql("ALTER TABLE {lake}.db.t RENAME COLUMN k TO key")
    lake.sql(insert).collect()
    assert repr(ours(lake, "db.t")) == repr(java(lake, "db.t"))


def test_signed_zero_is_its_own_key(lake: Lake) -> None:
    """What our keys take for equal is what Java takes for equal."""
    lake.sql("CREATE TABLE {lake}.db.t (id INT, x DOUBLE) USING iceberg")
    lake.sql(
        "INSERT INTO {lake}.db.t VALUES (1, CAST('-0.0' AS DOUBLE)), (2, 0.0), (3, CAST('NaN' AS DOUBLE)), (4, NULL)"
    ).collect()
    for key in (0.0, -0.0, float("nan"), None):
        lake.equality_delete("db.t", ["x"], [(key,)])
        assert repr(ours(lake, "db.t")) == repr(java(lake, "db.t"))
    assert ours(lake, "db.t") == []


def test_deletion_vectors(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg"
        " TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')"
    )
    for first in (0, 100):
        lake.sql(f"INSERT INTO {{lake}}.db.t SELECT id FROM range({first}, {first + 100}, 1, 1)").collect()
    lake.sql("DELETE FROM {lake}.db.t WHERE id % 7 = 0").collect()
    lake.sql("DELETE FROM {lake}.db.t WHERE id > 150").collect()
    _, task = task_for(lake, "db.t")
    assert {delete.kind.value for delete in task.deletes} == {"vector"}
    assert ours(lake, "db.t") == java(lake, "db.t")


def test_types_that_spark_does_not_write(lake: Lake) -> None:
    """uuid, fixed and time as pyiceberg writes them; the file may be copied."""
    schema = Schema(
        NestedField(1, "u", UUIDType(), required=False),
        NestedField(2, "f", FixedType(3), required=False),
        NestedField(3, "t", TimeType(), required=False),
    )
    table = lake.catalog.create_table("db.t", schema)
    rows = pa.table(
        {
            "u": pa.array([uuid.UUID(int=2**127).bytes, None], pa.binary(16)).cast(pa.uuid()),
            "f": pa.array([b"\0\xff1", None], pa.binary(3)),
            "t": pa.array([dt.time(23, 59, 59, 999999), None], pa.time64("us")),
        }
    )
    table.append(rows)
    assert ours(lake, "db.t") == sorted(
        [(uuid.UUID(int=2**127), b"\0\xff1", dt.time(23, 59, 59, 999999)), (None, None, None)], key=repr
    )
    assert reasons(lake, "db.t") == [None]

"""The kit itself: what Java writes is what we read, and the other way round."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.java import Lake
from tests.support.s3 import S3Server


def test_java_and_pyiceberg_share_a_table(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.events (id BIGINT, kind STRING) USING iceberg")
    lake.sql("INSERT INTO {lake}.db.events VALUES (1, 'a'), (2, 'b')")
    lake.load("db.events").append(pa.table({"id": [3], "kind": ["c"]}))
    assert lake.rows("db.events", order_by="id") == [(1, "a"), (2, "b"), (3, "c")]
    assert [row["record_count"] for row in lake.files("db.events")] != []


def test_equality_deletes_written_by_java(lake: Lake) -> None:
    lake.sql(
        "CREATE TABLE {lake}.db.e (id BIGINT, day DATE, kind STRING) USING iceberg PARTITIONED BY (kind) "
        "TBLPROPERTIES ('format-version'='2')"
    )
    lake.sql(
        "INSERT INTO {lake}.db.e VALUES "
        "(1, DATE'2026-01-01', 'a'), (2, DATE'2026-01-02', 'a'), (1, DATE'2026-01-01', 'b')"
    )
    path = lake.equality_delete("db.e", ["id", "day"], [(1, dt.date(2026, 1, 1))], partition="kind=a")
    assert lake.rows("db.e", order_by="kind") == [(2, dt.date(2026, 1, 2), "a"), (1, dt.date(2026, 1, 1), "b")]
    assert [row["equality_ids"] for row in lake.files("db.e") if row["file_path"] == path] == [[1, 2]]


def test_position_deletes_written_by_java(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.p (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    lake.sql("INSERT INTO {lake}.db.p SELECT /*+ COALESCE(1) */ id FROM range(0, 5)")
    (path,) = lake.data_paths("db.p")
    lake.position_delete("db.p", [(path, 3), (path, 0)])
    assert lake.rows("db.p", order_by="id") == [(1,), (2,), (4,)]


def test_a_position_delete_of_an_unknown_file_is_refused(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.p (id BIGINT) USING iceberg")
    with pytest.raises(ValueError, match="not live data files"):
        lake.position_delete("db.p", [("file:/nowhere.parquet", 0)])


def test_deletes_on_a_branch(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.b (id BIGINT) USING iceberg")
    lake.sql("INSERT INTO {lake}.db.b VALUES (1), (2)")
    lake.sql("ALTER TABLE {lake}.db.b CREATE BRANCH dev")
    lake.equality_delete("db.b", ["id"], [(1,)], branch="dev")
    assert lake.rows("db.b", order_by="id") == [(1,), (2,)]
    assert lake.rows("db.b", branch="dev") == [(2,)]


def test_the_session_writes_nothing_into_the_working_tree(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg")
    for leftover in ("derby.log", "metastore_db", "spark-warehouse", "artifacts"):
        assert not Path(leftover).exists()


def test_s3_server_takes_a_file(s3_server: S3Server) -> None:
    from pyiceberg.io import load_file_io

    location = f"s3://{s3_server.bucket}/kit/probe"
    io = load_file_io(s3_server.properties, location)
    with io.new_output(location).create() as stream:
        stream.write(b"there")
    with io.new_input(location).open() as stream:
        assert stream.read() == b"there"

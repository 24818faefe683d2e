"""The table functions: the rows of a dry run, composable, and never a change."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

import iceberg_compact_sql
from iceberg_compact_sql import IcebergCompactError
from tests.support.java import Lake

FILES = 6
FIVE_DAYS_AGO = time.time() - 5 * 86_400


@pytest.fixture
def door(lake: Lake) -> Iterator[Lake]:
    """Two tables, one in pieces and one whole, as the current namespace; an old orphan lies in the first."""
    for name, files in (("db.pieces", FILES), ("db.whole", 1)):
        table = lake.catalog.create_table(name, pa.schema([("id", pa.int64()), ("kind", pa.string())]))
        for number in range(files):
            table.append(pa.table({"id": [2 * number, 2 * number + 1], "kind": ["a", "b"]}))
    orphan = lake.folder / "warehouse" / "db" / "pieces" / "data" / "orphan.parquet"
    orphan.write_bytes(b"left behind")
    os.utime(orphan, (FIVE_DAYS_AGO, FIVE_DAYS_AGO))
    iceberg_compact_sql.register(lake.spark)
    lake.spark.sql(f"USE {lake.name}.db")
    yield lake
    iceberg_compact_sql.unregister(lake.spark)
    lake.spark.sql("USE spark_catalog.default")


def rows(lake: Lake, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in lake.spark.sql(sql).collect()]


def state(lake: Lake) -> tuple[int, list[Path]]:
    files = sorted(path for path in (lake.folder / "warehouse").rglob("*") if path.is_file())
    return len(lake.load("db.pieces").snapshots()), files


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("compact_table", "'pieces', target => '1MB'"),
        ("compact_table", "table => 'pieces', where => 'id < 4', options => map('min-input-files', '2')"),
        ("expire_snapshots", "'pieces', older_than => TIMESTAMP '2999-01-01 00:00:00', retain_last => 2"),
        ("remove_orphans", "'pieces'"),
    ],
)
def test_same_rows_as_the_dry_run(door: Lake, name: str, arguments: str) -> None:
    before = state(door)
    called = door.spark.sql(f"CALL {name}({arguments}, dry_run => true)")
    selected = door.spark.sql(f"SELECT * FROM {name}({arguments})")
    assert [(f.name, f.dataType) for f in selected.schema] == [(f.name, f.dataType) for f in called.schema]
    expected = [tuple(row) for row in called.collect()]
    assert expected
    for _ in range(2):
        assert [tuple(row) for row in selected.collect()] == expected
    assert state(door) == before


def test_a_timestamp_means_the_same_moment_in_a_worker(door: Lake) -> None:
    door.spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        soon = door.spark.sql(
            "SELECT date_format(current_timestamp() + INTERVAL 1 HOUR, 'yyyy-MM-dd HH:mm:ss')"
        ).first()
        arguments = f"'pieces', older_than => TIMESTAMP '{soon[0]}'"
        expected = rows(door, f"CALL expire_snapshots({arguments}, dry_run => true)")
        assert len([row for row in expected if row[0] == "snapshot"]) == FILES - 1
        assert rows(door, f"SELECT * FROM expire_snapshots({arguments})") == expected
    finally:
        door.spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_score_partitions_is_the_same_as_its_call(door: Lake) -> None:
    # The score grows with the hours since compaction, so it is a little larger each time.
    called = door.spark.sql("CALL score_partitions('pieces')").drop("score")
    selected = door.spark.sql("SELECT * FROM score_partitions('pieces')").drop("score")
    assert selected.schema.names == called.schema.names
    assert selected.collect() == called.collect()


def test_score_tables_is_the_same_as_its_call(door: Lake) -> None:
    for pattern in (f"'{door.name}.*'", "'*'", "'db.*'"):
        called = door.spark.sql(f"CALL score_tables({pattern})").drop("score")
        selected = door.spark.sql(f"SELECT * FROM score_tables({pattern})").drop("score")
        assert selected.schema.names == called.schema.names
        assert selected.collect() == called.collect()
    names = rows(door, "SELECT table FROM score_tables() WHERE table LIKE '%.db.%'")
    assert names[:2] == [(f"{door.name}.db.pieces",), (f"{door.name}.db.whole",)]
    with pytest.raises(IcebergCompactError, match="no table matches the pattern 'nothing_"):
        door.spark.sql("SELECT * FROM score_tables('nothing_*')")


def test_composes_with_sql_and_never_changes_anything(door: Lake) -> None:
    before = state(door)
    assert rows(door, "SELECT count(*) FROM compact_table('pieces') WHERE action = 'rewrite'") == [(1,)]
    both = "SELECT sum(s.data_files) FROM score_partitions('pieces') s JOIN score_partitions('whole') w USING (spec_id)"
    assert rows(door, both) == [(FILES,)]
    union = (
        "SELECT data_files FROM score_partitions('pieces') UNION ALL SELECT data_files FROM score_partitions('whole')"
    )
    assert sorted(rows(door, union)) == [(1,), (FILES,)]
    # However it is asked, dry_run => false included, it only plans.
    frame = door.spark.sql("SELECT * FROM compact_table('pieces', target => '1MB', dry_run => false)")
    assert [frame.count(), frame.count(), frame.collect()[0].action] == [1, 1, "rewrite"]
    assert rows(door, "SELECT deleted FROM remove_orphans('pieces')") == [(False,)]
    marked = door.spark.sql("SELECT data_files FROM score_partitions(:table)", args={"table": "pieces"})
    assert marked.collect()[0].data_files == FILES
    assert state(door) == before


def test_arguments_that_spark_works_out_later(door: Lake) -> None:
    before = state(door)
    for moment in ("current_timestamp() + INTERVAL 1 DAY", "to_timestamp('2999-01-01')", "date_add(current_date(), 2)"):
        planned = rows(door, f"SELECT * FROM expire_snapshots('pieces', older_than => {moment}, retain_last => 2)")
        assert [row[0] for row in planned].count("snapshot") == FILES - 2
    each = "SELECT n.name, s.data_files FROM VALUES ('pieces'), ('whole') n(name), LATERAL score_partitions(n.name) s"
    assert sorted(rows(door, each)) == [("pieces", FILES), ("whole", 1)]
    assert state(door) == before


def test_follows_use_and_settings(door: Lake) -> None:
    door.spark.sql("USE spark_catalog.default")
    assert rows(door, f"SELECT data_files FROM score_partitions('{door.full('db.pieces')}')") == [(FILES,)]
    door.spark.conf.set("spark.iceberg_compact_sql.catalog", door.name)
    try:
        assert rows(door, "SELECT data_files FROM score_partitions('db.pieces')") == [(FILES,)]
    finally:
        door.spark.conf.unset("spark.iceberg_compact_sql.catalog")
    door.spark.sql(f"USE {door.name}.db")
    assert rows(door, "SELECT data_files FROM score_partitions('pieces')") == [(FILES,)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM compact_table('pieces', targt => '1MB')", "compact_table: unknown argument 'targt'"),
        ("SELECT * FROM compact_table('pieces', target => '1QB')", "compact_table: argument 'target': '1QB'"),
        ("SELECT * FROM compact_table()", "compact_table: argument 'table' is missing"),
        ("SELECT * FROM range(2) r, LATERAL score_partitions(CAST(r.id AS STRING), targt => 1)", "unknown argument"),
        ("SELECT * FROM score_partitions(TABLE(SELECT 1))", "score_partitions: a table is given as an argument"),
        ("SELECT * FROM score_partitions('missing')", "score_partitions: there is no table 'db.missing'"),
        ("SELECT * FROM compact_table('pieces', branch => 'dev')", "compact_table: branch 'dev' does not exist"),
        ("SELECT * FROM compact_table('pieces', where => 'nope = 1')", "there is no column 'nope'"),
        ("SELECT * FROM remove_orphans('pieces', older_than => '1h')", "less than 24 hours ago"),
        ("SELECT * FROM expire_snapshots('pieces', snapshot_ids => array(5))", "names 5, which the table does not"),
    ],
)
def test_wrong_arguments_are_told_before_anything_runs(door: Lake, sql: str, message: str) -> None:
    with pytest.raises(IcebergCompactError) as raised:
        door.spark.sql(sql)
    assert isinstance(raised.value, AnalysisException)
    assert message in str(raised.value)
    assert "jdbc:" not in str(raised.value) and "Traceback" not in str(raised.value)


def test_errors_of_the_statement_itself_are_sparks(door: Lake) -> None:
    with pytest.raises(AnalysisException) as raised:
        door.spark.sql("SELECT no_such_column FROM score_partitions('pieces')")
    assert not isinstance(raised.value, IcebergCompactError)

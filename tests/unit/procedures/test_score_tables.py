"""score_tables: every table that matches a pattern, worst first, as users call it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import text

from iceberg_compact_sql.doors.session import TABLE_FUNCTIONS
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.procedures.registry import procedures
from tests.support.calls import call
from tests.support.plain import PlainLake, open_plain
from tests.support.planning import HOUR_MS, MB, fake_append

ROWS = pa.table({"id": pa.array([1], pa.int64())})


def make(lake: PlainLake, name: str, *sizes_mb: float, properties: dict[str, str] | None = None) -> None:
    """A table with one file of each size, in the metadata only."""
    namespace = name.rpartition(".")[0]
    lake.catalog.create_namespace_if_not_exists(namespace)
    table = lake.catalog.create_table(name, ROWS.schema, properties=properties or {})
    if sizes_mb:
        fake_append(table, [((), int(size * MB), 1000) for size in sizes_mb])


def names(lake: PlainLake, arguments: str = "") -> list[str]:
    return [row["table"] for row in call(lake, f"CALL score_tables({arguments})")]


def test_the_worst_table_comes_first_by_the_files_that_a_compaction_saves(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.large", *[1] * 160, *[500] * 20)
    make(plain_lake, "db.few", *[1] * 12)
    make(plain_lake, "db.good", 500, 500)
    make(plain_lake, "db.empty")
    rows = call(plain_lake, "CALL score_tables()")
    assert [row["table"] for row in rows] == ["plain.db.large", "plain.db.few", "plain.db.empty", "plain.db.good"]
    large, few, empty, good = rows
    assert (large["data_files"], large["small_files"], large["files_saved"]) == (180, 160, 159)
    assert large["recommendation"].startswith("compact: 160 files")
    assert (few["data_files"], few["data_bytes"], few["average_file_bytes"]) == (12, 12 * MB, MB)
    assert (good["score"], good["files_saved"], good["cost"]) == (0, 0, 0)
    assert good["recommendation"].startswith("healthy: 2 files")
    assert (empty["data_files"], empty["partitions"], empty["score"], empty["snapshots"]) == (0, 0, 0, 0)
    assert empty["recommendation"] == "healthy: no data files"
    assert all(row["error"] is None and row["metadata_bytes"] > 100 for row in rows)


def test_the_score_of_one_unpartitioned_table_is_that_of_its_partition(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t", *[1] * 30)
    now_ms = plain_lake.load("db.t").metadata.last_updated_ms + HOUR_MS
    [table] = call(plain_lake, "CALL score_tables('db.t')", now_ms=now_ms)
    [partition] = call(plain_lake, "CALL score_partitions('db.t')", now_ms=now_ms)
    for column in ("score", "health", "files_saved", "cost", "recommendation", "fragment_ratio", "last_written_at"):
        assert table[column] == partition[column], column


def test_a_table_that_cannot_be_read_comes_first_with_its_error_alone(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.bad", *[1] * 5)
    make(plain_lake, "db.worse", *[1] * 5)
    make(plain_lake, "db.t", *[1] * 200)
    bad = plain_lake.load("db.bad")
    Path(bad.metadata_location.removeprefix("file://")).unlink()
    snapshot = plain_lake.load("db.worse").current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).write_bytes(b"no avro")
    first, second, third = call(plain_lake, "CALL score_tables()")
    assert [row["table"] for row in (first, second, third)] == ["plain.db.bad", "plain.db.worse", "plain.db.t"]
    assert "cannot be loaded" in first["error"] and "manifest list" in second["error"]
    for row in (first, second):
        assert {name for name, value in row.items() if value is not None} == {"table", "error"}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("'*'", ["a.x", "db.events_1", "db.events_2", "db.odd[1]", "db.sub.deep", "db.users"]),
        ("'plain.*'", ["a.x", "db.events_1", "db.events_2", "db.odd[1]", "db.sub.deep", "db.users"]),
        ("'db.*'", ["db.events_1", "db.events_2", "db.odd[1]", "db.sub.deep", "db.users"]),
        ("'events_*'", ["db.events_1", "db.events_2"]),
        ("'plain.db.events_?'", ["db.events_1", "db.events_2"]),
        ("'*.db.users'", ["db.users"]),
        ("'db.sub.*'", ["db.sub.deep"]),
        ("'db.users'", ["db.users"]),
        ("'db.[eu]*s'", ["db.users"]),
        ("'db.odd[1]'", ["db.odd[1]"]),
        ("'d*.users'", ["db.users"]),
    ],
)
def test_patterns(plain_lake: PlainLake, pattern: str, expected: list[str]) -> None:
    for name in ("db.events_1", "db.events_2", "db.users", "db.sub.deep", "a.x"):
        make(plain_lake, name)
    plain_lake.catalog.create_table(("db", "odd[1]"), ROWS.schema)
    shown = [name.removeprefix("plain.").replace("`", "") for name in names(plain_lake, pattern)]
    assert sorted(shown) == expected


def test_views_are_left_out(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t")
    plain_lake.add_view("v")
    assert names(plain_lake) == ["plain.db.t"]
    with pytest.raises(IcebergCompactError, match=r"only views match the pattern 'db.v', such as plain\.db\.v"):
        names(plain_lake, "'db.v'")


def test_max_tables_keeps_the_worst(plain_lake: PlainLake) -> None:
    for name, count in (("db.a", 10), ("db.b", 90), ("db.c", 50)):
        make(plain_lake, name, *[1] * count)
    assert names(plain_lake, "max_tables => 2, max_concurrent => 1") == ["plain.db.b", "plain.db.c"]


def test_the_target_is_the_argument_then_the_maintenance_property_then_the_writers(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.own", *[30] * 8, properties={"iceberg-compact.target": "32MB"})
    make(plain_lake, "db.writers", *[30] * 8, properties={"write.target-file-size-bytes": str(32 * MB)})
    make(plain_lake, "db.wrong", *[30] * 8, properties={"iceberg-compact.target": "no size"})
    rows = {row["table"]: row for row in call(plain_lake, "CALL score_tables()")}
    assert rows["plain.db.own"]["score"] == rows["plain.db.writers"]["score"] == 0
    assert "table property iceberg-compact.target 'no size'" in rows["plain.db.wrong"]["error"]
    saved = {row["table"]: row["files_saved"] for row in call(plain_lake, "CALL score_tables(target => '512MB')")}
    assert saved == {"plain.db.own": 7, "plain.db.writers": 7, "plain.db.wrong": 7}


def test_a_table_with_too_many_snapshots_is_sick_though_its_files_are_fine(
    plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iceberg_compact_sql.plan.table_scores.MANY_SNAPSHOTS", 3)
    make(plain_lake, "db.busy", 500)
    for _ in range(3):
        fake_append(plain_lake.load("db.busy"), [((), 500 * MB, 1000)])
    make(plain_lake, "db.small", *[1] * 5)
    busy, _ = call(plain_lake, "CALL score_tables()")
    assert (busy["table"], busy["snapshots"], busy["files_saved"]) == ("plain.db.busy", 4, 0)
    assert busy["recommendation"].startswith("expire: 4 snapshots, ") and "healthy: 4 files" in busy["recommendation"]
    assert busy["score"] > 0.5


def test_partitions_add_up(plain_lake: PlainLake) -> None:
    schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
    table = plain_lake.catalog.create_table("db.t", schema)
    with table.update_spec() as update:
        update.add_identity("day")
    table.refresh()
    fake_append(table, [((f"d{day}",), MB, 10) for day in range(3) for _ in range(10)] + [(("good",), 500 * MB, 10)])
    [row] = call(plain_lake, "CALL score_tables('db.t')")
    partitions = call(plain_lake, "CALL score_partitions('db.t')")
    assert (row["partitions"], row["data_files"], row["files_saved"]) == (4, 31, 27)
    assert row["cost"] == pytest.approx(sum(partition["cost"] for partition in partitions))
    assert row["recommendation"] == "compact: 3 of 4 partitions, 27 files fewer"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("''", "argument 'pattern': '' is empty"),
        ("'nothing_*'", r"no table matches the pattern 'nothing_\*' in catalog 'plain'\. Write '\*'"),
        ("'nowhere.*'", r"no table matches the pattern 'nowhere\.\*' in catalog 'plain'"),
        ("'db..t'", "which is not a pattern of table names"),
        ("'spark_catalog.*'", "catalog 'spark_catalog' is not an Iceberg catalog"),
        ("'*', max_tables => 0", "must be at least 1"),
        ("'*', max_concurrent => -1", "must be at least 1"),
    ],
)
def test_bad_input(plain_lake: PlainLake, arguments: str, message: str) -> None:
    make(plain_lake, "db.t")
    with pytest.raises(IcebergCompactError, match=message):
        names(plain_lake, arguments)


def test_a_catalog_that_is_down_is_one_sentence(tmp_path: Path) -> None:
    with open_plain(tmp_path / "plain") as lake:
        make(lake, "db.t")
    conf = {
        "spark.sql.catalog.down": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.down.type": "rest",
        "spark.sql.catalog.down.uri": "http://127.0.0.1:9",
    }
    down = PlainLake("down", lake.catalog, lake.folder, conf)
    with pytest.raises(IcebergCompactError, match="catalog 'down' cannot be opened") as raised:
        names(down, "'down.*'")
    assert "\n" not in str(raised.value)


def test_a_database_that_breaks_after_it_was_opened_is_one_sentence(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.t")
    names(plain_lake)
    with plain_lake.catalog.engine.begin() as connection:
        connection.execute(text("ALTER TABLE iceberg_tables RENAME TO hidden"))
    with pytest.raises(IcebergCompactError, match=r"catalog 'plain' cannot be listed .*, so its tables are unknown"):
        names(plain_lake)


def test_the_session_knows_all_table_functions() -> None:
    declared = [procedure.name for procedure in procedures().values() if procedure.table_function]
    assert sorted(declared) == sorted(TABLE_FUNCTIONS)

"""The Python door on a real session that also has Iceberg's jar."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions.captured import AnalysisException as ClassicAnalysisException
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql import IcebergCompactError, events
from iceberg_compact_sql.errors import InvalidArgumentError, NotFoundError, UnsupportedError
from tests.support.java import Lake, open_lake

SMALL_FILES = 6
OURS_COLUMNS, ICEBERGS_COLUMNS = 15, 5


@pytest.fixture
def door(lake: Lake) -> Iterator[Lake]:
    """A lake with `db.t` of small files, and our procedures on its session."""
    fill(lake, "db.t")
    iceberg_compact_sql.register(lake.spark)
    yield lake
    iceberg_compact_sql.unregister(lake.spark)
    lake.spark.sql("USE spark_catalog.default")


def fill(lake: Lake, name: str) -> None:
    table = lake.catalog.create_table(name, pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    for number in range(SMALL_FILES):
        table.append(pa.table({"id": [2 * number, 2 * number + 1], "kind": ["a", "b"]}))


def snapshots(lake: Lake) -> int:
    return len(lake.load("db.t").snapshots())


def test_a_call_runs_once_however_its_result_is_used(door: Lake) -> None:
    points: list[str] = []
    with events.listening(lambda point, facts: points.append(point)):
        result = door.spark.sql(f"CALL compact_table('{door.full('db.t')}', target => '1MB')")
        assert points.count("plan.done") == 1
        [row] = result.collect()
        assert (row.rewritten_data_files_count, row.added_data_files_count, row.rows_count) == (6, 1, 12)
        result.show()
        assert result.union(result).count() == 2
        assert result.join(result.select("snapshot_id"), "snapshot_id").count() == 1
        result.cache().count()
        result.unpersist()
    assert points.count("plan.done") == 1
    assert snapshots(door) == SMALL_FILES + 1
    assert door.load("db.t").metadata.current_snapshot_id == row.snapshot_id
    assert [r[0] for r in door.rows("db.t", order_by="id")] == list(range(12))
    [again] = door.spark.sql(f"CALL compact_table('{door.full('db.t')}', target => '1MB')").collect()
    assert (again.rewritten_data_files_count, again.snapshot_id) == (0, None)


def test_markers_and_formatting(door: Lake) -> None:
    spark, name = door.spark, door.full("db.t")
    expected = [(name, "compact")]

    def scored(frame: Any) -> list[tuple[str, str]]:
        return [(name, row.recommendation.split(":")[0]) for row in frame.collect()]

    named = spark.sql("CALL score_partitions(:table, target => :size)", args={"table": name, "size": "1MB"})
    assert scored(named) == expected
    assert scored(spark.sql("CALL score_partitions(?, target => ?)", args=[name, "1MB"])) == expected
    assert scored(spark.sql("CALL score_partitions({table}, target => '1MB')", table=name)) == expected
    assert scored(spark.sql(sqlQuery=f"-- a note\n/* one */ call `score_partitions`('{name}', '1MB') ;")) == expected


def test_everything_else_goes_to_spark_untouched(door: Lake) -> None:
    spark = door.spark
    assert spark.sql("SELECT 1 AS one").collect()[0].one == 1
    assert spark.sql("SELECT :x + 1 AS y", args={"x": 1}).collect()[0].y == 2
    assert spark.sql("SELECT ? AS y", args=[3]).collect()[0].y == 3
    assert spark.sql("SELECT * FROM {numbers}", numbers=spark.range(3)).count() == 3
    with pytest.raises(AnalysisException) as raised:
        spark.sql("CALL no_such_procedure()")
    assert not isinstance(raised.value, IcebergCompactError)
    assert "Did you mean" not in str(raised.value)
    first = door.load("db.t").history()[0].snapshot_id
    moved = spark.sql(f"CALL {door.name}.system.rollback_to_snapshot('db.t', {first})").collect()
    assert moved[0].current_snapshot_id == first
    assert len(door.rows("db.t")) == 2


@pytest.mark.parametrize(
    ("called", "meant"),
    [
        ("compact_tabel", "compact_table"),
        ("Expire_Snapshot", "expire_snapshots"),
        ("`remove_orphan`", "remove_orphans"),
    ],
)
@pytest.mark.parametrize("catalog", ["spark_catalog", "Iceberg's"])
def test_a_misspelt_procedure_gets_a_suggestion(door: Lake, catalog: str, called: str, meant: str) -> None:
    """Spark's own error, in its class and with its condition, and one line more."""
    if catalog != "spark_catalog":
        door.spark.sql(f"USE {door.name}")
    with pytest.raises(ClassicAnalysisException) as raised:
        door.spark.sql(f"CALL {called}('{door.full('db.t')}', target => '1MB')")
    assert not isinstance(raised.value, IcebergCompactError)
    assert raised.value.getCondition() is not None
    assert f"Did you mean '{meant}'?" in str(raised.value)
    assert snapshots(door) == SMALL_FILES


def test_iceberg_keeps_its_own_qualified_names_unless_takeover(door: Lake) -> None:
    spark = door.spark
    qualified = f"CALL {door.name}.system.rewrite_data_files(table => 'db.t')"
    assert len(spark.sql(qualified).columns) == ICEBERGS_COLUMNS
    assert len(spark.sql(f"CALL rewrite_data_files('{door.full('db.t')}')").columns) == OURS_COLUMNS
    assert len(spark.sql(f"CALL {door.name}.system.compact_table('db.t')").columns) == OURS_COLUMNS
    spark.conf.set("spark.iceberg_compact_sql.takeover", "true")
    try:
        [row] = spark.sql(f"{qualified[:-1]}, dry_run => true)").collect()
        assert row.action == "skip"
        assert len(spark.sql(qualified).columns) == ICEBERGS_COLUMNS
    finally:
        spark.conf.unset("spark.iceberg_compact_sql.takeover")


def test_a_catalog_of_another_kind_keeps_its_procedures(door: Lake) -> None:
    spark = door.spark
    spark.conf.set("spark.sql.catalog.others", "com.example.OthersCatalog")
    try:
        for name in ("rewrite_data_files", "expire_snapshots", "compact_table"):
            with pytest.raises(Exception, match="OthersCatalog") as raised:
                spark.sql(f"CALL others.system.{name}('db.t')")
            assert not isinstance(raised.value, IcebergCompactError)
    finally:
        spark.conf.unset("spark.sql.catalog.others")


def test_names_are_resolved_as_spark_would(door: Lake) -> None:
    spark = door.spark
    with pytest.raises(NotFoundError, match=r"db\.missing"):
        spark.sql(f"CALL score_partitions('{door.full('db.missing')}')")
    spark.sql(f"USE {door.name}")
    assert spark.sql("CALL score_partitions('db.t')").count() == 1
    spark.sql("USE db")
    assert spark.sql("CALL score_partitions('t')").count() == 1
    assert spark.sql("CALL system.score_partitions('`db`.`t`')").count() == 1
    spark.sql("USE spark_catalog.default")
    with pytest.raises(UnsupportedError, match="is not an Iceberg catalog"):
        spark.sql("CALL score_partitions('spark_catalog.db.t')")


def test_new_sessions_have_it_and_unregister_takes_it_back(lake: Lake) -> None:
    fill(lake, "db.t")
    original = SparkSession.sql
    call = f"CALL score_partitions('{lake.full('db.t')}')"
    assert iceberg_compact_sql.register(lake.spark) is lake.spark
    patched = SparkSession.sql
    iceberg_compact_sql.register(lake.spark)
    try:
        assert SparkSession.sql is patched is not original
        assert inspect.signature(patched) == inspect.signature(original)
        other = lake.spark.newSession()
        for key, value in lake.conf.items():
            other.conf.set(key, value)
        assert other.sql(call).count() == 1
        assert other.sql(f"SELECT * FROM score_partitions('{lake.full('db.t')}')").count() == 1
    finally:
        assert iceberg_compact_sql.unregister(lake.spark) is lake.spark
    assert SparkSession.sql is original
    for session in (lake.spark, other):
        for statement in (call, f"SELECT * FROM score_partitions('{lake.full('db.t')}')"):
            with pytest.raises(AnalysisException) as raised:
                session.sql(statement)
            assert not isinstance(raised.value, IcebergCompactError)
    iceberg_compact_sql.unregister(lake.spark)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'{t}', targt => '1MB'", "compact_table: unknown argument 'targt' (line 1, column "),
        ("'{t}', target => '1QB'", "compact_table: argument 'target': '1QB' "),
        ("'{t}', target = '1MB'", "=>"),
        ("'{t}', target => '1MB', '2MB'", "Positional ones go first"),
        ("'{t}', target => '1MB', TARGET => '2MB'", "compact_table: argument 'target' is given twice"),
        ("'{t}', where => 'nope > 1'", "nope"),
        ("'{t}', branch => 'nope'", "nope"),
        ("'{t}', strategy => 'sort'", "strategy 'sort' needs an order"),
        ("'{t}', sort_order => 'nope'", "sort_order is refused: there is no column 'nope'"),
        ("'{t}'", None),
        ("", "compact_table: argument 'table' is missing"),
        ("'nowhere.db.t'", "there is no table 'nowhere.db.t'"),
    ],
)
def test_errors_are_of_the_session_and_change_nothing(door: Lake, arguments: str, message: str | None) -> None:
    door.spark.sql(f"USE {door.name}")
    sql = f"CALL compact_table({arguments.replace('{t}', door.full('db.t'))})"
    if message is None:
        door.spark.sql(sql)
        return
    with pytest.raises(IcebergCompactError) as raised:
        door.spark.sql(sql)
    error = raised.value
    assert isinstance(error, AnalysisException) and isinstance(error, ClassicAnalysisException)
    assert str(error).startswith("compact_table: ") and message in str(error)
    assert error.getCondition().startswith("ICEBERG_COMPACT_") and error.getSqlState()
    assert error.getMessage().startswith(f"[{error.getCondition()}]")
    assert "jdbc:" not in str(error) and "Traceback" not in str(error)
    assert snapshots(door) == SMALL_FILES


def test_the_same_session_reads_on_after_compaction_and_expiry(java_spark: SparkSession, tmp_path: Path) -> None:
    cached = open_lake(java_spark, tmp_path / "cached")
    java_spark.conf.set(f"spark.sql.catalog.{cached.name}.cache-enabled", "true")
    fill(cached, "db.t")
    iceberg_compact_sql.register(java_spark)
    try:
        before = cached.rows("db.t", order_by="id")
        held = java_spark.table(cached.full("db.t"))
        java_spark.sql(f"CALL compact_table('{cached.full('db.t')}', target => '1MB')")
        [row] = java_spark.sql(
            f"CALL expire_snapshots('{cached.full('db.t')}', older_than => current_timestamp(), retain_last => 1)"
        ).collect()
        assert row.deleted_data_files_count == SMALL_FILES and row.failed_deletes_count == 0
        assert cached.rows("db.t", order_by="id") == before
        assert java_spark.table(cached.full("db.t")).count() == len(before)
        assert held.schema == java_spark.table(cached.full("db.t")).schema
    finally:
        iceberg_compact_sql.unregister(java_spark)
        cached.catalog.close()
        for key in cached.conf:
            java_spark.conf.unset(key)


def test_python_twins(door: Lake) -> None:
    name = door.full("db.t")
    twin = iceberg_compact_sql.compact_table
    parameters = list(inspect.signature(twin).parameters)
    assert parameters[:4] == ["spark", "table", "target", "where"]
    assert "target size of the output files" in (twin.__doc__ or "")
    assert "compact_table" in dir(iceberg_compact_sql)
    [planned] = twin(door.spark, name, target="1MB", dry_run=True).collect()
    assert planned.action == "rewrite"
    [row] = twin(door.spark, name, "1MB").collect()
    assert row.added_data_files_count == 1
    with pytest.raises(InvalidArgumentError, match="Did you mean 'target'"):
        twin(door.spark, name, targt="1MB")
    with pytest.raises(ClassicAnalysisException):
        twin(door.spark, name, target=-1)
    with pytest.raises(AttributeError):
        _ = iceberg_compact_sql.compact_everything


def test_help(door: Lake) -> None:
    listed = {row.procedure: row for row in door.spark.sql("CALL help()").collect()}
    assert {"compact_table", "score_partitions", "expire_snapshots", "remove_orphans", "help"} <= set(listed)
    rows = door.spark.sql("CALL help('rewrite_data_files')").collect()
    assert [row.argument for row in rows][:2] == ["table", "target"]
    with pytest.raises(NotFoundError, match="Did you mean 'compact_table'"):
        door.spark.sql("CALL help('compact_tabel')")


def test_settings_that_change_what_a_text_means(door: Lake) -> None:
    spark = door.spark
    settings = {
        "my.procedure": "compact_table",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }
    with pytest.raises(NotFoundError, match=r"no procedure 'a\nb'"):
        spark.sql(r"CALL help('a\nb')")
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        assert spark.sql("CALL help('${my.procedure}')").first().procedure == "compact_table"
        with pytest.raises(InvalidArgumentError, match="argument 'procedure': '' is empty"):
            spark.newSession().sql("CALL help('${my.procedure}')")
        with pytest.raises(NotFoundError, match=r"no procedure 'a\\nb'"):
            spark.sql(r"CALL help('a\nb')")
        spark.sql(f"CALL expire_snapshots('{door.full('db.t')}', TIMESTAMP '2020-01-01', dry_run => true)")
        spark.conf.set("spark.sql.variable.substitute", "false")
        with pytest.raises(NotFoundError, match=r"no procedure '\$\{my.procedure\}'"):
            spark.sql("CALL help('${my.procedure}')")
    finally:
        for key in (*settings, "spark.sql.variable.substitute"):
            spark.conf.unset(key)


def test_notebooks_show_charts_for_scores_and_dry_runs(door: Lake) -> None:
    name = door.full("db.t")
    scores = door.spark.sql(f"CALL score_partitions('{name}')")
    assert "<svg" in scores._repr_html_() and scores.columns[0] == "partition"
    assert "<svg" in door.spark.sql(f"CALL compact_table('{name}', dry_run => true)")._repr_html_()
    # Frames that are made from it are Spark's own, as are other results, and all of them with eager evaluation.
    assert scores.select("partition")._repr_html_() is None
    assert door.spark.sql("CALL help()")._repr_html_() is None
    door.spark.conf.set("spark.sql.repl.eagerEval.enabled", "true")
    try:
        assert "<svg" not in scores._repr_html_()
    finally:
        door.spark.conf.unset("spark.sql.repl.eagerEval.enabled")

"""Calls in Iceberg's form answer as Iceberg's own procedures do, in the same session on twin tables."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import iceberg_compact_sql
from iceberg_compact_sql.procedures.registry import iceberg_names, names
from tests.support.java import Lake

TAKEOVER = "spark.iceberg_compact_sql.takeover"
ENGINE_KEYS = ("engine-name", "engine-version", "app-id", "app-name")
ORPHANS = ("data/left.parquet", "data/a b+c%20d#e.parquet", "metadata/ünï.avro")
Call = Callable[..., DataFrame]


@pytest.fixture
def ours(lake: Lake) -> Iterator[Call]:
    """A function that runs `name(arguments)` in Iceberg's form by our procedures."""
    iceberg_compact_sql.register(lake.spark)

    def run(call: str) -> DataFrame:
        lake.spark.conf.set(TAKEOVER, "true")
        try:
            return lake.sql(f"CALL {lake.name}.system.{call}")
        finally:
            lake.spark.conf.unset(TAKEOVER)

    yield run
    iceberg_compact_sql.unregister(lake.spark)


def theirs(lake: Lake, call: str) -> DataFrame:
    """The answer of Iceberg's own procedure."""
    return lake.sql(f"CALL {lake.name}.system.{call}")


def twins(lake: Lake, *statements: str) -> None:
    """Two tables, `db.theirs` and `db.ours`, with the same history."""
    for name in ("db.theirs", "db.ours"):
        for statement in statements:
            lake.sql(statement, t=lake.full(name))


def fill_with_deletes(lake: Lake, *, partition: str = "") -> None:
    """Twins with a data manifest, and with position deletes in two partitions where there are any."""
    properties = "'format-version'='2', 'write.delete.mode'='merge-on-read', 'write.delete.granularity'='partition'"
    twins(
        lake,
        f"CREATE TABLE {{t}} (id BIGINT, kind STRING, day DATE) USING iceberg {partition} TBLPROPERTIES ({properties})",
        "INSERT INTO {t} SELECT id, concat('k', id % 2), DATE '2026-01-01' FROM range(0, 40, 1, 1)",
        "DELETE FROM {t} WHERE id IN (2, 3)",
        "DELETE FROM {t} WHERE id IN (4, 5)",
    )


def test_parameters_and_columns_are_icebergs(lake: Lake, ours: Call) -> None:
    spark: Any = lake.spark
    gateway = spark.sparkContext._gateway
    identifier = gateway.jvm.org.apache.spark.sql.connector.catalog.Identifier
    namespace = gateway.new_array(gateway.jvm.java.lang.String, 1)
    namespace[0] = "system"
    twins(
        lake, "CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1)", "INSERT INTO {t} VALUES (2)"
    )
    catalog = spark._jsparkSession.sessionState().catalogManager().catalog(lake.name)
    for name in sorted(iceberg_names()):
        declared = names()[name].iceberg
        bound = catalog.loadProcedure(identifier.of(namespace, name)).bind(None)
        assert declared is not None
        assert [parameter.name() for parameter in bound.parameters()] == list(declared.positions), name
        expected, answer = theirs(lake, f"{name}('db.theirs')"), ours(f"{name}('db.ours')")
        assert answer.dtypes == expected.dtypes, name
        if "bytes" not in "".join(answer.columns):
            assert answer.collect() == expected.collect(), name


def test_rewrite_manifests_takes_the_current_spec_by_default(lake: Lake, ours: Call) -> None:
    twins(
        lake,
        "CREATE TABLE {t} (id BIGINT, kind STRING) USING iceberg",
        "INSERT INTO {t} VALUES (1, 'a')",
        "INSERT INTO {t} VALUES (2, 'a')",
        "ALTER TABLE {t} ADD PARTITION FIELD kind",
        "INSERT INTO {t} VALUES (3, 'a')",
        "INSERT INTO {t} VALUES (4, 'b')",
        "INSERT INTO {t} VALUES (5, 'b')",
    )
    for arguments in ("", ", NULL, NULL, array('kind')", ", true, 0"):
        expected = theirs(lake, f"rewrite_manifests('db.theirs'{arguments})").collect()
        assert ours(f"rewrite_manifests('db.ours'{arguments})").collect() == expected, arguments
    manifests = "SELECT partition_spec_id, existing_data_files_count FROM {t}.manifests ORDER BY 1"
    counts = [lake.sql(manifests, t=lake.full(name)).collect() for name in ("db.theirs", "db.ours")]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("partition", ["", "PARTITIONED BY (kind)"])
def test_sort_by_is_refused_where_iceberg_refuses_it(lake: Lake, ours: Call, partition: str) -> None:
    twins(
        lake,
        f"CREATE TABLE {{t}} (id BIGINT, kind STRING) USING iceberg {partition}",
        "INSERT INTO {t} VALUES (1, 'a')",
    )
    for sort_by in ("array()", "array('id')", "array('nope')"):
        with pytest.raises(PySparkException):
            theirs(lake, f"rewrite_manifests(table => 'db.theirs', sort_by => {sort_by})").collect()
        with pytest.raises(PySparkException, match="sort_by"):
            ours(f"rewrite_manifests(table => 'db.ours', sort_by => {sort_by})").collect()
    assert lake.spark.sql(f"CALL rewrite_manifests('{lake.full('db.ours')}', sort_by => array())").collect()


@pytest.mark.parametrize(
    "partition, filters",
    [
        ("PARTITIONED BY (kind)", ("id > 1000", "kind = 'k1' AND id > 1000", "kind = 'k0' OR id > 1000", "kind = 'x'")),
        ("PARTITIONED BY (months(day), kind)", ("day > DATE '2026-01-05' AND kind = 'k1'", "day > DATE '2026-03-01'")),
        ("", ("id > 1000",)),
    ],
)
def test_where_of_position_deletes_uses_partition_columns_only(
    lake: Lake, ours: Call, partition: str, filters: tuple[str, ...]
) -> None:
    fill_with_deletes(lake, partition=partition)
    begin = {name: lake.load(name).metadata.current_snapshot_id for name in ("db.theirs", "db.ours")}
    for where in filters:
        call = "rewrite_position_delete_files('{}', map('rewrite-all', 'true'), \"{}\")"
        [expected] = theirs(lake, call.format("db.theirs", where)).collect()
        [answer] = ours(call.format("db.ours", where)).collect()
        assert answer[:2] == expected[:2], where
        for name, snapshot in begin.items():
            theirs(lake, f"rollback_to_snapshot('{name}', {snapshot})")
    assert lake.rows("db.ours", order_by="id") == lake.rows("db.theirs", order_by="id")


def test_summaries_name_engine_and_application_as_icebergs_do(lake: Lake, ours: Call) -> None:
    fill_with_deletes(lake)

    def engine(name: str) -> dict[str, str]:
        latest = "SELECT summary FROM {t}.snapshots ORDER BY committed_at DESC LIMIT 1"
        [row] = lake.sql(latest, t=lake.full(name)).collect()
        return {key: row.summary[key] for key in ENGINE_KEYS}

    [_] = theirs(lake, "rewrite_manifests('db.theirs')").collect()
    expected = engine("db.theirs")
    calls = (
        "rewrite_position_delete_files('db.ours', map('rewrite-all', 'true'))",
        "rewrite_manifests('db.ours')",
        "rewrite_data_files('db.ours', 'binpack', NULL, map('rewrite-all', 'true'))",
    )
    for call in calls:
        before = lake.load("db.ours").metadata.current_snapshot_id
        [_] = ours(call).collect()
        assert lake.load("db.ours").metadata.current_snapshot_id != before, call
        assert engine("db.ours") == expected, call


def test_unknown_snapshot_ids_are_ignored_so_that_a_call_can_be_repeated(lake: Lake, ours: Call) -> None:
    twins(
        lake, "CREATE TABLE {t} (id BIGINT) USING iceberg", "INSERT INTO {t} VALUES (1)", "INSERT INTO {t} VALUES (2)"
    )
    for name, run in (("db.theirs", partial(theirs, lake)), ("db.ours", ours)):
        first = lake.load(name).metadata.snapshots[0].snapshot_id
        call = f"expire_snapshots(table => '{name}', snapshot_ids => array({first}))"
        counts = [tuple(run(call).collect()[0]) for _ in range(2)]
        assert counts == [(0, 0, 0, 0, 1, 0), (0,) * 6], name


def test_position_deletes_take_all_options_of_iceberg(lake: Lake, ours: Call) -> None:
    fill_with_deletes(lake, partition="PARTITIONED BY (kind)")
    options = {
        "partial-progress.enabled": "true",
        "partial-progress.max-commits": "2",
        "max-concurrent-file-group-rewrites": "2",
        "rewrite-job-order": "bytes-asc",
        "max-file-group-input-files": "2",
        "rewrite-all": "true",
    }
    pairs = ", ".join(f"'{key}', '{value}'" for key, value in options.items())
    [expected] = theirs(lake, f"rewrite_position_delete_files('db.theirs', map({pairs}))").collect()
    [answer] = ours(f"rewrite_position_delete_files('db.ours', map({pairs}))").collect()
    assert answer[:2] == expected[:2]
    assert lake.rows("db.ours", order_by="id") == lake.rows("db.theirs", order_by="id")


def test_statistics_of_any_type_are_kept_counted_and_expired(lake: Lake, ours: Call) -> None:
    spark: Any = lake.spark
    iceberg = spark._jvm.org.apache.iceberg
    twins(
        lake,
        "CREATE TABLE {t} (id BIGINT) USING iceberg",
        "INSERT INTO {t} VALUES (1)",
        "INSERT INTO {t} VALUES (2)",
        "INSERT INTO {t} VALUES (3)",
    )
    for name in ("db.theirs", "db.ours"):
        table = lake.java_table(name)
        # The first snapshot expires below, the last one stays.
        for snapshot in (lake.load(name).metadata.snapshots[0], lake.load(name).metadata.snapshots[-1]):
            path = f"{table.location()}/metadata/{snapshot.snapshot_id}.stats"
            Path(path.removeprefix("file://").removeprefix("file:")).write_bytes(b"statistics")
            blob = iceberg.GenericBlobMetadata(
                "an-unknown-type", snapshot.snapshot_id, snapshot.sequence_number, [1], {}
            )
            file = iceberg.GenericStatisticsFile(snapshot.snapshot_id, path, 10, 0, [blob])
            table.updateStatistics().setStatistics(file).commit()
    calls = (
        "rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
        "rewrite_manifests('{}')",
        "rewrite_position_delete_files('{}')",
        "remove_orphan_files('{}')",
        "expire_snapshots(table => '{}', older_than => now(), retain_last => 3)",
    )
    for call in calls:
        expected = theirs(lake, call.format("db.theirs")).collect()
        answer = ours(call.format("db.ours")).collect()
        columns = [name for name in answer[0].asDict() if "bytes" not in name] if answer else []
        assert len(answer) == len(expected), call
        assert [answer[0][name] for name in columns] == [expected[0][name] for name in columns], call
    assert answer[0].deleted_statistics_files_count == 1
    for name in ("db.theirs", "db.ours"):
        [kept] = lake.load(name).metadata.statistics
        assert [blob.type for blob in kept.blob_metadata] == ["an-unknown-type"]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_orphans_are_named_as_iceberg_names_them(lake: Lake, ours: Call, tmp_path: Path, scheme: str) -> None:
    folder = tmp_path / "elsewhere"
    lake.sql(f"CREATE TABLE {lake.full('db.t')} (id BIGINT) USING iceberg LOCATION '{scheme}{folder}'")
    lake.sql(f"INSERT INTO {lake.full('db.t')} SELECT id FROM range(0, 6, 1, 6)")
    old = time.time() - 4 * 86_400
    for name in ORPHANS:
        (folder / name).write_bytes(b"orphan")
        os.utime(folder / name, (old, old))
    call = "remove_orphan_files(table => 'db.t', dry_run => true)"
    expected = sorted(row[0] for row in theirs(lake, call).collect())
    assert len(expected) == len(ORPHANS)
    assert sorted(row[0] for row in ours(call).collect()) == expected
    assert sorted(row[0] for row in ours("remove_orphan_files('db.t')").collect()) == expected
    assert not any((folder / name).exists() for name in ORPHANS)

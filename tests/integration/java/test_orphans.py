"""Orphans beside Iceberg's own procedure, views as file lists, and tables of format version 3."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import GivenArgument, bind
from iceberg_compact_sql.call.declaration import Procedure
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.engine.shipping import SparkWorkers
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.procedures.expire_snapshots import PROCEDURE as EXPIRE
from iceberg_compact_sql.procedures.remove_orphans import PROCEDURE as ORPHANS
from iceberg_compact_sql.reclaim.orphans import OrphanPlan, OrphanRequest, OrphanSearch
from iceberg_compact_sql.storage.same_file import same_file_key
from tests.support.java import Lake
from tests.support.reclaim import on_disk

ORPHAN_NAMES = (
    "data/left.parquet",
    "data/a b+c%20d.parquet",
    "data/kind=k1/left.parquet",
    "data/_kept/hidden.parquet",
    "data/.hidden.parquet",
    "metadata/left.avro",
    "metadata/left.stats",
    "metadata/00000-left.metadata.json.tmp",
    "elsewhere/left",
)


def call(lake: Lake, procedure: Procedure, *values: object, **named: object) -> list[tuple[Any, ...]]:
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    context = Context(view=view, spark=lake.spark)
    given = [GivenArgument(value) for value in values] + [GivenArgument(value, name) for name, value in named.items()]
    return procedure.run(context, bind(procedure, given, now_ms=context.now_ms, time_zone=lambda: "UTC"))


def folder(lake: Lake, table: str) -> Path:
    return Path(same_file_key(lake.load(table).location()).removeprefix("file:"))


def make(lake: Lake, name: str, version: int = 2) -> None:
    lake.sql(
        f"CREATE TABLE {lake.full(name)} (id BIGINT, kind STRING) USING iceberg PARTITIONED BY (kind) TBLPROPERTIES ("
        f"'format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    for low in (0, 10, 20):
        lake.sql(f"INSERT INTO {lake.full(name)} SELECT id, concat('k', id % 2) FROM range({low}, {low + 10})")
    lake.sql(f"DELETE FROM {lake.full(name)} WHERE id % 7 = 3")


def leave_orphans(lake: Lake, name: str) -> None:
    for orphan in ORPHAN_NAMES:
        path = folder(lake, name) / orphan
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"orphan")
    old = time.time() - 4 * 86_400
    for path in folder(lake, name).rglob("*"):
        if path.is_file():
            os.utime(path, (old, old))


def test_the_same_orphans_as_icebergs_procedure(lake: Lake) -> None:
    make(lake, "db.t")
    lake.sql(f"CALL {lake.name}.system.compute_table_stats('db.t')")
    lake.sql(f"ALTER TABLE {lake.full('db.t')} CREATE TAG kept")
    lake.sql(f"INSERT OVERWRITE {lake.full('db.t')} VALUES (1, 'new')")
    leave_orphans(lake, "db.t")
    theirs = lake.sql(f"CALL {lake.name}.system.remove_orphan_files(table => 'db.t', dry_run => true)").collect()
    dry = call(lake, ORPHANS, "db.t", dry_run=True)
    expected = {same_file_key(row[0]) for row in theirs}
    assert {same_file_key(row[0]) for row in dry} == expected
    assert len(expected) == len([name for name in ORPHAN_NAMES if "hidden" not in name])
    before = on_disk(lake.load("db.t"))
    rows = call(lake, ORPHANS, "db.t", quarantine="7d")
    assert {same_file_key(row[0]) for row in rows if row[3]} == expected
    assert before - on_disk(lake.load("db.t")) == expected
    assert lake.rows("db.t") == [(1, "new")]
    assert len(lake.rows("db.t", branch="kept")) == 26


def test_a_view_as_the_list_of_files(lake: Lake) -> None:
    make(lake, "db.t")
    leave_orphans(lake, "db.t")
    root = folder(lake, "db.t")
    files = [path for path in root.rglob("*") if path.is_file()]
    spellings = ("file:{}", "file://{}", "{}")
    listed = ", ".join(
        f"('{spellings[at % 3].format(path)}', TIMESTAMP '2020-01-01 00:00:00')" for at, path in enumerate(files)
    )
    lake.spark.sql(f"SELECT * FROM VALUES {listed} AS t(file_path, last_modified)").createOrReplaceTempView("listed")
    found = call(lake, ORPHANS, "db.t", file_list_view="listed", dry_run=True)
    listing = call(lake, ORPHANS, "db.t", dry_run=True)
    assert {same_file_key(row[0]) for row in found} == {same_file_key(row[0]) for row in listing} != set()
    lake.spark.sql("SELECT 1 AS file_path").createOrReplaceTempView("wrong")
    with pytest.raises(InvalidArgumentError, match="file_path string and last_modified timestamp"):
        call(lake, ORPHANS, "db.t", file_list_view="wrong")


def on_cluster(lake: Lake, table: str, **changes: Any) -> OrphanPlan:
    """The search as it runs for a table of millions of files, on this small one."""
    # Tasks run in this interpreter, whatever `python3` is on the path.
    lake.spark.sparkContext.pythonExec = sys.executable
    request = OrphanRequest(now_ms=int(time.time() * 1000), driver_files=0, **changes)
    return OrphanSearch(lake.load(table), request, lambda: SparkWorkers(lake.spark)).find()


def test_the_cluster_finds_the_same_orphans(lake: Lake) -> None:
    make(lake, "db.t")
    leave_orphans(lake, "db.t")
    here = call(lake, ORPHANS, "db.t", dry_run=True)
    plan = on_cluster(lake, "db.t")
    assert [(file.path, file.size_bytes) for file in plan.orphans] == [(row[0], row[1]) for row in here] != []
    young = folder(lake, "db.t") / "data" / "young.parquet"
    young.write_bytes(b"")
    assert on_cluster(lake, "db.t").listed == plan.listed + 1
    assert on_cluster(lake, "db.t").orphans == plan.orphans
    request = OrphanRequest(now_ms=int(time.time() * 1000), driver_files=0)
    search = OrphanSearch(lake.load("db.t"), request, lambda: SparkWorkers(lake.spark))
    assert all(gone for _, gone in search.delete(search.find()))
    assert on_cluster(lake, "db.t").orphans == ()
    assert len(lake.rows("db.t")) == 26


def test_doubt_on_the_cluster_stops_the_run_too(lake: Lake) -> None:
    make(lake, "db.t")
    live = Path(same_file_key(lake.data_paths("db.t")[0]).removeprefix("file:"))
    twin = live.with_name(live.name.replace("-", "%2D"))
    twin.write_bytes(b"")
    leave_orphans(lake, "db.t")
    with pytest.raises(IcebergCompactError, match="another spelling"):
        on_cluster(lake, "db.t")
    twin.unlink()
    manifest = lake.load("db.t").inspect.manifests()["path"][0].as_py()
    Path(same_file_key(manifest).removeprefix("file:")).write_bytes(b"cut")
    with pytest.raises(IcebergCompactError, match="cannot be read"):
        on_cluster(lake, "db.t")


def test_deletion_vectors_count_as_files_of_the_table(lake: Lake) -> None:
    make(lake, "db.v3", version=3)
    lake.sql(f"DELETE FROM {lake.full('db.v3')} WHERE id % 5 = 1")
    before = on_disk(lake.load("db.v3"))
    old_vectors = {path for path in before if path.endswith(".puffin")}
    leave_orphans(lake, "db.v3")
    assert old_vectors.isdisjoint(same_file_key(row[0]) for row in call(lake, ORPHANS, "db.v3", dry_run=True))
    planned = call(lake, EXPIRE, "db.v3", older_than="2100-01-01", dry_run=True)
    going = {same_file_key(row[1]) for row in planned if row[0] == "position delete"}
    live = {same_file_key(file["file_path"]) for file in lake.files("db.v3") if file["content"] == 1}
    assert going == old_vectors - live != set()
    rows = sorted(lake.rows("db.v3"))
    call(lake, EXPIRE, "db.v3", older_than="2100-01-01")
    assert len(lake.load("db.v3").metadata.snapshots) == 1 and sorted(lake.rows("db.v3")) == rows
    assert {path for path in on_disk(lake.load("db.v3")) if path.endswith(".puffin")} == live

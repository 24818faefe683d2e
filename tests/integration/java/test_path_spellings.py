"""When two paths are one file, with Iceberg's Java as judge: deletes by exact text, orphans by scheme and authority."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import iceberg_compact_sql
from iceberg_compact_sql.engine.shipping import SparkWorkers
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.known_files import KnownFiles, PathMatch
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from tests.support.handmade import add_position_deletes, replace_names
from tests.support.java import Lake


@pytest.fixture
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


def make(lake: Lake) -> list[str]:
    """`db.t` of three files with four rows each; the paths of the files as Java wrote them."""
    lake.sql(f"CREATE TABLE {lake.full('db.t')} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version'='2')")
    for number in range(3):
        rows = ", ".join(f"({number * 10 + i})" for i in range(4))
        lake.sql(f"INSERT INTO {lake.full('db.t')} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    return lake.data_paths("db.t")


def ids(lake: Lake) -> list[int]:
    lake.sql(f"REFRESH TABLE {lake.full('db.t')}")
    return sorted(row[0] for row in lake.rows("db.t"))


def run(lake: Lake, sql: str) -> dict[str, Any]:
    [row] = lake.spark.sql(sql.replace("db.t", lake.full("db.t"))).collect()
    return row.asDict()


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("scoped", [True, "bounds", False])
@pytest.mark.parametrize("procedure", ["compact_table", "rewrite_position_deletes"])
def test_deletes_in_another_spelling_apply_to_nothing(lake: Lake, scoped: bool | str, procedure: str) -> None:
    paths = make(lake)
    assert all(path.startswith("file:/") and not path.startswith("file://") for path in paths)
    table = lake.load("db.t")
    add_position_deletes(table, {path: [0] for path in paths}, scoped=scoped)
    add_position_deletes(table, {path.replace("file:/", "file:///"): [1] for path in paths}, scoped=scoped)
    add_position_deletes(table, {paths[0]: [2]}, referenced=paths[0].replace("file:/", "file:///"))
    add_position_deletes(table, {paths[0].replace("file:/", "file:///"): [3]}, referenced=paths[0])
    before = ids(lake)
    assert before == [number * 10 + i for number in range(3) for i in (1, 2, 3)]
    assert any(run(lake, f"CALL {procedure}('db.t', rewrite_all => true)").values())
    assert ids(lake) == before


# What metadata names, what is listed, what Iceberg makes of it, and what we do.
SPELLINGS = [
    ("hdfs://nn/w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("hdfs:/w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("hdfs:///w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("/w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("/w/{}", "file:/w/{}", "needed", PathMatch.NEEDED),
    ("hdfs:/w/{}", "hdfs:///w/{}", "needed", PathMatch.NEEDED),
    ("hdfs://nn/w/{}", "hdfs:/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("hdfs://nn/w/{}", "hdfs:///w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("hdfs://nn/w/{}", "hdfs://nn:8020/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("hdfs://nn/w/{}", "hdfs://other/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("hdfs://NN/w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("HDFS://nn/w/{}", "hdfs://nn/w/{}", "needed", PathMatch.NEEDED),
    ("hdfs://nn/w/{}", "HDFS://nn/w/{}", "needed", PathMatch.NEEDED),
    ("hdfs:/w/{}", "file:/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("file:/w/{}", "hdfs://nn/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("file:/w/{}", "file:///w/{}", "needed", PathMatch.NEEDED),
    ("file:///w/{}", "file:/w/{}", "needed", PathMatch.NEEDED),
    ("file:/w/{}", "file://localhost/w/{}", "needed", PathMatch.NEEDED),
    ("file://localhost/w/{}", "file:/w/{}", "conflict", PathMatch.NEEDED),
    ("s3://b/w/{}", "s3a://b/w/{}", "needed", PathMatch.NEEDED),
    ("s3n://b/w/{}", "s3://b/w/{}", "needed", PathMatch.NEEDED),
    ("s3://b/w/{}", "s3://c/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("s3://b/w/{}", "gs://b/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("abfss://c@a/w/{}", "abfs://c@a/w/{}", "conflict", PathMatch.OTHER_PREFIX),
    ("s3:///w/{}", "s3://b/w/{}", "needed", PathMatch.NEEDED),
    ("s3:/b/w/{}", "s3://b/w/{}", "orphan", PathMatch.NEEDED),
    ("s3://b/w//{}", "s3://b/w/{}", "needed", PathMatch.OTHER_SPELLING),
    ("s3://b/w/{}", "s3://b/w//{}", "needed", PathMatch.OTHER_SPELLING),
    ("s3://b/w/x/../{}", "s3://b/w/{}", "needed", PathMatch.OTHER_SPELLING),
    ("s3://b/w/./{}", "s3://b/w/{}", "needed", PathMatch.OTHER_SPELLING),
    ("s3://b/w/{}/", "s3://b/w/{}", "needed", PathMatch.OTHER_SPELLING),
    ("s3://b/w/a%20b{}", "s3://b/w/a%20b{}", "needed", PathMatch.NEEDED),
    ("s3://b/w/a%20b{}", "s3://b/w/a b{}", "orphan", PathMatch.OTHER_SPELLING),
    ("s3://b/w/a b{}", "s3://b/w/a%20b{}", "orphan", PathMatch.OTHER_SPELLING),
    ("s3://b/w/a b{}", "s3://b/w/a+b{}", "orphan", PathMatch.OTHER_SPELLING),
    ("s3://b/w/\u00fc{}", "s3://b/w/u\u0308{}", "orphan", PathMatch.OTHER_SPELLING),
    ("s3://b/w/u\u0308{}", "s3://b/w/\u00fc{}", "orphan", PathMatch.OTHER_SPELLING),
    ("s3://b/w/#{}", "s3://b/w/#{}", "needed", PathMatch.NEEDED),
    ("s3://b/w/{}", "s3://b/w/{}x", "orphan", PathMatch.UNKNOWN),
    ("hdfs:/w/{}", "hdfs://nn/v/{}", "orphan", PathMatch.UNKNOWN),
]


def test_every_spelling_is_judged_as_in_iceberg_or_with_more_care(lake: Lake) -> None:
    lake.sql(f"CREATE TABLE {lake.full('db.t')} (id BIGINT) USING iceberg")
    jvm: Any = lake.spark._jvm
    target = lake.java_table("db.t")
    append = target.newAppend()
    pairs = [(named.format(f"n{i}"), listed.format(f"n{i}")) for i, (named, listed, _, _) in enumerate(SPELLINGS)]
    for named, _ in pairs:
        builder = jvm.org.apache.iceberg.DataFiles.builder(target.spec()).withPath(named).withFormat("parquet")
        append.appendFile(builder.withFileSizeInBytes(10).withRecordCount(1).build())
    append.commit()
    frame = lake.spark.createDataFrame([(listed,) for _, listed in pairs], "file_path string")
    frame.selectExpr("file_path", "timestamp'2020-01-01' AS last_modified").createOrReplaceTempView("listed_files")

    def orphans(mode: str) -> set[str]:
        arguments = f"table => 'db.t', location => '', dry_run => true, prefix_mismatch_mode => '{mode}'"
        call = f"CALL {lake.name}.system.remove_orphan_files({arguments}, file_list_view => 'listed_files')"
        return {row[0] for row in lake.sql(call).collect()}

    deleted, ignored = orphans("DELETE"), orphans("IGNORE")
    valid = KnownFiles()
    for named, _ in pairs:
        valid.add(named)
    judged = []
    for named, listed in pairs:
        java = "orphan" if listed in ignored else "conflict" if listed in deleted else "needed"
        judged.append((named, listed, java, valid.match(listed)))
    expected = [(*pair, java, ours) for pair, (_, _, java, ours) in zip(pairs, SPELLINGS, strict=True)]
    assert judged == expected
    for *_, java, ours in judged:
        assert java != "needed" or ours is not PathMatch.UNKNOWN
        assert java != "conflict" or ours in (PathMatch.NEEDED, PathMatch.OTHER_PREFIX)


def test_the_cluster_keeps_what_is_named_without_authority_or_through_a_link(lake: Lake) -> None:
    first, second, third = make(lake)
    table = lake.load("db.t")
    local = {path: Path(path.removeprefix("file:")) for path in (first, second, third)}
    link = local[first].with_name("link.parquet")
    link.symlink_to(local[first])
    replace_names(table, [first, second, third], [f"file:{link}", str(local[second]), f"hdfs://nn{local[third]}"])
    snapshots = [snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots]
    table.maintenance.expire_snapshots().by_ids(snapshots[:-1]).commit()
    # Tasks run in this interpreter, whatever `python3` is on the path.
    lake.spark.sparkContext.pythonExec = sys.executable
    now_ms = int(time.time() * 1000) + 10 * 86_400_000

    def orphans(**changes: Any) -> set[str]:
        request = OrphanRequest(now_ms=now_ms, driver_files=0, **changes)
        here = OrphanSearch(lake.load("db.t"), request).find().orphans
        assert OrphanSearch(lake.load("db.t"), request, lambda: SparkWorkers(lake.spark)).find().orphans == here
        return {Path(file.path).name for file in here}

    with pytest.raises(IcebergCompactError, match=r"\(file://, hdfs://nn\)"):
        OrphanSearch(
            lake.load("db.t"), OrphanRequest(now_ms=now_ms, driver_files=0), lambda: SparkWorkers(lake.spark)
        ).find()
    ignored = orphans(prefix_mismatch_mode="IGNORE")
    assert ignored.isdisjoint(path.name for path in local.values())
    assert orphans(prefix_mismatch_mode="DELETE") == ignored | {local[third].name}
    assert orphans(equal_schemes={"hdfs": "file"}, equal_authorities={"nn": ""}) == ignored

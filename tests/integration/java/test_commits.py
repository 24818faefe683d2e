"""Iceberg's own Java library on tables that we committed to, and our commit on tables that Java wrote."""

from __future__ import annotations

from typing import Any

import pytest

from iceberg_compact_sql.commit.model import Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.table.model import LiveFile
from tests.support import oracle
from tests.support.calls import call
from tests.support.java import Lake
from tests.support.plain import PlainLake
from tests.support.replacing import live_files, planned, replacement

MERGE_ON_READ = "'write.delete.mode'='merge-on-read','write.update.mode'='merge-on-read'"


def make(lake: Lake, name: str, *, partitioned: bool, format_version: int = 2, granularity: str = "file") -> None:
    layout = "PARTITIONED BY (kind, bucket(2, id))" if partitioned else ""
    lake.sql(
        f"CREATE TABLE {lake.full(name)} (id BIGINT, kind STRING, price DECIMAL(9,2), day DATE) USING iceberg {layout} "
        f"TBLPROPERTIES ('format-version'='{format_version}', {MERGE_ON_READ}, "
        f"'write.delete.granularity'='{granularity}')"
    )
    for turn in range(3):
        lake.sql(
            f"INSERT INTO {lake.full(name)} SELECT id, IF(id % 3 = 0, NULL, IF(id % 3 = 1, 'a/b', 'ü')), "
            f"CAST(id AS DECIMAL(9,2)) / 4, DATE '2026-01-01' + INT(id % 5) FROM RANGE({turn * 12}, {turn * 12 + 12})"
        )


def groups(lake: Lake, name: str, files: list[LiveFile]) -> list[Replacement]:
    table = lake.load(name)
    by_partition: dict[Any, list[LiveFile]] = {}
    for file in files:
        by_partition.setdefault((file.spec_id, file.partition), []).append(file)
    return [replacement(table, mine, key=key) for key, mine in enumerate(by_partition.values())]


@pytest.mark.parametrize("partitioned", [False, True], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_java_reads_our_delete_manifests(lake: Lake, partitioned: bool, granularity: str) -> None:
    make(lake, "db.t", partitioned=partitioned, granularity=granularity)
    lake.sql(f"DELETE FROM {lake.full('db.t')} WHERE id IN (1, 13, 14, 30)")
    if partitioned:
        lake.sql(f"ALTER TABLE {lake.full('db.t')} DROP PARTITION FIELD kind")
        lake.sql(f"ALTER TABLE {lake.full('db.t')} DROP PARTITION FIELD bucket(2, id)")
    lake.equality_delete("db.t", ["id"], [(2,), (26,)])
    lake.sql(f"INSERT INTO {lake.full('db.t')} VALUES (2, 'again', 1, DATE '2026-02-02')")
    expected = lake.rows("db.t", order_by="id")
    table = lake.load("db.t")
    files = sorted(live_files(table), key=lambda file: file.sequence_number)
    oldest = [file for file in files if file.sequence_number <= 2]
    report = commit_replacements(table, groups(lake, "db.t", oldest), state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert not report.conflicts
    # The third insert's files still need the equality delete and their own position deletes: read by Java.
    assert lake.rows("db.t", order_by="id") == expected
    rewritten = lake.sql(
        f"SELECT sum(deleted_delete_files_count), count(*) FROM {lake.full('db.t')}.manifests WHERE content = 1"
    ).collect()[0]
    assert rewritten[1] > 0
    if granularity == "file":
        assert report.removed_delete_files == rewritten[0] > 0
    assert lake.sql(f"SELECT count(*) FROM {lake.full('db.t')}.all_entries").collect()[0][0] > 0
    # Java goes on working on what we wrote: a delete, its own compaction, its own manifest rewrite.
    lake.sql(f"DELETE FROM {lake.full('db.t')} WHERE id = 5")
    for procedure in ("rewrite_manifests", "rewrite_data_files"):
        options = ", options => map('rewrite-all', 'true')" if procedure == "rewrite_data_files" else ""
        lake.sql(f"CALL {lake.name}.system.{procedure}(table => 'db.t'{options})")
        assert lake.rows("db.t", order_by="id") == [row for row in expected if row[0] != 5]


def test_java_filters_on_partitions_of_our_manifests(lake: Lake) -> None:
    make(lake, "db.t", partitioned=True)
    query = f"SELECT id FROM {lake.full('db.t')} WHERE {{kind}} ORDER BY id"
    expected = {kind: lake.sql(query, kind=kind).collect() for kind in KINDS}
    table = lake.load("db.t")
    report = commit_replacements(table, groups(lake, "db.t", live_files(table)), state=planned(table))
    assert len(report.committed) == 6
    for kind, rows in expected.items():
        assert lake.sql(query, kind=kind).collect() == rows


KINDS = ["kind IS NULL", "kind = 'a/b'", "kind > 'b'", "id = 7", "kind = 'ü' AND id = 8"]


def test_java_reads_a_v1_table_that_we_compacted(lake: Lake) -> None:
    make(lake, "db.t", partitioned=True, format_version=1)
    expected = lake.rows("db.t", order_by="id")
    table = lake.load("db.t")
    report = commit_replacements(table, groups(lake, "db.t", live_files(table)), state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert lake.rows("db.t", order_by="id") == expected
    lake.sql(f"INSERT INTO {lake.full('db.t')} VALUES (1000, 'z', 1, DATE '2026-02-02')")
    assert len(lake.rows("db.t")) == len(expected) + 1


def test_summary_has_the_keys_that_java_writes(lake: Lake) -> None:
    for name in ("db.ours", "db.theirs"):
        make(lake, name, partitioned=False)
        lake.sql(f"DELETE FROM {lake.full(name)} WHERE id IN (1, 13)")
    table = lake.load("db.ours")
    commit_replacements(table, groups(lake, "db.ours", live_files(table)), state=planned(table))
    lake.sql(
        f"CALL {lake.name}.system.rewrite_data_files(table => 'db.theirs', "
        "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'true'))"
    )
    summaries = []
    for name in ("db.ours", "db.theirs"):
        metadata = lake.load(name).metadata
        replaces = [s.summary for s in metadata.snapshots if s.summary and s.summary.operation.value == "replace"]
        merged: dict[str, str] = {}
        for summary in replaces:
            merged |= summary.additional_properties
        summaries.append(merged)
    ours, theirs = summaries
    sizes = {key for key in theirs if key.endswith("files-size")}
    # Java says who wrote and how many manifests it touched; those are no counts of files.
    other = ("engine-", "app-", "iceberg-version", "spark.", "manifests-", "entries-processed", "changed-partition")
    counted = {key for key in theirs if not key.startswith(other)} - sizes
    assert {key: ours.get(key) for key in counted} == {key: theirs[key] for key in counted}
    assert sizes <= ours.keys()
    assert oracle.rows(lake.load("db.ours")) == oracle.rows(lake.load("db.theirs"))


@pytest.mark.parametrize("sort_by", ["", ", sort_by => array('id_bucket')"], ids=["spec", "sort_by"])
def test_manifests_are_put_in_order_as_java_does(lake: Lake, sort_by: str) -> None:
    for name in ("db.ours", "db.theirs"):
        lake.sql(
            f"CREATE TABLE {lake.full(name)} (id BIGINT, kind STRING) USING iceberg "
            "PARTITIONED BY (kind, bucket(4, id)) TBLPROPERTIES ('commit.manifest-merge.enabled' = 'false')"
        )
        for first in range(3):
            lake.sql(f"INSERT INTO {lake.full(name)} SELECT id, concat('k', id % 3) FROM range({first}, {first} + 30)")
        lengths = lake.sql(f"SELECT length FROM {lake.full(name)}.manifests").collect()
        target = max(row[0] for row in lengths)
        lake.sql(f"ALTER TABLE {lake.full(name)} SET TBLPROPERTIES ('commit.manifest.target-size-bytes' = '{target}')")

    def metadata_rows() -> list[Any]:
        queries = ("files", "partitions", "data_files")
        return [sorted(map(str, lake.sql(f"SELECT * FROM {lake.full('db.ours')}.{q}").collect())) for q in queries]

    before, rows = metadata_rows(), lake.rows("db.ours", order_by="id, kind")
    view = PlainLake(lake.name, lake.catalog, lake.folder, dict(lake.conf))
    [done] = call(view, f"CALL rewrite_manifests('db.ours'{sort_by})")
    [java] = lake.sql(f"CALL {lake.name}.system.rewrite_manifests(table => 'db.theirs'{sort_by})").collect()
    assert (done["rewritten_manifests_count"], done["added_manifests_count"]) == tuple(java)
    assert metadata_rows() == before
    assert lake.rows("db.ours", order_by="id, kind") == rows
    # No more manifests to open for one partition than after Java's rewrite.
    bucket = lake.sql("SELECT {lake}.system.bucket(4, 7L)").collect()[0][0]
    field, value = (1, str(bucket)) if sort_by else (0, "k1")
    opened = [
        sum(s[field].lower_bound <= value <= s[field].upper_bound for (s,) in lake.sql(query).collect())
        for query in (f"SELECT partition_summaries FROM {lake.full(t)}.manifests" for t in ("db.ours", "db.theirs"))
    ]
    assert opened[0] <= opened[1]

"""rewrite_position_deletes: the same rows deleted by fewer files."""

from __future__ import annotations

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.calls import call
from tests.support.handmade import BY_NAME, add_position_deletes, append, make_table
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake


def deleted_table(lake: PlainLake, spec: PartitionSpec | None = None, **properties: str) -> Table:
    table = make_table(lake.catalog, "db.t", spec=spec, properties=properties)
    for number in range(3):
        for path in append(table, [{"id": number * 10 + i, "name": f"n{i % 2}"} for i in range(8)]):
            add_position_deletes(table, {path: [0]})
            add_position_deletes(table, {path: [0, 2]}, scoped=False)
    return table


def delete_files(table: Table) -> list[dict]:
    return [e for e in entries(table) if e["data_file"]["content"] == 1]


def test_merged_into_one_file_with_the_same_rows(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake)
    before, newest = rows(table), max(e["seq"] for e in delete_files(table))
    assert call(plain_lake, "CALL rewrite_position_deletes('db.t', dry_run => true)")[0]["snapshot_id"] is None
    [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")
    assert (done["rewritten_delete_files_count"], done["added_delete_files_count"]) == (6, 1)
    [merged] = delete_files(table)
    assert merged["data_file"]["record_count"] == 6
    assert merged["seq"] == newest
    assert merged["data_file"]["file_size_in_bytes"] == done["added_bytes_count"]
    assert rows(table) == before
    assert_readable(table)
    assert call(plain_lake, "CALL rewrite_position_deletes('db.t')")[0]["snapshot_id"] is None


def test_each_partition_for_itself_and_where(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake, BY_NAME)
    before = rows(table)
    [some] = call(plain_lake, """CALL rewrite_position_deletes('db.t', where => "name = 'n0'")""")
    assert (some["rewritten_delete_files_count"], some["added_delete_files_count"]) == (6, 1)
    assert rows(table) == before
    [rest] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")
    assert (rest["rewritten_delete_files_count"], rest["added_delete_files_count"]) == (6, 1)
    assert rows(table) == before


def test_rows_that_point_at_nothing_are_dropped(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake)
    # The data files go, their deletes stay: a delete of all rows leaves dangling position deletes behind.
    table.refresh().delete("id < 20")
    before = rows(table)
    [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t', options => map('rewrite-all', 'true'))")
    assert done["rewritten_delete_files_count"] == 6
    assert sum(e["data_file"]["record_count"] for e in delete_files(table)) <= 2
    assert rows(table) == before


def test_a_delete_of_one_file_in_another_partition_stays_apart(plain_lake: PlainLake) -> None:
    """Readers find it by its path alone; merged with others it would be looked for in the wrong partition."""
    table = deleted_table(plain_lake, BY_NAME)
    stray = next(e["data_file"]["file_path"] for e in entries(table) if e["data_file"]["partition"]["name"] == "n1")
    [wrong] = add_position_deletes(table, {stray: [3]}, partition=["n0"])
    before = rows(table)
    [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t', rewrite_all => true)")
    assert done["rewritten_delete_files_count"] == 12
    assert rows(table) == before
    assert wrong in {e["data_file"]["file_path"] for e in delete_files(table)}


def test_one_file_for_each_data_file_if_the_table_asks(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake, **{"write.delete.granularity": "file"})
    before = rows(table)
    [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")
    assert done["added_delete_files_count"] == 3
    assert all(e["data_file"]["referenced_data_file"] for e in delete_files(table))
    assert rows(table) == before
    assert call(plain_lake, "CALL rewrite_position_deletes('db.t')")[0]["snapshot_id"] is None


def test_a_delete_that_arrives_meanwhile_survives(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake)
    target = next(e["data_file"]["file_path"] for e in entries(table) if e["data_file"]["content"] == 0)
    fired = []

    def interleave(point: str, facts: object) -> None:
        if point == "commit.validate" and not fired:
            fired.append(point)
            add_position_deletes(table, {target: [5]})

    with events.listening(interleave):
        [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")
    assert fired and done["snapshot_id"] is not None
    assert len(rows(table)) == 24 - 6 - 1
    assert len(delete_files(table)) == 2


def test_a_group_that_another_run_merged_is_left_out_and_its_files_are_cleaned(plain_lake: PlainLake) -> None:
    table = deleted_table(plain_lake)
    before = rows(table)
    inner: list[dict] = []

    def interleave(point: str, facts: object) -> None:
        if point == "commit.validate" and not inner:
            inner.append({})
            inner[:] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")

    with events.listening(interleave):
        [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t')")
    assert inner[0]["added_delete_files_count"] == 1
    assert (done["added_delete_files_count"], done["snapshot_id"]) == (0, None)
    assert rows(table) == before
    named = {e["data_file"]["file_path"].removeprefix("file://") for e in delete_files(table)}
    found = {str(path) for path in plain_lake.folder.rglob("*-deletes.parquet")}
    assert len(found & named) == 1 and found <= named


def test_bad_sizes_name_the_rule(plain_lake: PlainLake) -> None:
    make_table(plain_lake.catalog, "db.t")
    message = "rewrite_position_deletes: min_file_size 20 MB must be below target 10 MB"
    with pytest.raises(IcebergCompactError, match=message):
        call(plain_lake, "CALL rewrite_position_deletes('db.t', target => '10MB', min_file_size => '20MB')")


def test_rows_in_another_spelling_delete_nothing_before_and_after(plain_lake: PlainLake) -> None:
    """Readers apply deletes by the exact text of a path, so neither a merge nor a compaction may apply the others."""
    table = make_table(plain_lake.catalog, "db.t")
    for number in range(3):
        [path] = append(table, [{"id": number * 10 + i, "name": "n"} for i in range(4)])
        respelled = path.replace("file:///", "file:/")
        assert respelled != path
        add_position_deletes(table, {path: [0]})
        add_position_deletes(table, {respelled: [1]})
        add_position_deletes(table, {respelled: [2]}, scoped=False)
        # All its rows have the exact path, but readers look it up under the other one.
        add_position_deletes(table, {path: [3]}, referenced=respelled)
    expected = [(number * 10 + i, "n") for number in range(3) for i in (1, 2, 3)]
    assert sorted((row["id"], row["name"]) for row in rows(table)) == expected
    [done] = call(plain_lake, "CALL rewrite_position_deletes('db.t', rewrite_all => true)")
    assert done["rewritten_delete_files_count"] == 12
    assert sorted((row["id"], row["name"]) for row in rows(table)) == expected
    [done] = call(plain_lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert done["rewritten_data_files_count"] == 3
    assert sorted((row["id"], row["name"]) for row in rows(table)) == expected
    assert delete_files(table) == []

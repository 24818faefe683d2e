"""rewrite_manifests: fewer manifests, the same entries."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.calls import call
from tests.support.handmade import (
    BY_NAME,
    SIMPLE_SCHEMA,
    add_equality_deletes,
    add_position_deletes,
    append,
    make_table,
)
from tests.support.oracle import assert_readable, entries, rows
from tests.support.plain import PlainLake


def fragmented(lake: PlainLake, **properties: str) -> Any:
    table = make_table(lake.catalog, "db.t", spec=BY_NAME, properties=properties)
    for number in range(6):
        append(table, [{"id": number * 10 + i, "name": f"n{i}"} for i in range(3)])
    add_position_deletes(table, {entries(table)[0]["data_file"]["file_path"]: [0]})
    add_equality_deletes(table, [{"id": 11, "name": "n1"}], field_ids=[1], partition=["n1"])
    return table


def comparable(table: Any, branch: str = "main") -> list[str]:
    """Everything of every live entry but its place."""
    return sorted(
        str((e["seq"], sorted((key, _plain(value)) for key, value in e["data_file"].items() if value is not None)))
        for e in entries(table, branch)
    )


def _plain(value: Any) -> Any:
    return dict(value.items()) if hasattr(value, "items") else value


def test_every_entry_keeps_every_field(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    before, before_rows = comparable(table), rows(table)
    assert call(plain_lake, "CALL rewrite_manifests('db.t', dry_run => true)") == [
        {"rewritten_manifests_count": 8, "added_manifests_count": 2, "snapshot_id": None}
    ]
    [done] = call(plain_lake, "CALL rewrite_manifests('db.t')")
    assert (done["rewritten_manifests_count"], done["added_manifests_count"]) == (8, 2)
    assert comparable(table) == before
    assert rows(table) == before_rows
    assert_readable(table)
    head = plain_lake.load("db.t").current_snapshot()
    assert head is not None and head.snapshot_id == done["snapshot_id"]
    assert head.summary is not None and head.summary.operation.value == "replace"
    assert head.summary["entries-processed"] == str(len(before))


def test_a_second_run_is_a_no_op(plain_lake: PlainLake) -> None:
    fragmented(plain_lake)
    [first] = call(plain_lake, "CALL rewrite_manifests('db.t')")
    assert call(plain_lake, "CALL rewrite_manifests('db.t')") == [
        {"rewritten_manifests_count": 0, "added_manifests_count": 0, "snapshot_id": None}
    ]
    assert plain_lake.load("db.t").current_snapshot().snapshot_id == first["snapshot_id"]


def test_entries_are_clustered_by_partition(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake, **{"commit.manifest.target-size-bytes": "9000"})
    [done] = call(plain_lake, "CALL rewrite_manifests('db.t')")
    assert done["added_manifests_count"] < done["rewritten_manifests_count"]
    data = [
        (e["manifest"]["manifest_path"], e["data_file"]["partition"]["name"])
        for e in entries(table)
        if not e["data_file"]["content"]
    ]
    manifests = list(dict.fromkeys(manifest for manifest, _ in data))
    per_manifest = {m: [name for manifest, name in data if manifest == m] for m in manifests}
    assert all(names == sorted(names) for names in per_manifest.values())
    assert len(per_manifest) > 1


def test_one_spec_only(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(3):
        append(table, [{"id": number, "name": "a"}])
    with table.update_spec() as update:
        update.add_identity("name")
    for number in range(3):
        append(table, [{"id": 10 + number, "name": "b"}])
    before = rows(table)
    [done] = call(plain_lake, "CALL rewrite_manifests('db.t', spec_id => 1)")
    assert (done["rewritten_manifests_count"], done["added_manifests_count"]) == (3, 1)
    assert rows(table) == before
    with pytest.raises(
        IcebergCompactError, match=r"rewrite_manifests: the table has no partition spec 9\. It has: 0, 1"
    ):
        call(plain_lake, "CALL rewrite_manifests('db.t', spec_id => 9)")


def test_empty_table_and_missing_branch(plain_lake: PlainLake, tmp_path: Path) -> None:
    make_table(plain_lake.catalog, "db.t")
    assert call(plain_lake, "CALL rewrite_manifests('db.t')")[0]["snapshot_id"] is None
    with pytest.raises(IcebergCompactError, match="branch 'dev' does not exist"):
        call(plain_lake, "CALL rewrite_manifests('db.t', branch => 'dev')")


def test_a_branch_is_rewritten_and_an_empty_main_left_alone(plain_lake: PlainLake) -> None:
    table = fragmented(plain_lake)
    main_never_written(table, "dev")
    before = comparable(table, "dev")
    [planned] = call(plain_lake, "CALL rewrite_manifests('db.t', branch => 'dev', dry_run => true)")
    [done] = call(plain_lake, "CALL rewrite_manifests('db.t', branch => 'dev')")
    assert {**planned, "snapshot_id": done["snapshot_id"]} == done
    written = plain_lake.load("db.t")
    assert written.metadata.refs["dev"].snapshot_id == done["snapshot_id"]
    assert list(written.metadata.refs) == ["dev"]
    assert comparable(written, "dev") == before
    assert call(plain_lake, "CALL rewrite_manifests('db.t')") == [
        {"rewritten_manifests_count": 0, "added_manifests_count": 0, "snapshot_id": None}
    ]
    assert call(plain_lake, "CALL maintain_table('db.t')")[-1]["outcome"] == "nothing to do"


def main_never_written(table: Any, branch: str) -> None:
    """Put the table's head on a branch and take `main` away, as where Java wrote to branches only."""
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, branch).commit()
    path = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    del metadata["refs"]["main"]
    path.write_text(json.dumps({**metadata, "current-snapshot-id": None, "snapshot-log": []}))


TWO_FIELDS = PartitionSpec(
    PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"),
    PartitionField(source_id=1, field_id=1001, transform=IdentityTransform(), name="id_part"),
)


def set_target(lake: PlainLake, target_bytes: int) -> None:
    lake.load("db.t").transaction().set_properties(
        {"commit.manifest.target-size-bytes": str(target_bytes)}
    ).commit_transaction()


def data_manifests(lake: PlainLake) -> list[Any]:
    table = lake.load("db.t")
    head = table.current_snapshot()
    assert head is not None
    return [manifest for manifest in head.manifests(table.io) if manifest.content == 0]


def rewrite(lake: PlainLake, arguments: str = "") -> tuple[int, int]:
    """The counts of a run: those of its dry run, and a second run changes nothing."""
    [planned] = call(lake, f"CALL rewrite_manifests('db.t'{arguments}, dry_run => true)")
    before = comparable(lake.load("db.t"))
    [done] = call(lake, f"CALL rewrite_manifests('db.t'{arguments})")
    assert {**planned, "snapshot_id": done["snapshot_id"]} == done
    assert comparable(lake.load("db.t")) == before
    assert_readable(lake.load("db.t"))
    assert call(lake, f"CALL rewrite_manifests('db.t'{arguments})")[0]["snapshot_id"] is None
    return done["rewritten_manifests_count"], done["added_manifests_count"]


def spans(lake: PlainLake, field: int = 0) -> list[tuple[bytes, bytes]]:
    return sorted((m.partitions[field].lower_bound, m.partitions[field].upper_bound) for m in data_manifests(lake))


def disjoint(found: list[tuple[bytes, bytes]]) -> bool:
    return all(before[1] <= after[0] for before, after in itertools.pairwise(found))


def test_manifests_that_reach_into_each_other_are_put_in_order(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", spec=BY_NAME)
    for number in range(4):
        append(table, [{"id": number, "name": f"n{i:02}"} for i in range(10)])
    set_target(plain_lake, max(manifest.manifest_length for manifest in data_manifests(plain_lake)))
    assert rewrite(plain_lake) == (4, 4)
    # Cut between partitions: all of a name is in one manifest.
    assert all(before[1] < after[0] for before, after in itertools.pairwise(spans(plain_lake)))


def test_manifests_in_order_are_left_alone(plain_lake: PlainLake) -> None:
    """Each holds names of its own, or all of one name, or a little of another's: nothing to gain."""
    table = make_table(plain_lake.catalog, "db.t", spec=BY_NAME)
    for first in (0, 6, 11):
        append(table, [{"id": first, "name": f"n{first + i:02}"} for i in range(6)])
    for number in range(2):
        append(table, [{"id": number, "name": "n50"}])
    set_target(plain_lake, min(manifest.manifest_length for manifest in data_manifests(plain_lake)))
    assert rewrite(plain_lake) == (0, 0)


def test_only_what_is_tangled_is_written_anew(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", spec=BY_NAME)
    for number in range(2):
        append(table, [{"id": number, "name": name} for name in ("a", "b", "c", None)])
    append(table, [{"id": 9, "name": name} for name in ("d", "e", "f", "g")])
    kept = data_manifests(plain_lake)[0].manifest_path
    set_target(plain_lake, max(manifest.manifest_length for manifest in data_manifests(plain_lake)))
    assert rewrite(plain_lake) == (2, 2)
    assert kept in {manifest.manifest_path for manifest in data_manifests(plain_lake)}
    assert [m.partitions[0].contains_null for m in data_manifests(plain_lake)].count(True) == 1


def test_a_manifest_far_above_the_target_is_split(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", spec=BY_NAME)
    append(table, [{"id": i, "name": f"n{i:03}"} for i in range(60)])
    length = data_manifests(plain_lake)[0].manifest_length
    set_target(plain_lake, length // 2 + 1)
    assert rewrite(plain_lake) == (0, 0)
    set_target(plain_lake, length // 3 + 1)
    assert rewrite(plain_lake) == (1, 3)
    assert disjoint(spans(plain_lake))


def test_there_are_never_more_manifests_than_files(plain_lake: PlainLake) -> None:
    fragmented(plain_lake, **{"commit.manifest.target-size-bytes": "100"})
    assert rewrite(plain_lake) == (6, 18)


def test_entries_are_clustered_by_the_fields_asked_for(plain_lake: PlainLake) -> None:
    table = make_table(plain_lake.catalog, "db.t", spec=TWO_FIELDS)
    for number in range(3):
        append(table, [{"id": i, "name": f"n{number}"} for i in range(8)])
    set_target(plain_lake, max(manifest.manifest_length for manifest in data_manifests(plain_lake)))
    # In order by name as they are.
    assert rewrite(plain_lake) == (0, 0)
    assert rewrite(plain_lake, ", sort_by => array('id_part')") == (3, 3)
    assert disjoint(spans(plain_lake, 1))
    # In order by another field now: no reason to undo it, until that is asked for.
    assert rewrite(plain_lake) == (0, 0)
    assert rewrite(plain_lake, ", sort_by => array('name', 'id_part')") == (3, 3)
    assert disjoint(spans(plain_lake))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "sort_by => array('nam')",
            r"sort_by names 'nam', which is not a partition field of spec 1. Its fields are: name",
        ),
        ("sort_by => array('nam')", r"Did you mean 'name'\?"),
        ("spec_id => 0, sort_by => array('name')", r"not a partition field of spec 0. It has no fields"),
    ],
)
def test_fields_that_the_spec_does_not_have_are_refused(plain_lake: PlainLake, arguments: str, message: str) -> None:
    table = make_table(plain_lake.catalog, "db.t")
    with table.update_spec() as update:
        update.add_identity("name")
    for dry_run in ("false", "true"):
        with pytest.raises(IcebergCompactError, match=message):
            call(plain_lake, f"CALL rewrite_manifests('db.t', {arguments}, dry_run => {dry_run})")

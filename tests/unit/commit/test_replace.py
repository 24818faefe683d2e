"""The REPLACE snapshot itself: summary, branches, dangling deletes, resume stamps, claims."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent, write_manifest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_compact_sql.commit.lease import LEASE_PROPERTY, read_lease, release_lease, take_lease
from iceberg_compact_sql.commit.model import Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.commit.run_stamps import group_fingerprint
from iceberg_compact_sql.errors import CommitConflictError
from iceberg_compact_sql.table.model import LiveFile
from iceberg_compact_sql.table.summary_keys import GROUPS, RUN_ID
from tests.support import oracle
from tests.support.handmade import (
    add_equality_deletes,
    add_position_deletes,
    append,
    commit_manifests,
    data_paths,
    make_catalog,
    make_table,
)
from tests.support.replacing import live_files, planned, replacement


def ordered(table: Table, branch: str = "main") -> list[LiveFile]:
    return sorted(live_files(table, branch), key=lambda f: (f.sequence_number, f.path))


def filled(folder: Path, files: int = 3, *, rows: int = 4, branch: str = "main", **options: object) -> Table:
    table = make_table(make_catalog(folder), **options)  # type: ignore[arg-type]
    for turn in range(files):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(rows)])
    return table


def live_deletes(table: Table, branch: str = "main") -> list[str]:
    return [e["data_file"]["file_path"] for e in oracle.entries(table, branch) if e["data_file"].get("content", 0)]


def summary_of(table: Table) -> dict[str, str]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.operation is Operation.REPLACE
    return dict(snapshot.summary.additional_properties)


def totals_by_hand(table: Table) -> dict[str, int]:
    live = [e["data_file"] for e in oracle.entries(table)]
    kinds = {kind: [f for f in live if f.get("content", 0) == kind] for kind in (0, 1, 2)}
    return {
        "total-data-files": len(kinds[0]),
        "total-records": sum(f["record_count"] for f in kinds[0]),
        "total-delete-files": len(kinds[1]) + len(kinds[2]),
        "total-position-deletes": sum(f["record_count"] for f in kinds[1]),
        "total-equality-deletes": sum(f["record_count"] for f in kinds[2]),
        "total-files-size": sum(f["file_size_in_bytes"] for f in live),
    }


@pytest.mark.parametrize("format_version", [1, 2])
def test_summary_counts_and_totals(tmp_path: Path, format_version: int) -> None:
    table = filled(tmp_path, format_version=format_version)
    if format_version == 2:
        add_position_deletes(table, {data_paths(table)[0]: [0, 1]})
        add_equality_deletes(table, [{"id": 999}], [1])
    files = ordered(table)
    work = replacement(table, files)
    report = commit_replacements(table, [work], state=planned(table), summary={"engine-name": "spark"})
    assert report.outcome is Outcome.COMMITTED
    summary = summary_of(table)
    assert {key: int(value) for key, value in summary.items() if key.startswith("total-")} == totals_by_hand(table)
    assert summary["deleted-data-files"] == "3"
    assert summary["added-data-files"] == "1"
    assert summary["deleted-records"] == "12"
    assert summary["added-records"] == str(work.added[0].rows)
    assert summary["removed-files-size"].isdigit()
    assert summary["added-files-size"] == str(work.added[0].size_bytes)
    assert summary["changed-partition-count"] == "1"
    assert summary["engine-name"] == "spark"
    if format_version == 2:
        assert summary["removed-delete-files"] == "2"
        assert (summary["removed-position-delete-files"], summary["removed-position-deletes"]) == ("1", "2")
        assert (summary["removed-equality-delete-files"], summary["removed-equality-deletes"]) == ("1", "1")
        assert report.removed_delete_files == 2


def test_partition_summaries_where_the_table_asks_for_them(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = filled(tmp_path, spec=spec, properties={"write.summary.partition-limit": "10"})
    commit_replacements(table, [replacement(table, ordered(table))], state=planned(table))
    summary = summary_of(table)
    assert summary["partition-summaries-included"] == "true"
    assert "deleted-data-files=3" in summary["partitions.name=k"]


def test_outputs_carry_the_planned_sequence_number(tmp_path: Path) -> None:
    table = filled(tmp_path)
    state = planned(table)
    commit_replacements(table, [replacement(table, ordered(table))], state=state)
    (entry,) = oracle.entries(table)
    assert entry["sequence_number"] == state.sequence_number == 3
    assert entry["file_sequence_number"] is None
    assert entry["manifest"]["sequence_number"] == 4
    assert entry["manifest"]["min_sequence_number"] == 3


def test_all_rows_deleted_leaves_no_file(tmp_path: Path) -> None:
    table = filled(tmp_path, files=2, rows=2)
    add_position_deletes(table, {path: [0, 1] for path in data_paths(table)})
    report = commit_replacements(table, [replacement(table, ordered(table))], state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert oracle.entries(table) == []
    assert report.removed_delete_files == 2


def test_side_branch_keeps_its_retention_and_main_stays(tmp_path: Path) -> None:
    table = filled(tmp_path)
    table.manage_snapshots().create_branch(
        table.metadata.current_snapshot_id or 0,
        "side",
        max_ref_age_ms=10**9,
        max_snapshot_age_ms=10**8,
        min_snapshots_to_keep=7,
    ).commit()
    append(table, [{"id": 500, "name": "k"}], branch="side")
    main = table.refresh().metadata.current_snapshot_id
    # pyiceberg's own append wipes the settings of the branch: set them again.
    table.manage_snapshots().create_tag(main or 0, "t").commit()
    head = table.metadata.refs["side"].snapshot_id
    table.manage_snapshots().remove_branch("side").commit()
    table.manage_snapshots().create_branch(
        head, "side", max_ref_age_ms=10**9, max_snapshot_age_ms=10**8, min_snapshots_to_keep=7
    ).commit()
    expected = oracle.rows(table, "side")
    state = planned(table, "side")
    work = replacement(table, ordered(table, "side"), branch="side")
    # Main moves meanwhile: another branch, so no conflict, but the sequence number is stale at first.
    append(table.catalog.load_table(table.name()), [{"id": 600, "name": "k"}])
    main_rows = oracle.rows(table)
    report = commit_replacements(table, [work], state=state)
    assert report.outcome is Outcome.COMMITTED
    assert oracle.rows(table, "side") == expected
    assert oracle.rows(table) == main_rows
    ref = table.metadata.refs["side"]
    assert ref.snapshot_id == report.snapshot_id
    assert (ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (10**9, 10**8, 7)


def test_delete_that_still_applies_elsewhere_stays(tmp_path: Path) -> None:
    table = filled(tmp_path)
    files = ordered(table)
    add_position_deletes(table, {file.path: [0] for file in files}, scoped=False)
    add_equality_deletes(table, [{"id": 1}, {"id": 21}], [1])
    expected = oracle.rows(table)
    report = commit_replacements(table, [replacement(table, files[:2])], state=planned(table))
    assert report.removed_delete_files == 0
    assert len(live_deletes(table)) == 2
    assert oracle.rows(table) == expected
    # The rest goes, and with it the deletes.
    rest = [file for file in live_files(table) if file.path == files[2].path]
    report = commit_replacements(table, [replacement(table, rest)], state=planned(table))
    assert report.removed_delete_files == 2
    assert live_deletes(table) == []
    assert oracle.rows(table) == expected


def test_global_equality_delete_looks_at_all_specs(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = filled(tmp_path, schema=schema)
    with table.update_spec() as spec:
        spec.add_identity("name")
    append(table, [{"id": 1, "name": "p"}, {"id": 2, "name": "p"}])
    add_equality_deletes(table, [{"id": 1}], [1], spec_id=0)
    expected = oracle.rows(table)
    old = [file for file in live_files(table) if file.spec_id == 0]
    report = commit_replacements(table, [replacement(table, old)], state=planned(table))
    assert report.removed_delete_files == 0
    assert oracle.rows(table) == expected
    new = [file for file in live_files(table) if file.spec_id == 1]
    assert commit_replacements(table, [replacement(table, new)], state=planned(table)).removed_delete_files == 1
    assert oracle.rows(table) == expected


def test_equality_delete_that_lands_during_compaction_survives_later_commits(tmp_path: Path) -> None:
    """Iceberg 1.12 drops it, and the deleted rows come back."""
    table = filled(tmp_path)
    state, work = planned(table), replacement(table, ordered(table))
    add_equality_deletes(table, [{"id": 11}], [1])
    expected = oracle.rows(table)
    assert commit_replacements(table, [work], state=state).removed_delete_files == 0
    assert oracle.rows(table) == expected
    append(table, [{"id": 70, "name": "k"}])
    late = [file for file in live_files(table) if file.sequence_number > state.sequence_number]
    assert commit_replacements(table, [replacement(table, late)], state=planned(table)).removed_delete_files == 0
    assert [row for row in oracle.rows(table) if row["id"] != 70] == expected


def test_dangling_deletes_stay_when_told_so(tmp_path: Path) -> None:
    table = filled(tmp_path)
    add_position_deletes(table, {data_paths(table)[0]: [0]})
    work = [replacement(table, ordered(table))]
    report = commit_replacements(table, work, state=planned(table), remove_dangling_deletes=False)
    assert report.removed_delete_files == 0
    assert len(live_deletes(table)) == 1


@pytest.mark.parametrize("scoped", [True, "bounds", False])
def test_a_fresh_delete_in_another_spelling_is_a_conflict(tmp_path: Path, scoped: bool | str) -> None:
    """Readers do not apply it, but a refused group costs little and a row that comes back is lost work."""
    table = filled(tmp_path)
    state, work = planned(table), [replacement(table, ordered(table))]
    add_position_deletes(table, {data_paths(table)[0].replace("file:///", "file:/"): [0]}, scoped=scoped)
    report = commit_replacements(table, work, state=state)
    assert "were deleted meanwhile" in report.conflicts[0]


@pytest.mark.parametrize("scoped", [True, "bounds", False])
def test_a_delete_that_may_name_a_live_file_is_not_obsolete(tmp_path: Path, scoped: bool | str) -> None:
    table = filled(tmp_path)
    first, *others = ordered(table)
    add_position_deletes(table, {first.path.replace("file:///", "file:/"): [0]}, scoped=scoped)
    expected = oracle.rows(table)
    report = commit_replacements(table, [replacement(table, others)], state=planned(table))
    assert report.removed_delete_files == 0
    assert len(live_deletes(table)) == 1
    # Nothing is left that it may name.
    left = [file for file in live_files(table) if file.path == first.path]
    assert commit_replacements(table, [replacement(table, left)], state=planned(table)).removed_delete_files == 1
    assert oracle.rows(table) == expected


def test_partition_deletes_are_judged_by_their_own_partition(tmp_path: Path) -> None:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    table = make_table(make_catalog(tmp_path), spec=spec)
    for turn in range(2):
        append(table, [{"id": turn * 10 + i, "name": name} for i, name in enumerate(["a", "b", None])])
    for name in ("a", "b", None):
        add_equality_deletes(table, [{"id": 0}, {"id": 11}], [1], partition=(name,))
    expected = oracle.rows(table)
    mine = [file for file in live_files(table) if file.partition == (None,)]
    report = commit_replacements(table, [replacement(table, mine)], state=planned(table))
    assert report.removed_delete_files == 1
    assert len(live_deletes(table)) == 2
    assert oracle.rows(table) == expected


def as_old_as_the_head(table: Table, path: str) -> None:
    """Give a live data file the head's sequence number, as if it had come in one commit with the head's deletes."""
    head = table.refresh().current_snapshot()
    assert head is not None and head.sequence_number is not None
    snapshot_id = table.metadata.new_snapshot_id()
    kept = [one for one in head.manifests(table.io) if one.content == ManifestContent.DELETES]
    output = table.io.new_output(f"{table.location()}/metadata/same-{snapshot_id}.avro")
    with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "gzip") as writer:
        for manifest in head.manifests(table.io):
            if manifest.content == ManifestContent.DATA:
                for entry in manifest.fetch_manifest_entry(table.io):
                    if entry.data_file.file_path == path:
                        entry.sequence_number = head.sequence_number
                    writer.existing(entry)
    manifests = [*kept, writer.to_manifest_file()]
    commit_manifests(table, manifests, snapshot_id, Operation.REPLACE, {}, "main")


def test_a_delete_of_the_same_commit_as_its_file_stays(tmp_path: Path) -> None:
    table = filled(tmp_path)
    target, *others = ordered(table)
    add_position_deletes(table, {target.path: [0]})
    expected = oracle.rows(table)
    as_old_as_the_head(table, target.path)
    assert oracle.rows(table) == expected
    work = replacement(table, [file for file in ordered(table) if file.path != target.path])
    assert len(work.removed) == len(others)
    assert commit_replacements(table, [work], state=planned(table)).removed_delete_files == 0
    assert oracle.rows(table) == expected


def test_files_of_one_group_only_once(tmp_path: Path) -> None:
    table = filled(tmp_path)
    files = ordered(table)
    work = [replacement(table, files[:2], key=0), replacement(table, files[1:], key=1)]
    report = commit_replacements(table, work, state=planned(table))
    assert report.committed == (0,)
    assert set(report.conflicts) == {1}


def test_nothing_to_commit_changes_nothing(tmp_path: Path) -> None:
    table = filled(tmp_path)
    before = table.metadata_location
    assert commit_replacements(table, [], state=planned(table)).outcome is Outcome.NOTHING_TO_COMMIT
    gone = LiveFile("file:///nowhere.parquet", "PARQUET", 0, (), 1, 1, 1, 1)
    report = commit_replacements(table, [Replacement(5, (gone,), (), 1)], state=planned(table))
    assert (report.outcome, list(report.conflicts)) == (Outcome.NOTHING_TO_COMMIT, [5])
    assert table.refresh().metadata_location == before


def test_a_later_sequence_number_than_planned_is_refused(tmp_path: Path) -> None:
    table = filled(tmp_path)
    work = Replacement(0, tuple(ordered(table)), (), 99)
    with pytest.raises(ValueError, match="beyond the planned"):
        commit_replacements(table, [work], state=planned(table))


def test_snapshots_say_which_run_made_them_and_from_which_groups(tmp_path: Path) -> None:
    table = filled(tmp_path, files=4)
    files = ordered(table)
    state = planned(table)
    parts = (files[:2], files[2:])
    for one in [replacement(table, part, key=key) for key, part in enumerate(parts)]:
        # Two commits of one plan, as with partial progress: the first is no conflict for the second.
        assert commit_replacements(table, [one], state=state, summary={RUN_ID: "run-1"}).committed == (one.key,)
    made = [s.summary for s in table.metadata.snapshots if s.summary is not None and s.summary.get(RUN_ID) == "run-1"]
    assert [summary.get(GROUPS) for summary in made] == [
        group_fingerprint(file.path for file in reversed(part)) for part in parts
    ]


def test_claim_is_refused_while_another_lease_lives(tmp_path: Path) -> None:
    table = filled(tmp_path)
    other = table.catalog.load_table(table.name())
    held = take_lease(table, "driver-1", 60_000)
    assert read_lease(table) == held
    with pytest.raises(CommitConflictError, match="claimed by 'driver-1'"):
        take_lease(other, "driver-2", 60_000)
    take_lease(table, "driver-1", 0)
    take_lease(other, "driver-2", 60_000)
    assert not release_lease(table, "driver-1")
    assert release_lease(other, "driver-2")
    assert LEASE_PROPERTY not in table.refresh().metadata.properties


def test_two_claims_in_the_same_moment_have_one_winner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = filled(tmp_path)
    other = table.catalog.load_table(table.name())
    send = table.catalog.commit_table

    def send_after_the_other(*arguments: object) -> object:
        monkeypatch.undo()
        take_lease(other, "driver-2", 60_000)
        return send(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(table.catalog, "commit_table", send_after_the_other)
    with pytest.raises(CommitConflictError, match="driver-2"):
        take_lease(table, "driver-1", 60_000)

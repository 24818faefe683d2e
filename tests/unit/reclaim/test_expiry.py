"""Expiry against real tables: what stays readable, what goes, and what may never go."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import AddSnapshotUpdate, SetPartitionStatisticsUpdate, SetSnapshotRefUpdate
from pyiceberg.types import LongType

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import (
    CommitConflictError,
    CommitUnknownError,
    IcebergCompactError,
    InvalidArgumentError,
    UnsupportedError,
)
from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, ExpiryResult, plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.reachability import FileKind
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from tests.support.reclaim import FUTURE_MS, append_ids, id_rows, ids_in, needed, new_catalog, new_table, on_disk

ALL = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return new_table(new_catalog(tmp_path))


def snapshot_ids(table: Table) -> set[int]:
    return {snapshot.snapshot_id for snapshot in table.refresh().metadata.snapshots}


def check_whole(table: Table) -> None:
    """Nothing needed is missing, nothing unneeded is left, no journal is left open."""
    table.refresh()
    assert needed(table) == on_disk(table)
    assert not list(Path(table.location().removeprefix("file://")).rglob("*.pending.json"))


def test_only_the_head_stays_and_only_its_files(table: Table) -> None:
    append_ids(table, 1, 2)
    table.overwrite(id_rows(3))
    head = append_ids(table, 4)
    plan = plan_expiry(table, ALL)
    before = on_disk(table)
    sizes = sum(Path(path.removeprefix("file:")).stat().st_size for path in before)
    result = run_expiry(table, ALL)
    assert snapshot_ids(table) == {head}
    assert ids_in(table) == [3, 4]
    check_whole(table)
    gone = before - on_disk(table)
    assert {f"file:{file.path.removeprefix('file://')}" for file in plan.files} == gone
    left = sum(Path(path.removeprefix("file:")).stat().st_size for path in on_disk(table))
    assert result.freed_bytes == sizes - left
    assert result.deleted[FileKind.DATA] == 1
    assert result.deleted[FileKind.MANIFEST_LIST] == result.expired_snapshots == len(plan.retention.expired)
    assert sum(result.deleted.values()) == len(gone)
    assert run_expiry(table, ALL).expired_snapshots == 0


def test_nothing_to_do_makes_no_commit(table: Table) -> None:
    append_ids(table, 1)
    location = table.metadata_location
    result = run_expiry(table, ALL)
    assert (result.expired_snapshots, dict(result.deleted)) == (0, {})
    assert table.refresh().metadata_location == location
    empty = new_table(table.catalog, "db.empty")
    assert run_expiry(empty, ALL).expired_snapshots == 0


def test_defaults_come_from_the_tables_properties(table: Table) -> None:
    heads = [append_ids(table, i) for i in range(4)]
    now = table.metadata.snapshots[-1].timestamp_ms + 1
    assert plan_expiry(table, ExpiryRequest(now_ms=now)).is_empty
    with table.transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "2"})
    plan = plan_expiry(table, ExpiryRequest(now_ms=now))
    assert plan.retention.kept == tuple(heads[2:])
    assert plan_expiry(table, ExpiryRequest(now_ms=now, retain_last=3)).retention.kept == tuple(heads[1:])


def test_branches_and_tags_keep_what_they_say(table: Table) -> None:
    first = append_ids(table, 1)
    table.manage_snapshots().create_tag(first, "first").commit()
    second = append_ids(table, 2)
    table.manage_snapshots().create_branch(second, "side").commit()
    side = append_ids(table, 10, branch="side")
    # pyiceberg's append wipes a branch's settings: the branch is made anew with them.
    table.manage_snapshots().remove_branch("side").commit()
    table.manage_snapshots().create_branch(side, "side", min_snapshots_to_keep=2).commit()
    third, fourth = append_ids(table, 3), append_ids(table, 4)
    run_expiry(table, ALL)
    assert snapshot_ids(table) == {first, second, side, fourth}
    assert third not in snapshot_ids(table)
    assert ids_in(table, first) == [1]
    assert ids_in(table, side) == [1, 2, 10]
    assert ids_in(table) == [1, 2, 3, 4]
    check_whole(table)


def test_a_ref_past_its_age_goes_and_main_never_does(table: Table) -> None:
    first = append_ids(table, 1)
    table.manage_snapshots().create_tag(first, "old", max_ref_age_ms=1).commit()
    head = append_ids(table, 2)
    plan = plan_expiry(table, ALL)
    assert plan.retention.removed_refs == ("old",)
    run_expiry(table, ALL)
    assert snapshot_ids(table) == {head}
    assert set(table.metadata.refs) == {"main"}
    check_whole(table)


def test_a_staged_snapshot_stays_only_while_it_is_young(table: Table) -> None:
    append_ids(table, 1)
    staged = append_ids(table, 2)
    head = append_ids(table, 3)
    # Rolled back past `staged`: main leads to a snapshot that does not descend from it.
    parentless = table.metadata.snapshot_by_id(head).model_copy(
        update={"snapshot_id": 77, "parent_snapshot_id": None, "sequence_number": 4}
    )
    table.catalog.commit_table(
        table,
        (),
        (
            AddSnapshotUpdate(snapshot=parentless),
            SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": 77}),
        ),
    )
    table.refresh()
    moment = table.metadata.snapshot_by_id(staged).timestamp_ms
    young = plan_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=moment))
    assert staged in young.retention.kept
    old = plan_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=moment + 1))
    assert staged in old.retention.expired


def test_a_snapshot_of_the_very_cutoff_is_not_older_than_it(table: Table) -> None:
    heads = []
    for number in range(3):
        heads.append(append_ids(table, number))
        # Two commits of one millisecond would be of one age.
        time.sleep(0.002)
    middle = table.refresh().metadata.snapshot_by_id(heads[1])
    assert middle is not None
    at = plan_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=middle.timestamp_ms))
    assert at.retention.expired == (heads[0],)
    after = plan_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=middle.timestamp_ms + 1))
    assert after.retention.expired == (heads[0], heads[1])


def test_explicit_ids_come_on_top_of_the_age(table: Table) -> None:
    heads = [append_ids(table, i) for i in range(4)]
    now = table.metadata.snapshots[-1].timestamp_ms
    run_expiry(table, ExpiryRequest(now_ms=now, snapshot_ids=(heads[1],)))
    assert snapshot_ids(table) == set(heads) - {heads[1]}
    assert ids_in(table, heads[2]) == [0, 1, 2]
    check_whole(table)
    assert [entry.snapshot_id for entry in table.metadata.snapshot_log] == heads[2:]
    assert table.metadata.snapshot_by_id(heads[2]).parent_snapshot_id == heads[1]


@pytest.mark.parametrize(
    ("which", "message"),
    [("head", "is the current snapshot"), ("tag", "is the head of tag keep"), ("unknown", "does not have")],
)
def test_ids_that_cannot_go_are_refused(table: Table, which: str, message: str) -> None:
    first = append_ids(table, 1)
    table.manage_snapshots().create_tag(first, "keep").commit()
    head = append_ids(table, 2)
    chosen = {"head": head, "tag": first, "unknown": 5}[which]
    with pytest.raises(InvalidArgumentError, match=message) as caught:
        run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, snapshot_ids=(chosen,)))
    assert (caught.value.argument, caught.value.value) == ("snapshot_ids", chosen)
    assert snapshot_ids(table) == {first, head}


def test_bad_requests_and_tables_without_gc_are_refused(table: Table) -> None:
    with pytest.raises(InvalidArgumentError, match="must be at least 1"):
        ExpiryRequest(now_ms=0, retain_last=0)
    append_ids(table, 1)
    append_ids(table, 2)
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(UnsupportedError, match=r"gc\.enabled"):
        run_expiry(table, ALL)


def test_statistics_go_with_their_snapshot_unless_reused(table: Table) -> None:
    first = append_ids(table, 1)
    head = append_ids(table, 2)
    folder = Path(table.location().removeprefix("file://"), "metadata")
    for name in ("own.puffin", "shared.puffin", "parts.parquet"):
        (folder / name).write_bytes(b"x" * 10)

    def statistics(snapshot_id: int, name: str) -> StatisticsFile:
        return StatisticsFile.model_validate(
            {"snapshot-id": snapshot_id, "statistics-path": f"file://{folder}/{name}", "file-size-in-bytes": 10,
             "file-footer-size-in-bytes": 1, "blob-metadata": []}
        )  # fmt: skip

    with table.update_statistics() as update:
        update.set_statistics(statistics(first, "shared.puffin"))
        update.set_statistics(statistics(head, "shared.puffin"))
    parts = PartitionStatisticsFile.model_validate(
        {"snapshot-id": first, "statistics-path": f"file://{folder}/parts.parquet", "file-size-in-bytes": 10}
    )
    change = SetPartitionStatisticsUpdate.model_validate({"partition-statistics": parts})
    table.catalog.commit_table(table, (), (change,))
    table.refresh()
    (folder / "own.puffin").unlink()
    result = run_expiry(table, ALL)
    table.refresh()
    assert [s.snapshot_id for s in table.metadata.statistics] == [head]
    assert table.metadata.partition_statistics == []
    assert result.deleted[FileKind.STATISTICS] == 1
    assert (folder / "shared.puffin").exists()
    assert not (folder / "parts.parquet").exists()


def test_a_file_deleted_and_added_again_stays(table: Table) -> None:
    append_ids(table, 1)
    path = next(iter(table.inspect.files()["file_path"].to_pylist()))
    table.delete()
    append_ids(table, 2)
    table.add_files([path])
    assert ids_in(table) == [1, 2]
    run_expiry(table, ALL)
    assert ids_in(table.refresh()) == [1, 2]
    check_whole(table)


def test_a_file_added_again_through_a_symbolic_link_stays(table: Table) -> None:
    append_ids(table, 1)
    [task] = table.scan().plan_files()
    home = Path(table.location().removeprefix("file://"))
    link = home.with_name("another-way")
    link.symlink_to(home)
    table.delete("id = 1")
    table.add_files([task.file.file_path.replace(str(home), f"{link}/.")])
    run_expiry(table, ALL)
    assert len(snapshot_ids(table)) == 1
    assert ids_in(table) == [1]


def test_keep_files_removes_metadata_only(table: Table) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    before = on_disk(table)
    result = run_expiry(table, ALL, ExpiryOptions(keep_files=True))
    assert result.expired_snapshots == 2
    assert dict(result.deleted) == {}
    assert on_disk(table) == before
    assert len(snapshot_ids(table)) == 1


def test_unused_schemas_and_specs_go_when_asked(table: Table) -> None:
    append_ids(table, 1)
    with table.update_schema() as update:
        update.add_column("extra", LongType())
    with table.update_spec() as update:
        update.add_identity("id")
    table.overwrite(id_rows(5).append_column("extra", [[7]]))
    request = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS, clean_expired_metadata=True)
    run_expiry(table, ALL)
    assert len(table.refresh().metadata.schemas) == 2
    run_expiry(table, request)
    table.refresh()
    assert [schema.schema_id for schema in table.metadata.schemas] == [table.metadata.current_schema_id]
    assert ids_in(table) == [5]
    assert table.metadata.default_spec_id in {spec.spec_id for spec in table.metadata.partition_specs}
    check_whole(table)


def test_a_schema_that_a_used_partition_spec_needs_stays(table: Table) -> None:
    for name in ("first", "second"):
        with table.update_schema() as update:
            update.add_column(name, LongType())
    with table.update_spec() as update:
        update.add_identity("name")
    append_ids(table, 1)
    with table.update_spec() as update:
        update.remove_field("name")
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    table.append(pa.table({"id": [2]}, schema=pa.schema([("id", pa.int64())])))
    knowing = max(schema.schema_id for schema in table.metadata.schemas if 2 in schema.field_ids)
    request = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS, clean_expired_metadata=True)
    run_expiry(table, request)
    left = {schema.schema_id for schema in table.refresh().metadata.schemas}
    assert left == {knowing, table.metadata.current_schema_id}
    assert plan_expiry(table, request).is_empty


def test_a_damaged_journal_is_named(table: Table) -> None:
    append_ids(table, 1)
    damaged = Path(table.location().removeprefix("file://"), "metadata", "_quarantine", "abc.pending.json")
    damaged.parent.mkdir()
    damaged.write_text("[[")
    with pytest.raises(IcebergCompactError, match=r"abc\.pending\.json, .* is damaged"):
        plan_expiry(table, ALL)


POINTS = ("expire.planned", "expire.validate", "expire.commit", "expire.committed", "expire.delete", "reclaim.delete")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("operation", ["tag", "branch", "rollback", "append"])
def test_whatever_happens_meanwhile_survives_with_its_files(table: Table, point: str, operation: str) -> None:
    heads = [append_ids(table, i) for i in range(3)]
    table.overwrite(id_rows(9))
    other = table.catalog.load_table("db.t")
    done: list[str] = []

    def meddle(reached: str, facts: object) -> None:
        if reached != point or done:
            return
        done.append(reached)
        current = other.catalog.load_table("db.t")
        if operation == "append":
            current.append(id_rows(50))
            return
        if current.metadata.snapshot_by_id(heads[1]) is None:
            return
        manage = current.manage_snapshots()
        if operation == "tag":
            manage.create_tag(heads[1], "keep").commit()
        elif operation == "branch":
            manage.create_branch(heads[1], "keep").commit()
        else:
            manage.rollback_to_snapshot(heads[1]).commit()

    with events.listening(meddle):
        run_expiry(table, ALL)
    table.refresh()
    assert done
    assert "main" in table.metadata.refs
    for ref in table.metadata.refs.values():
        table.scan(snapshot_id=ref.snapshot_id).to_arrow()
    if operation in ("tag", "branch", "rollback") and point in POINTS[:2]:
        kept = table.metadata.refs["main" if operation == "rollback" else "keep"]
        assert ids_in(table, kept.snapshot_id) == [0, 1]
    if operation == "append":
        assert ids_in(table) == [9, 50]
    assert needed(table) <= on_disk(table)


class Stop(Exception):
    """A crash of the process, as far as the table can tell."""


@pytest.mark.parametrize("point", POINTS)
def test_running_again_after_a_crash_finishes_the_work(table: Table, point: str) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    head = append_ids(table, 3)

    def crash(reached: str, facts: object) -> None:
        if reached == point:
            raise Stop

    # Past the commit a lost answer is recognised as success, and the run goes on by itself.
    with events.listening(crash), contextlib.suppress(Stop):
        run_expiry(table, ALL)
    assert needed(table.refresh()) <= on_disk(table)
    assert ids_in(table) == [2, 3]
    run_expiry(table, ALL)
    assert snapshot_ids(table) == {head}
    check_whole(table)


def test_running_again_counts_only_what_the_crash_left(table: Table) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    planned = plan_expiry(table, ALL)
    calls: list[object] = []

    def crash(reached: str, facts: object) -> None:
        if reached == "reclaim.delete":
            calls.append(facts)
            if len(calls) == 3:
                raise Stop

    with events.listening(crash), contextlib.suppress(Stop):
        run_expiry(table, ALL, ExpiryOptions(workers=1))
    left = [file for file in planned.files if Path(file.path.removeprefix("file://")).exists()]
    assert 0 < len(left) < len(planned.files)
    assert sorted(f.path for f in plan_expiry(table.refresh(), ALL).files) == sorted(f.path for f in left)
    result = run_expiry(table, ALL)
    assert (sum(result.deleted.values()), result.freed_bytes) == (len(left), sum(f.size_bytes for f in left))
    assert not list(Path(table.location().removeprefix("file://")).rglob("*.pending.json"))
    check_whole(table)


def test_a_failed_delete_is_counted_and_done_by_the_next_run(table: Table) -> None:
    append_ids(table, 1)
    path = Path(next(iter(table.inspect.files()["file_path"].to_pylist())).removeprefix("file://"))
    table.overwrite(id_rows(2))
    content = path.read_bytes()
    path.unlink()
    # A folder in the file's place cannot be deleted as a file.
    (path / "inner").mkdir(parents=True)
    result = run_expiry(table, ALL)
    assert result.failed_deletes == 1
    assert result.deleted[FileKind.DATA] == 0
    assert list(result.failures) == [f"file://{path}"]
    assert [file.path for file in plan_expiry(table.refresh(), ALL).files] == [f"file://{path}"]
    shutil.rmtree(path)
    path.write_bytes(content)
    result = run_expiry(table, ALL)
    assert (result.expired_snapshots, dict(result.deleted)) == (0, {FileKind.DATA: 1})
    assert result.freed_bytes == len(content)
    check_whole(table)


def test_files_already_gone_are_no_failure(table: Table) -> None:
    append_ids(table, 1)
    path = next(iter(table.inspect.files()["file_path"].to_pylist()))
    table.overwrite(id_rows(2))
    Path(path.removeprefix("file://")).unlink()
    result = run_expiry(table, ALL)
    assert result.failed_deletes == 0
    check_whole(table)


@pytest.mark.parametrize("damage", ["missing", "cut", "garbage"])
@pytest.mark.parametrize("which", ["manifest list", "manifest"])
@pytest.mark.parametrize("side", ["expired", "kept"])
def test_an_unreadable_manifest_stops_the_run_by_name(table: Table, damage: str, which: str, side: str) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    chosen = table.metadata.snapshots[0 if side == "expired" else -1]
    listed = chosen.manifests(table.io)
    manifest = next(m.manifest_path for m in listed if m.added_snapshot_id == chosen.snapshot_id)
    path = Path((chosen.manifest_list if which == "manifest list" else manifest).removeprefix("file://"))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(content[:-40] if damage == "cut" else b"not avro at all")
    before, location = on_disk(table), table.metadata_location
    with pytest.raises(IcebergCompactError, match=f"{which} .*{path.name} cannot be read"):
        run_expiry(table, ALL)
    assert on_disk(table) == before
    assert table.refresh().metadata_location == location


def test_a_table_made_again_under_the_name_is_left_alone(table: Table) -> None:
    append_ids(table, 1)
    append_ids(table, 2)
    table.catalog.drop_table("db.t")
    other = new_table(table.catalog)
    append_ids(other, 7)
    append_ids(other, 8)
    with pytest.raises(CommitConflictError, match="created again"):
        run_expiry(table, ALL)
    assert len(snapshot_ids(other)) == 2


def test_others_who_keep_winning_are_reported(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"commit.retry.num-retries": "1", "commit.retry.min-wait-ms": "1"})
    heads = [append_ids(table, i) for i in range(3)]
    made: list[str] = []

    def tag(reached: str, facts: object) -> None:
        if reached == "expire.validate":
            made.append(f"tag{len(made)}")
            table.catalog.load_table("db.t").manage_snapshots().create_tag(heads[len(made) - 1], made[-1]).commit()

    with events.listening(tag), pytest.raises(CommitConflictError, match="no snapshot was expired"):
        run_expiry(table, ALL)
    assert snapshot_ids(table) == set(heads)
    check_whole(table)


@pytest.mark.parametrize("point", ["expire.planned", "expire.validate"])
def test_of_two_expiries_at_once_each_counts_what_it_did(table: Table, point: str) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    planned = plan_expiry(table, ALL)
    winners: list[ExpiryResult] = []

    def other(reached: str, facts: object) -> None:
        if reached == point and not winners:
            winners.append(ExpiryResult())
            winners[0] = run_expiry(table.catalog.load_table("db.t"), ALL)

    with events.listening(other):
        loser = run_expiry(table, ALL)
    assert winners[0].expired_snapshots == len(planned.retention.expired) > 0
    assert sum(winners[0].deleted.values()) == len(planned.files)
    assert loser == ExpiryResult()
    check_whole(table)
    assert not list(Path(table.location().removeprefix("file://")).rglob("*.pending.json"))


def test_a_refused_removal_of_schemas_alone_is_no_success(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    append_ids(table, 1)
    with table.update_schema() as update:
        update.add_column("extra", LongType())
    table.overwrite(id_rows(2).append_column("extra", [[7]]))
    run_expiry(table, ALL)

    def break_off(catalog: SqlCatalog, *arguments: Any) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(SqlCatalog, "commit_table", break_off)
    with pytest.raises(CommitUnknownError):
        run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS, clean_expired_metadata=True))
    assert len(table.refresh().metadata.schemas) == 2


@pytest.mark.parametrize("point", ["expire.planned", "expire.validate"])
def test_a_table_that_forbids_it_or_goes_meanwhile_loses_no_file(table: Table, point: str) -> None:
    append_ids(table, 1)
    table.overwrite(id_rows(2))
    before = on_disk(table)

    def meanwhile(work: Callable[[], object]) -> Callable[[str, object], None]:
        def meddle(reached: str, facts: object) -> None:
            if reached == point:
                work()

        return meddle

    def forbid() -> None:
        current = table.catalog.load_table("db.t")
        if "gc.enabled" not in current.properties:
            current.transaction().set_properties({"gc.enabled": "false"}).commit_transaction()

    with events.listening(meanwhile(forbid)), pytest.raises(UnsupportedError, match=r"gc\.enabled"):
        run_expiry(table, ALL)
    assert len(snapshot_ids(table)) == 3
    table.transaction().remove_properties("gc.enabled").commit_transaction()
    with (
        events.listening(meanwhile(lambda: table.catalog.drop_table("db.t"))),
        pytest.raises(CommitConflictError, match="was dropped meanwhile"),
    ):
        run_expiry(table, ALL)
    assert on_disk(table) == before


def test_old_metadata_files_go_by_the_tables_own_setting(tmp_path: Path) -> None:
    settings = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    table = new_table(new_catalog(tmp_path), **settings)
    append_ids(table, 1)
    append_ids(table, 2)
    folder = Path(table.location().removeprefix("file://"), "metadata")
    run_expiry(table, ALL)
    assert len(list(folder.glob("*.metadata.json"))) == 2


def test_the_journal_of_a_run_that_has_not_committed_deletes_nothing(table: Table) -> None:
    """Another run's list of files is checked against the table as it is now."""
    append_ids(table, 1)
    append_ids(table, 2)
    folder = Path(table.location().removeprefix("file://"), "metadata", "_quarantine")
    folder.mkdir()
    files = [[path, "data", 1] for path in table.inspect.files()["file_path"].to_pylist()]
    (folder / "abc.pending.json").write_text(json.dumps(files))
    run_expiry(table, ALL)
    assert ids_in(table.refresh()) == [1, 2]
    assert (folder / "abc.pending.json").exists()

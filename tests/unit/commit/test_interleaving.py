"""Every concurrent operation at every point of a commit: the rows are the oracle's after each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.model import CommitReport, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.errors import CommitConflictError
from tests.support import oracle
from tests.support.handmade import (
    SIMPLE_SCHEMA,
    add_equality_deletes,
    add_position_deletes,
    append,
    make_catalog,
    make_table,
)
from tests.support.replacing import live_files, planned, replacement

POINTS = ["before", "commit.validate", "commit.send", "commit.sent"]
MORE_POINTS = ["commit.write", "commit.confirm"]
LANDED = {"commit.sent", "commit.confirm"}


def build(folder: Path, *, partitioned: bool = False) -> Table:
    schema = SIMPLE_SCHEMA
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")) if partitioned else None
    table = make_table(make_catalog(folder), schema=schema, spec=spec)
    for turn in range(4):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(5)])
    return table


def by_first_id(table: Table) -> list[str]:
    """Data files in the order in which they were appended."""
    return [file.path for file in sorted(live_files(table), key=lambda f: f.sequence_number)]


def op_append(table: Table) -> None:
    append(table, [{"id": 99, "name": "k"}])


def op_scoped_position_delete(table: Table) -> None:
    add_position_deletes(table, {by_first_id(table)[0]: [2]})


def op_position_delete_then_append(table: Table) -> None:
    add_position_deletes(table, {by_first_id(table)[0]: [2]}, scoped="bounds")
    append(table, [{"id": 98, "name": "k"}])


def op_partition_position_delete(table: Table) -> None:
    paths = by_first_id(table)
    add_position_deletes(table, {path: [1] for path in paths[:2]}, scoped=False)


def op_java_spelled_position_delete(table: Table) -> None:
    add_position_deletes(table, {by_first_id(table)[0].replace("file:///", "file:/"): [3]})


def op_equality_delete(table: Table) -> None:
    partition = ("k",) if table.spec().fields else ()
    add_equality_deletes(table, [{"id": 3}, {"id": 21}], [1], partition=partition)


def op_equality_delete_then_append(table: Table) -> None:
    op_equality_delete(table)
    append(table, [{"id": 3, "name": "k"}])


def op_overwrite(table: Table) -> None:
    table.refresh()
    table.delete("id == 1")


def op_drop_of_inputs(table: Table) -> None:
    table.refresh()
    table.delete("id >= 20")


def op_second_compactor(table: Table) -> None:
    files = sorted(live_files(table), key=lambda f: f.sequence_number)[:2]
    report = commit_replacements(table, [replacement(table, files)], state=planned(table))
    assert report.outcome is Outcome.COMMITTED


def op_add_column(table: Table) -> None:
    with table.refresh().update_schema() as update:
        update.add_column("extra", LongType())


def op_rename_column(table: Table) -> None:
    with table.refresh().update_schema() as update:
        update.rename_column("id", "number")


def op_spec_change(table: Table) -> None:
    with table.refresh().update_spec() as update:
        update.add_field("id", IdentityTransform(), "id_part")


def op_tag(table: Table) -> None:
    table.refresh().manage_snapshots().create_tag(table.metadata.current_snapshot_id, "keep").commit()


def op_branch(table: Table) -> None:
    table.refresh().manage_snapshots().create_branch(table.metadata.current_snapshot_id, "side").commit()


def op_commit_on_other_branch(table: Table) -> None:
    op_branch(table)
    append(table, [{"id": 77, "name": "k"}], branch="side")


def op_property(table: Table) -> None:
    with table.refresh().transaction() as change:
        change.set_properties({"owner": "someone"})


def op_expire(table: Table) -> None:
    append(table, [{"id": 55, "name": "k"}])
    head = table.refresh().metadata.current_snapshot_id
    olds = [s.snapshot_id for s in table.metadata.snapshots if s.snapshot_id != head]
    table.maintenance.expire_snapshots().by_ids(olds).commit()


def op_rollback(table: Table) -> None:
    table.refresh()
    first = table.metadata.snapshots[1].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=first).commit()


def op_drop_and_recreate(table: Table) -> None:
    catalog = table.catalog
    catalog.drop_table(table.name())
    append(make_table(catalog), [{"id": 1, "name": "new"}])


OPERATIONS: dict[str, Callable[[Table], None]] = {
    name.removeprefix("op_"): function for name, function in list(globals().items()) if name.startswith("op_")
}
# The keys of replacements that an operation forbids when it comes before the commit landed.
FORBIDDEN: dict[str, set[int]] = {
    "scoped_position_delete": {0},
    "position_delete_then_append": {0},
    "partition_position_delete": {0},
    "java_spelled_position_delete": {0},
    "overwrite": {0},
    "drop_of_inputs": {1},
    "second_compactor": {0},
    "expire": {0, 1},
    "rollback": {0, 1},
}


SENTENCES = {
    "overwrite": "was removed meanwhile",
    "drop_of_inputs": "was removed meanwhile",
    "second_compactor": "was removed meanwhile",
    "expire": "no longer in the history of branch 'main'",
    "rollback": "no longer in the history of branch 'main'",
}


class At:
    """Runs an operation once, at a point, on a table object of its own; keeps the rows that it left."""

    def __init__(self, table: Table, point: str, operation: Callable[[Table], None]) -> None:
        self.table, self.point, self.operation = table, point, operation
        self.rows: list[dict[str, object]] | None = None

    def __call__(self, point: str, facts: Mapping[str, object]) -> None:
        if point == self.point and self.rows is None:
            self.rows = []
            other = self.table.catalog.load_table(self.table.name())
            self.operation(other)
            self.rows = oracle.rows(other.catalog.load_table(other.name()))


def halves(table: Table) -> list[Replacement]:
    files = sorted(live_files(table), key=lambda f: f.sequence_number)
    return [replacement(table, files[:2], key=0), replacement(table, files[2:], key=1)]


def run(table: Table, point: str, operation: Callable[[Table], None]) -> tuple[At, CommitReport | CommitConflictError]:
    state, work = planned(table), halves(table)
    at = At(table, point, operation)
    with events.listening(at):
        at("before", {})
        try:
            report: CommitReport | CommitConflictError = commit_replacements(table, work, state=state)
        except CommitConflictError as error:
            report = error
    return at, report


@pytest.mark.parametrize(
    ("name", "point"),
    [
        *((name, point) for name in OPERATIONS for point in POINTS),
        *((name, point) for name in ("append", "position_delete_then_append", "overwrite") for point in MORE_POINTS),
    ],
)
def test_operation_at_point(tmp_path: Path, name: str, point: str) -> None:
    table = build(tmp_path)
    at, report = run(table, point, OPERATIONS[name])
    table = table.catalog.load_table(table.name())
    assert at.rows is not None, "the point was never reached"
    assert oracle.rows(table) == at.rows
    oracle.assert_readable(table)
    if name == "drop_and_recreate":
        assert point in LANDED or isinstance(report, CommitConflictError)
        return
    assert isinstance(report, CommitReport)
    forbidden = FORBIDDEN.get(name, set())
    if point in LANDED:
        # The operation came after our snapshot: it removes or rolls back what we did, never the other way round.
        assert report.outcome in (Outcome.COMMITTED, Outcome.UNKNOWN)
        assert report.outcome is Outcome.COMMITTED or name in ("rollback", "expire")
    else:
        # A partition-scoped delete names a range of paths: it may forbid more than it touches, never less.
        assert set(report.conflicts) >= forbidden
        assert set(report.conflicts) == forbidden or name == "partition_position_delete"
        assert set(report.committed) == {0, 1} - set(report.conflicts)
        for sentence in report.conflicts.values():
            assert SENTENCES.get(name, "rows of input file") in sentence
        expected = Outcome.COMMITTED if report.committed else Outcome.NOTHING_TO_COMMIT
        assert report.outcome is expected
    if point != "commit.send":
        return
    # What was left out is planned again on the new head, and goes in.
    again = [replacement(table, files, key=0)] if (files := live_files(table)) else []
    if again and len({file.spec_id for file in files}) == 1:
        assert commit_replacements(table, again, state=planned(table)).outcome is Outcome.COMMITTED
        assert oracle.rows(table) == at.rows
        oracle.assert_readable(table)


@pytest.mark.parametrize(
    "name", ["equality_delete", "equality_delete_then_append", "partition_position_delete", "append"]
)
def test_operation_on_a_partitioned_table(tmp_path: Path, name: str) -> None:
    table = build(tmp_path, partitioned=True)
    at, report = run(table, "commit.send", OPERATIONS[name])
    assert isinstance(report, CommitReport)
    assert set(report.conflicts) >= FORBIDDEN.get(name, set())
    assert oracle.rows(table) == at.rows


def test_equality_delete_forbids_only_without_the_old_sequence_number(tmp_path: Path) -> None:
    table = build(tmp_path)
    state = planned(table)
    files = sorted(live_files(table), key=lambda f: f.sequence_number)
    work = [replacement(table, files[:2], key=0, keep_sequence_number=False), replacement(table, files[2:], key=1)]
    op_equality_delete(table.catalog.load_table(table.name()))
    expected = oracle.rows(table)
    report = commit_replacements(table, work, state=state)
    assert report.committed == (1,)
    assert "equality delete" in report.conflicts[0]
    assert oracle.rows(table) == expected


def test_delete_carried_into_another_manifest_still_forbids(tmp_path: Path) -> None:
    """The delete's manifest is rewritten by a later commit, so that its entry is EXISTING in a manifest of another."""
    table = build(tmp_path)
    state, work = planned(table), halves(table)
    other = table.catalog.load_table(table.name())
    add_position_deletes(other, {by_first_id(other)[0]: [2]})
    paths = append(other, [{"id": 60, "name": "k"}])
    add_position_deletes(other, {paths[0]: [0]})
    # Compacting the new file away removes its delete and rewrites nothing else; then merge the delete manifests.
    files = [file for file in live_files(other) if file.path == paths[0]]
    with other.transaction() as change:
        change.set_properties({"commit.manifest.min-count-to-merge": "2"})
    assert commit_replacements(other, [replacement(other, files)], state=planned(other)).removed_delete_files == 1
    expected = oracle.rows(table)
    report = commit_replacements(table, work, state=state)
    assert set(report.conflicts) == {0}
    assert oracle.rows(table) == expected


def test_a_schema_can_be_read_after_conflicting_changes(tmp_path: Path) -> None:
    """Our snapshot carries the schema of the head that it landed on."""
    table = make_table(
        make_catalog(tmp_path),
        schema=Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())),
    )
    append(table, [{"id": 1, "name": "a"}])
    state, work = planned(table), [replacement(table, live_files(table))]
    op_add_column(table.catalog.load_table(table.name()))
    report = commit_replacements(table, work, state=state)
    assert report.outcome is Outcome.COMMITTED
    snapshot = table.metadata.snapshot_by_id(report.snapshot_id or 0)
    assert snapshot is not None
    assert snapshot.schema_id == table.metadata.current_schema_id

"""A state machine of writers and compactors against a dict: every branch reads what the dict says, after each step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.model import CommitInterrupted, Outcome, Replacement
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.table.model import LiveFile, PlannedState
from tests.support import oracle
from tests.support.handmade import add_equality_deletes, add_position_deletes, append, make_catalog, make_table
from tests.support.replacing import live_files, planned, replacement

NAMES = ["a", "b", None]


class Compaction(RuleBasedStateMachine):
    """Plans are made, other things happen, and only then are they committed; a crash may hit the commit."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="commit-model-"))
        self.rows: dict[int, str | None] = {}
        self.next_id = 0
        self.pending: list[tuple[PlannedState, list[Replacement]]] = []

    @initialize(partitioned=st.booleans())
    def start(self, partitioned: bool) -> None:
        self.partitioned = partitioned
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name")) if partitioned else None
        self.table = make_table(
            make_catalog(self.folder), spec=spec, properties={"commit.manifest.min-count-to-merge": "4"}
        )
        self.append(2)
        self.append(2)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        new = {self.next_id + i: NAMES[(self.next_id + i) % 3] for i in range(count)}
        self.next_id += count
        append(self.table, [{"id": key, "name": name} for key, name in new.items()])
        self.rows |= new

    def _files(self) -> list[LiveFile]:
        return sorted(live_files(self.table), key=lambda file: file.path)

    @rule(pick=st.integers(0, 50), scoped=st.sampled_from([True, False, "bounds"]))
    def delete_by_position(self, pick: int, scoped: Any) -> None:
        files = self._files()
        if not files:
            return
        file = files[pick % len(files)]
        before = oracle.rows(self.table, only_files={file.path})
        add_position_deletes(self.table, {file.path: [pick % file.rows]}, scoped=scoped)
        after = oracle.rows(self.table, only_files={file.path})
        for row in before:
            if row not in after:
                del self.rows[row["id"]]

    @precondition(lambda self: self.rows)
    @rule(pick=st.integers(0, 50))
    def delete_by_equality(self, pick: int) -> None:
        victim = sorted(self.rows)[pick % len(self.rows)]
        partition = (self.rows[victim],) if self.partitioned else ()
        add_equality_deletes(self.table, [{"id": victim}], [1], partition=partition)
        del self.rows[victim]

    @precondition(lambda self: self.rows)
    @rule(pick=st.integers(0, 50))
    def upsert(self, pick: int) -> None:
        """An equality delete of a key, then the key again: the delete must not reach the new row."""
        key = sorted(self.rows)[pick % len(self.rows)]
        name = self.rows[key]
        add_equality_deletes(self.table, [{"id": key}], [1], partition=(name,) if self.partitioned else ())
        append(self.table, [{"id": key, "name": name}])

    @rule()
    def add_column(self) -> None:
        with self.table.refresh().update_schema() as update:
            update.add_column(f"c{len(self.table.schema().fields)}", self.table.schema().fields[1].field_type)

    @rule(split=st.integers(1, 4))
    def plan(self, split: int) -> None:
        groups: dict[Any, list[LiveFile]] = {}
        for number, file in enumerate(self._files()):
            groups.setdefault((file.spec_id, file.partition, number % split), []).append(file)
        state = planned(self.table)
        work = [replacement(self.table, files, key=key) for key, files in enumerate(groups.values())]
        if work:
            self.pending.append((state, work))

    @precondition(lambda self: self.pending)
    @rule(
        which=st.integers(0, 5),
        crash=st.sampled_from([None, None, "commit.validate", "commit.write", "commit.send", "commit.sent"]),
    )
    def commit(self, which: int, crash: str | None) -> None:
        state, work = self.pending.pop(which % len(self.pending))

        def fail(point: str, facts: object) -> None:
            if point == crash:
                raise KeyboardInterrupt

        with events.listening(fail):
            try:
                report = commit_replacements(self.table, work, state=state)
            except CommitInterrupted as interrupted:
                report = interrupted.report
        assert report.outcome is not Outcome.UNKNOWN
        if report.outcome is not Outcome.FAILED:
            assert sorted([*report.committed, *report.conflicts]) == [one.key for one in work]

    @invariant()
    def rows_are_those_of_the_dict(self) -> None:
        if hasattr(self, "table"):
            found = {row["id"]: row["name"] for row in oracle.rows(self.table)}
            assert found == self.rows
            assert len(oracle.rows(self.table)) == len(self.rows)
            oracle.assert_readable(self.table)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            self.table.catalog.close()
        shutil.rmtree(self.folder)


Compaction.TestCase.settings = settings(max_examples=8, stateful_step_count=12)
TestCompaction = Compaction.TestCase

"""Random histories with expiry and orphan removal in between: every ref keeps its rows, every needed file stays."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from tests.support.reclaim import DAY_MS, append_ids, id_rows, ids_in, needed, new_catalog, new_table, on_disk

LATER_MS = int(time.time() * 1000) + 30 * DAY_MS


class History:
    """A table, and for each snapshot the rows that it must show for as long as it exists."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(seed)
        self.table = new_table(new_catalog(folder))
        self.expected: dict[int, list[int]] = {}
        self.next_id = 0

    def note(self) -> None:
        for snapshot in self.table.refresh().metadata.snapshots:
            if snapshot.snapshot_id not in self.expected:
                self.expected[snapshot.snapshot_id] = ids_in(self.table, snapshot.snapshot_id)

    def append(self) -> None:
        branches = [n for n, r in self.table.metadata.refs.items() if r.snapshot_ref_type.value == "branch"] or ["main"]
        count = self.dice.randint(1, 3)
        append_ids(self.table, *range(self.next_id, self.next_id + count), branch=self.dice.choice(branches))
        self.next_id += count

    def overwrite(self) -> None:
        self.table.overwrite(id_rows(self.next_id))
        self.next_id += 1

    def delete(self) -> None:
        live = ids_in(self.table)
        if live:
            self.table.delete(f"id == {self.dice.choice(live)}")

    def ref(self) -> None:
        snapshots = [snapshot.snapshot_id for snapshot in self.table.metadata.snapshots]
        if snapshots:
            manage, name = self.table.manage_snapshots(), f"ref{len(self.expected)}-{self.dice.randrange(10**6)}"
            make = self.dice.choice([manage.create_tag, manage.create_branch])
            make(self.dice.choice(snapshots), name).commit()

    def drop_ref(self) -> None:
        others = [name for name in self.table.metadata.refs if name != "main"]
        if others:
            name = self.dice.choice(others)
            manage = self.table.manage_snapshots()
            kind = self.table.metadata.refs[name].snapshot_ref_type.value
            (manage.remove_tag if kind == "tag" else manage.remove_branch)(name).commit()

    def roll_back(self) -> None:
        lineage = [entry.snapshot_id for entry in self.table.history()]
        if lineage:
            chosen = self.dice.choice(lineage)
            if self.table.metadata.snapshot_by_id(chosen) and chosen in _ancestors(self.table):
                self.table.manage_snapshots().rollback_to_snapshot(chosen).commit()

    def expire(self) -> None:
        times = [snapshot.timestamp_ms for snapshot in self.table.metadata.snapshots] or [LATER_MS]
        request = ExpiryRequest(
            now_ms=LATER_MS,
            older_than_ms=self.dice.choice([LATER_MS, self.dice.choice(times)]),
            retain_last=self.dice.choice([None, 1, 2, 3]),
            clean_expired_metadata=self.dice.random() < 0.5,
        )
        before, planned = on_disk(self.table), plan_expiry(self.table, request)
        run_expiry(self.table, request, ExpiryOptions(workers=self.dice.choice([None, 1])))
        self.table.refresh()
        gone = {f"file:{file.path.removeprefix('file://')}" for file in planned.files}
        assert before - on_disk(self.table) == gone
        assert not gone & needed(self.table)

    def orphans(self) -> None:
        search = OrphanSearch(self.table, OrphanRequest(now_ms=LATER_MS, force=True))
        assert all(gone for _, gone in search.delete(search.find()))
        assert on_disk(self.table) == needed(self.table)

    def check(self) -> None:
        metadata = self.table.refresh().metadata
        assert needed(self.table) <= on_disk(self.table)
        for snapshot in metadata.snapshots:
            assert ids_in(self.table, snapshot.snapshot_id) == self.expected[snapshot.snapshot_id]
        assert all(metadata.snapshot_by_id(ref.snapshot_id) is not None for ref in metadata.refs.values())


def _ancestors(table: Table) -> set[int]:
    found: set[int] = set()
    at = table.current_snapshot()
    while at is not None:
        found.add(at.snapshot_id)
        at = table.metadata.snapshot_by_id(at.parent_snapshot_id) if at.parent_snapshot_id else None
    return found


@pytest.mark.parametrize("number", range(6))
def test_whatever_remains_reads_as_before(tmp_path: Path, number: int, seed: int) -> None:
    history = History(tmp_path, seed + number)
    steps = [history.append] * 4 + [history.overwrite, history.delete, history.ref, history.ref, history.drop_ref]
    steps += [history.roll_back, history.expire, history.expire, history.orphans]
    history.append()
    history.note()
    for _ in range(18):
        history.table.refresh()
        history.dice.choice(steps)()
        history.note()
        history.check()

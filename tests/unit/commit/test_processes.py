"""Real processes: a driver that is killed at each point, and writers that race on one table."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.commit.replace import commit_replacements
from tests.support import oracle
from tests.support.handmade import append, make_catalog, make_table
from tests.support.replacing import live_files, planned, replacement

ROOT = Path(__file__).resolve().parents[3]
DIES_AT = """
import os, signal, sys
from pathlib import Path
from iceberg_compact_sql import events
from iceberg_compact_sql.commit.replace import commit_replacements
from tests.support.handmade import make_catalog
from tests.support.replacing import live_files, planned, replacement

def die(point, facts):
    if point == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

table = make_catalog(Path(sys.argv[1])).load_table("db.t")
work = [replacement(table, live_files(table))]
with events.listening(die):
    commit_replacements(table, work, state=planned(table), summary={"iceberg-compact.run-id": "killed"})
"""


@pytest.mark.parametrize(
    ("point", "landed"),
    [("commit.write", False), ("commit.send", False), ("commit.sent", True)],
)
def test_a_killed_driver_leaves_a_table_that_reads_and_can_be_compacted(
    tmp_path: Path, point: str, landed: bool
) -> None:
    table = make_table(make_catalog(tmp_path))
    for turn in range(3):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(4)])
    expected = oracle.rows(table)
    ended = subprocess.run([sys.executable, "-c", DIES_AT, str(tmp_path), point], cwd=ROOT, timeout=120, check=False)
    assert ended.returncode == -9
    table.refresh()
    assert oracle.rows(table) == expected
    oracle.assert_readable(table)
    assert len(live_files(table)) == (1 if landed else 3)
    report = commit_replacements(table, [replacement(table, live_files(table))], state=planned(table))
    assert report.outcome is Outcome.COMMITTED
    assert oracle.rows(table) == expected


def test_two_compactors_and_a_writer_race(tmp_path: Path) -> None:
    """Whatever order the threads run in: every acknowledged row is there once, and somebody compacted."""
    folder = tmp_path
    table = make_table(make_catalog(folder), properties={"commit.retry.num-retries": "20"})
    for turn in range(6):
        append(table, [{"id": turn, "name": "k"}])
    acknowledged: list[int] = list(range(6))
    committed: list[int] = []
    errors: list[BaseException] = []

    def own_table() -> Table:
        return make_catalog(folder).load_table("db.t")

    def write() -> None:
        mine = own_table()
        for number in range(100, 106):
            try:
                mine.refresh()
                append(mine, [{"id": number, "name": "k"}])
                acknowledged.append(number)
            except CommitFailedException:
                continue

    def compact() -> None:
        mine = own_table()
        for _ in range(3):
            state = planned(mine)
            files = sorted(live_files(mine, snapshot_id=state.snapshot_id), key=lambda file: file.path)
            parts = [files[: len(files) // 2], files[len(files) // 2 :]]
            work = [replacement(mine, part, key=key, state=state) for key, part in enumerate(parts) if part]
            report = commit_replacements(mine, work, state=state)
            assert report.outcome in (Outcome.COMMITTED, Outcome.NOTHING_TO_COMMIT, Outcome.FAILED), report
            committed.extend(report.committed)

    def guarded(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (write, compact, compact)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not errors
    assert committed
    assert sorted(row["id"] for row in oracle.rows(table)) == sorted(acknowledged)
    oracle.assert_readable(table)

"""The same commit on a hadoop catalog: a version file that exists already is a conflict, and everything else holds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.commit.lease import release_lease, take_lease
from iceberg_compact_sql.commit.model import CommitReport
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.errors import CommitConflictError
from tests.support import oracle
from tests.support.handmade import append, make_table
from tests.support.replacing import live_files, planned
from tests.unit.commit.test_interleaving import FORBIDDEN, OPERATIONS, At, halves


def build(folder: Path) -> Table:
    catalog = HadoopCatalog("h", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = make_table(catalog)
    for turn in range(4):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(5)])
    return table


@pytest.mark.parametrize(
    "name",
    [
        "append",
        "position_delete_then_append",
        "equality_delete_then_append",
        "second_compactor",
        "add_column",
        "commit_on_other_branch",
        "rollback",
    ],
)
def test_operation_before_the_commit_on_a_hadoop_catalog(tmp_path: Path, name: str) -> None:
    table = build(tmp_path)
    state, work = planned(table), halves(table)
    at = At(table, "commit.send", OPERATIONS[name])
    with events.listening(at):
        report: CommitReport = commit_replacements(table, work, state=state)
    assert oracle.rows(table) == at.rows
    oracle.assert_readable(table)
    assert set(report.conflicts) == FORBIDDEN.get(name, set())
    assert set(report.committed) == {0, 1} - set(report.conflicts)


def test_claim_on_a_hadoop_catalog(tmp_path: Path) -> None:
    table = build(tmp_path)
    take_lease(table, "driver-1", 60_000)
    with pytest.raises(CommitConflictError, match="driver-1"):
        take_lease(table.catalog.load_table(table.name()), "driver-2", 60_000)
    assert release_lease(table, "driver-1")
    assert live_files(table)

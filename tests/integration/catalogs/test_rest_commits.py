"""Commits through Iceberg's own REST server with a broken network between: the rows and the report stay true."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.commit.lease import release_lease, take_lease
from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.commit.replace import commit_replacements
from iceberg_compact_sql.errors import CommitConflictError
from tests.support import oracle
from tests.support.fault_proxy import FaultProxy
from tests.support.handmade import add_equality_deletes, add_position_deletes, append, data_paths, make_table
from tests.support.replacing import live_files, planned, replacement
from tests.support.rest import RestServer


@pytest.fixture
def proxy(rest_server: RestServer) -> Iterator[FaultProxy]:
    with FaultProxy(rest_server.uri) as running:
        yield running


def build(rest_server: RestServer, proxy: FaultProxy) -> Table:
    """A table of three files with a position delete, seen through the proxy."""
    catalog = RestCatalog("rest", uri=proxy.uri)
    table = make_table(catalog, f"{rest_server.new_namespace()}.t")
    for turn in range(3):
        append(table, [{"id": turn * 10 + i, "name": "k"} for i in range(4)])
    add_position_deletes(table, {data_paths(table)[0]: [1]})
    return table


@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (("pass",), Outcome.COMMITTED),
        (("slow",), Outcome.COMMITTED),
        (("503", "pass"), Outcome.COMMITTED),
        (("reset-before", "pass"), Outcome.COMMITTED),
        (("reset-after",), Outcome.COMMITTED),
        (("504-after",), Outcome.COMMITTED),
        (("duplicate",), Outcome.COMMITTED),
        (("late", "pass"), Outcome.COMMITTED),
        (("503", "reset-before", "late", "duplicate"), Outcome.COMMITTED),
        (("503",) * 9, Outcome.UNKNOWN),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else value.name,
)
def test_a_broken_network_loses_and_doubles_nothing(
    rest_server: RestServer, proxy: FaultProxy, script: tuple[str, ...], outcome: Outcome
) -> None:
    table = build(rest_server, proxy)
    expected = oracle.rows(table)
    state, work = planned(table), [replacement(table, live_files(table))]
    proxy.script(*script)
    report = commit_replacements(table, work, state=state)
    proxy.settle()
    proxy.script("pass")
    assert report.outcome is outcome
    fresh = rest_server.open().load_table(table.name())
    assert oracle.rows(fresh) == expected
    oracle.assert_readable(fresh)
    if outcome is Outcome.COMMITTED:
        replaced = [s.snapshot_id for s in fresh.metadata.snapshots if s.snapshot_id == report.snapshot_id]
        assert len(replaced) == 1
        assert report.committed == (0,)
        assert len(live_files(fresh)) == 1
    else:
        assert str(report.snapshot_id) in report.detail


@pytest.mark.parametrize("fault", ["pass", "reset-after", "503"])
def test_others_write_through_the_same_server(rest_server: RestServer, proxy: FaultProxy, fault: str) -> None:
    table = build(rest_server, proxy)
    files = sorted(live_files(table), key=lambda file: file.sequence_number)
    state = planned(table)
    work = [replacement(table, files[:1], key=0), replacement(table, files[1:], key=1)]
    other = rest_server.open().load_table(table.name())
    seen: list[str] = []

    def race(point: str, facts: object) -> None:
        if point == "commit.send" and not seen:
            seen.append(point)
            append(other, [{"id": 50, "name": "k"}])
            add_equality_deletes(other, [{"id": 11}], [1])
            add_position_deletes(other, {files[0].path: [3]})
            seen.extend(str(row) for row in oracle.rows(other))

    proxy.script(fault)
    with events.listening(race):
        report = commit_replacements(table, work, state=state)
    assert report.committed == (1,)
    assert set(report.conflicts) == {0}
    assert [str(row) for row in oracle.rows(table)] == seen[1:]


def test_a_claim_on_a_rest_table(rest_server: RestServer, proxy: FaultProxy) -> None:
    table = build(rest_server, proxy)
    take_lease(table, "driver-1", 60_000)
    other = rest_server.open().load_table(table.name())
    with pytest.raises(CommitConflictError, match="driver-1"):
        take_lease(other, "driver-2", 60_000)
    assert release_lease(table, "driver-1")
    take_lease(other, "driver-2", 60_000)

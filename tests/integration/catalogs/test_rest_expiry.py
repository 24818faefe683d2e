"""Expiry through Iceberg's own REST server: requirements that the server knows, and refs that slip in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError, IcebergCompactError
from iceberg_compact_sql.reclaim.expiry import run_expiry
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from tests.support.echoing_proxy import EchoingProxy
from tests.support.reclaim import FUTURE_MS, SCHEMA, append_ids, id_rows, ids_in, needed, on_disk
from tests.support.rest import RestServer

ALL = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)


@pytest.fixture
def table(rest_server: RestServer) -> Table:
    name = f"{rest_server.new_namespace()}.t"
    table: Table = rest_server.open().create_table(name, SCHEMA)
    for i in range(3):
        append_ids(table, i)
    table.overwrite(id_rows(9))
    return table


def test_only_the_head_and_its_files_stay(table: Table) -> None:
    result = run_expiry(table, ALL)
    assert result.expired_snapshots == 4
    table.refresh()
    assert ids_in(table) == [9]
    assert needed(table) == on_disk(table)
    assert run_expiry(table, ALL).expired_snapshots == 0


def test_a_refusal_that_is_the_echo_of_our_own_commit_is_a_success(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    land = RestCatalog.commit_table

    def land_and_refuse(catalog: RestCatalog, *arguments: Any) -> None:
        land(catalog, *arguments)
        raise CommitFailedException("409 to a request that a proxy sent twice")

    monkeypatch.setattr(RestCatalog, "commit_table", land_and_refuse)
    result = run_expiry(table, ALL)
    assert (result.expired_snapshots, sum(result.deleted.values())) == (4, 11)
    assert needed(table.refresh()) == on_disk(table)


def test_a_short_metadata_log_without_other_commits_is_enough(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "1"})
    assert run_expiry(table, ALL).expired_snapshots == 4
    assert needed(table.refresh()) == on_disk(table)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_refusal_for_good_is_a_failure_and_no_doubt(table: Table, rest_server: RestServer, status: int) -> None:
    with EchoingProxy(rest_server.uri, {}) as proxy:
        behind = RestCatalog("rest", uri=proxy.uri).load_table(table.name())
        before = on_disk(table)
        proxy.refuse(status, "not allowed here")
        with pytest.raises(IcebergCompactError, match=r"refused to expire 4 snapshots .*not allowed here") as raised:
            run_expiry(behind, ALL)
        assert not isinstance(raised.value, CommitUnknownError)
        assert proxy.refused and "no snapshot was expired and no file deleted" in str(raised.value)
        # The journal went too: nothing was expired, so no later run may delete those files.
        assert on_disk(table) == before and len(table.refresh().metadata.snapshots) == 5
        proxy.refuse(500, "broken")
        with pytest.raises(CommitUnknownError, match="did not say"):
            run_expiry(behind, ALL)


@pytest.mark.parametrize(
    ("retained", "others", "counts"),
    [(1, "same", (4, 0)), (4, "same", (1, 0)), (1, "oldest", (1, 3))],
    ids=["refused", "nothing left", "some left"],
)
def test_of_two_expiries_at_once_each_counts_what_it_did(
    table: Table, retained: int, others: str, counts: tuple[int, int]
) -> None:
    """The server refuses to remove more snapshots than there are, and removes what is left of others without a word."""
    mine = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS, retain_last=retained)
    oldest = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=0, snapshot_ids=(table.metadata.snapshots[0].snapshot_id,))
    winners: list[int] = []

    def other(reached: str, facts: object) -> None:
        if reached == "expire.validate" and not winners:
            winners.append(0)
            theirs = mine if others == "same" else oldest
            winners[0] = run_expiry(table.catalog.load_table(table.name()), theirs).expired_snapshots

    with events.listening(other):
        loser = run_expiry(table, mine)
    assert (winners[0], loser.expired_snapshots) == counts
    assert needed(table.refresh()) == on_disk(table)


@pytest.mark.parametrize("point", ["expire.planned", "expire.validate"])
@pytest.mark.parametrize("operation", ["append", "rollback"])
def test_a_ref_that_moves_meanwhile_has_it_planned_again(table: Table, point: str, operation: str) -> None:
    first = table.metadata.snapshots[1].snapshot_id
    done: list[str] = []

    def meddle(reached: str, facts: object) -> None:
        if reached == point and not done:
            done.append(reached)
            other = table.catalog.load_table(table.name())
            if operation == "append":
                other.append(id_rows(50))
            else:
                other.manage_snapshots().rollback_to_snapshot(first).commit()

    with events.listening(meddle):
        run_expiry(table, ALL)
    assert done
    assert ids_in(table.refresh()) == ([9, 50] if operation == "append" else [0, 1])
    assert needed(table) <= on_disk(table)


@pytest.mark.parametrize(
    "properties",
    [{}, {"write.metadata.compression-codec": "gzip"}, {"write.metadata.previous-versions-max": "1"}],
    ids=["plain", "gzip", "short log"],
)
def test_a_tag_that_slips_in_keeps_its_files(table: Table, properties: dict[str, str]) -> None:
    """The server cannot be asked that no ref was added: the loss is seen afterwards, and nothing is deleted."""
    with table.transaction() as change:
        change.set_properties(properties)
    first = table.metadata.snapshots[1].snapshot_id
    before = on_disk(table)
    made: list[str] = []

    def tag(reached: str, facts: object) -> None:
        if reached == "expire.validate" and not made:
            other = table.catalog.load_table(table.name())
            other.manage_snapshots().create_tag(first, "slipped").commit()
            made.append(other.metadata_location)

    with events.listening(tag):
        try:
            run_expiry(table, ALL)
        except CommitConflictError as error:
            short = "write.metadata.previous-versions-max" in properties
            assert "no longer has the version" in str(error) if short else "slipped" in str(error)
            assert short or made[0] in str(error)
            assert before <= on_disk(table)
            return
    # A server that keeps what a ref needs is fine too.
    kept = table.refresh().metadata.refs["slipped"].snapshot_id
    assert ids_in(table, kept) == [0, 1]
    assert needed(table) <= on_disk(table)
    assert Path(made[0].removeprefix("file:")).exists()

"""What journals and quarantined files may claim: one table uuid, found after moves, closed by restoring."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.procedures.restore_quarantine import PROCEDURE
from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.find_records import find_records
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from iceberg_compact_sql.storage import open_store
from iceberg_compact_sql.storage.kinds.bounded import BoundedStore
from iceberg_compact_sql.storage.local import LocalStore
from iceberg_compact_sql.storage.request_timeouts import RequestTimeouts
from iceberg_compact_sql.storage.stores import Stores
from tests.support.reclaim import (
    DAY_MS,
    FUTURE_MS,
    append_ids,
    id_rows,
    ids_in,
    needed,
    new_catalog,
    new_table,
    on_disk,
)

ALL = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)
ASIDE = ExpiryOptions(quarantine_ms=7 * DAY_MS)


class Stop(Exception):
    """A crash of the process, as far as the table can tell."""


class _Opened:
    def __init__(self, table: Table) -> None:
        self.table = table


class _Context(Context):
    """A context that opens the table of a test."""

    def __init__(self, table: Table, now_ms: int) -> None:
        super().__init__(SessionView(), now_ms=now_ms)
        self._table = table

    def open_table(self, name: str) -> Any:
        return _Opened(self._table.catalog.load_table(self._table.name()))


def restore(table: Table, *, dry_run: bool = False, now_ms: int = FUTURE_MS) -> list[tuple[str, bool]]:
    given = PROCEDURE.run(_Context(table, now_ms), {"table": "t", "dry_run": dry_run})
    return [(row[0].removeprefix("file://"), row[2]) for row in given]


def crash_at(point: str, after: int = 0) -> Callable[[str, object], None]:
    seen: list[str] = []

    def listener(reached: str, facts: object) -> None:
        if reached == point:
            seen.append(reached)
            if len(seen) > after:
                raise Stop

    return listener


def crashed_expiry(table: Table, point: str, after: int = 0, options: ExpiryOptions | None = None) -> None:
    chosen = options or ExpiryOptions(quarantine_ms=7 * DAY_MS, workers=1)
    with events.listening(crash_at(point, after)), contextlib.suppress(Stop):
        run_expiry(table, ALL, chosen)


def history(table: Table) -> None:
    append_ids(table, 1)
    append_ids(table, 2)
    table.overwrite(id_rows(3))


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return new_catalog(tmp_path)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    made = new_table(catalog)
    history(made)
    return made


def quarantined_files(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and "_quarantine" in path.parts]
    return [path for path in files if not path.name.endswith(".json")]


def disk(table: Table) -> set[str]:
    """Every file of the table that is not metadata.json, wherever its metadata folder is."""
    return {path for path in needed(table) if Path(path.removeprefix("file:")).exists()}


@pytest.mark.parametrize("point", ["expire.committed", "expire.delete", "reclaim.delete", "reclaim.move"])
def test_an_expiry_leaves_the_journals_of_another_table_in_the_same_folder_alone(
    catalog: SqlCatalog, tmp_path: Path, point: str
) -> None:
    shared = {"write.metadata.path": f"file://{tmp_path}/shared"}
    first, second = new_table(catalog, "db.a", **shared), new_table(catalog, "db.b", **shared)
    history(first)
    history(second)
    planned = {file.path for file in plan_expiry(first, ALL).files}
    crashed_expiry(first, point, options=ExpiryOptions(workers=1) if point != "reclaim.move" else None)
    left = {path for path in planned if Path(path.removeprefix("file://")).exists()}
    assert left
    run_expiry(second, ALL)
    assert {path for path in planned if Path(path.removeprefix("file://")).exists()} == left
    assert restore(second) == []
    run_expiry(first, ALL)
    assert not any(Path(path.removeprefix("file://")).exists() for path in planned)
    for table in (first.refresh(), second.refresh()):
        assert ids_in(table) == [3]
        assert disk(table) == needed(table)


def test_a_record_of_another_uuid_inside_the_own_folder_is_left_alone(table: Table) -> None:
    crashed_expiry(table, "expire.delete")
    [journal] = Path(table.location().removeprefix("file://")).rglob("*.pending.json")
    assert str(table.metadata.table_uuid) in journal.parts
    record = json.loads(journal.read_text())
    record["table-uuid"] = "0" * 8 + "-0000-0000-0000-" + "0" * 12
    journal.write_text(json.dumps(record))
    assert find_records(Stores(table.io), table.refresh().metadata).pending == []
    run_expiry(table, ALL)
    assert journal.exists()


def test_a_flipped_bit_in_a_journal_deletes_nothing(table: Table) -> None:
    crashed_expiry(table, "expire.delete")
    [journal] = Path(table.location().removeprefix("file://")).rglob("*.pending.json")
    journal.write_bytes(journal.read_bytes().replace(b"00000-0", b"00000-1", 1))
    before = on_disk(table)
    with pytest.raises(IcebergCompactError, match="its files do not have its checksum"):
        run_expiry(table, ALL)
    assert on_disk(table) == before


@pytest.mark.parametrize("moved", [0, 2, 5])
def test_what_was_restored_is_not_deleted_by_the_next_expiry(table: Table, moved: int) -> None:
    before = on_disk(table)
    crashed_expiry(table, "reclaim.move", after=moved)
    assert sum(back for _, back in restore(table)) == moved
    assert on_disk(table) == before
    result = run_expiry(table, ALL)
    assert dict(result.deleted) == {}
    assert on_disk(table) == before
    assert ids_in(table.refresh()) == [3]


def test_an_interrupted_restore_leaves_no_journal_that_deletes_what_came_back(table: Table) -> None:
    before = on_disk(table)
    crashed_expiry(table, "reclaim.move", after=4)
    with events.listening(crash_at("restore.journals_closed")), pytest.raises(Stop):
        restore(table)
    run_expiry(table, ALL)
    assert all(back for _, back in restore(table))
    assert on_disk(table) == before


def test_what_an_interrupted_run_was_to_move_aside_is_not_deleted_by_a_plain_expiry(table: Table) -> None:
    before = on_disk(table)
    crashed_expiry(table, "reclaim.move", after=2)
    result = run_expiry(table, ALL)
    assert result.freed_bytes == 0
    assert needed(table.refresh()) == on_disk(table)
    assert all(back for _, back in restore(table))
    assert on_disk(table) == before


@pytest.mark.parametrize("point", ["expire.committed", "expire.delete", "reclaim.move"])
def test_what_an_interrupted_run_was_to_move_aside_is_not_deleted_as_an_orphan(table: Table, point: str) -> None:
    before = on_disk(table)
    crashed_expiry(table, point, after=2 if point == "reclaim.move" else 0)
    search = OrphanSearch(table.refresh(), OrphanRequest(now_ms=FUTURE_MS, force=True))
    assert all(done for _, done in search.delete(search.find()))
    assert needed(table.refresh()) == on_disk(table)
    assert all(back for _, back in restore(table))
    assert on_disk(table) == before


def test_a_journal_closed_by_a_restore_while_an_expiry_reads_it_claims_nothing(table: Table) -> None:
    before = on_disk(table)
    crashed_expiry(table, "reclaim.move", after=3)

    class Slow(Stores):
        """Restores between the reading of a journal and the look at its files."""

        done = False

        def stat(self, path: str) -> Any:
            if not self.done:
                Slow.done = True
                restore(table)
            return super().stat(path)

    from iceberg_compact_sql.reclaim.journals import not_yet_deleted

    stores = Slow(table.io, workers=1)
    pending = find_records(stores, table.refresh().metadata).pending
    assert len(pending) == 1
    assert not_yet_deleted(stores, pending) == []
    assert on_disk(table) == before


def set_location(table: Table, location: str) -> None:
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=location),))
    table.refresh()


def set_metadata_path(table: Table, location: str) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.path": f"{location}/elsewhere"})


@pytest.mark.parametrize("move", [set_location, set_metadata_path])
@pytest.mark.parametrize("commits", [0, 3])
def test_files_are_found_after_the_table_moved(
    table: Table, tmp_path: Path, move: Callable[[Table, str], None], commits: int
) -> None:
    before = on_disk(table)
    run_expiry(table, ALL, ASIDE)
    moved = before - on_disk(table)
    home = Path(table.location().removeprefix("file://"))
    files = len(quarantined_files(home))
    assert files == len(moved) > 5
    with table.transaction() as change:
        # A short log: what it forgot is found in the logs of older metadata files.
        change.set_properties({"write.metadata.previous-versions-max": "2"})
    move(table, f"file://{tmp_path}/moved")
    for number in range(commits):
        append_ids(table, 10 + number)
    run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS - DAY_MS, older_than_ms=FUTURE_MS))
    assert len(restore(table, dry_run=True)) == files
    assert len(restore(table)) == files
    assert all(Path(path.removeprefix("file:")).exists() for path in moved)
    assert restore(table) == []


def test_files_of_an_earlier_folder_go_when_their_time_is_over(table: Table, tmp_path: Path) -> None:
    run_expiry(table, ALL, ASIDE)
    set_metadata_path(table, f"file://{tmp_path}/moved")
    assert quarantined_files(tmp_path)
    run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS + 8 * DAY_MS, older_than_ms=FUTURE_MS))
    assert quarantined_files(tmp_path) == []


def test_quarantined_files_that_the_table_needs_again_stay_past_their_time(table: Table, tmp_path: Path) -> None:
    old = table.metadata_location
    before = on_disk(table)
    run_expiry(table, ALL, ASIDE)
    newest = table.refresh().metadata_location
    table.catalog.drop_table("db.t")
    # Going back for good: no newer version of the table is left.
    Path(newest.removeprefix("file://")).unlink()
    again = table.catalog.register_table("db.t", old)
    files = len(quarantined_files(tmp_path))
    for path in on_disk(again):
        assert path in before
    # Only manifest lists and manifests come back, so that the table can be read; its data is still aside.
    home = Path(again.location().removeprefix("file://"))
    for aside in quarantined_files(home):
        if aside.suffix == ".avro":
            original = Path("/" + str(aside).split("/_quarantine/")[1].split("/", 3)[3])
            shutil.copy(aside, original)
    search = OrphanSearch(again, OrphanRequest(now_ms=FUTURE_MS + 30 * DAY_MS))
    list(search.delete(search.find()))
    assert len(quarantined_files(tmp_path)) == files
    assert all(back or path.endswith(".avro") for path, back in restore(again))
    assert ids_in(again, again.metadata.snapshots[1].snapshot_id) == [1, 2]


def test_a_restore_during_the_moves_keeps_the_listing_and_loses_no_file(table: Table) -> None:
    before = on_disk(table)
    seen: list[str] = []
    now_ms = FUTURE_MS + 60_000

    def meddle(reached: str, facts: object) -> None:
        if reached == "reclaim.move":
            seen.append(reached)
            if len(seen) == 4:
                assert [back for _, back in restore(table, now_ms=now_ms)] == [True] * 3

    with events.listening(meddle):
        run_expiry(table, ALL, ExpiryOptions(quarantine_ms=7 * DAY_MS, workers=1))
    assert len(quarantined_files(Path(table.location().removeprefix("file://")))) == len(seen) - 3
    assert len(restore(table, now_ms=now_ms)) == len(seen) - 3
    assert on_disk(table) == before
    home = Path(table.location().removeprefix("file://"))
    assert not list(home.rglob("moved.json"))


class _LateMoves(LocalStore):
    """A local disk on which files move after the caller has given up."""

    def __init__(self, released: threading.Event, movers: list[threading.Thread]) -> None:
        super().__init__()
        self._released, self._movers = released, movers

    def move(self, source: str, target: str) -> None:
        self._movers.append(threading.current_thread())
        assert self._released.wait(60)
        super().move(source, target)


def test_files_that_move_after_the_run_has_given_up_are_restored(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run counts as one that still moves files: a restore before the moves keeps its listing."""
    released, movers = threading.Event(), list[threading.Thread]()
    limits = RequestTimeouts(answer_seconds=0.3, attempts=1)
    with monkeypatch.context() as late:
        late.setattr(open_store, "LocalStore", lambda: BoundedStore(_LateMoves(released, movers), limits))
        before = {path.removeprefix("file:") for path in disk(table)}
        result = run_expiry(table.catalog.load_table(table.name()), ALL, ASIDE)
        assert result.failures and restore(table) == []
        released.set()
        for mover in movers:
            mover.join(60)
    moved = {path for path in before if not Path(path).exists()}
    assert len(moved) == len(movers) == len(result.failures)
    assert {path for path, ok in restore(table) if ok} == moved
    assert all(Path(path).exists() for path in before)


def test_files_without_a_listing_are_found_restored_and_purged(table: Table) -> None:
    home = Path(table.location().removeprefix("file://"))
    before = on_disk(table)
    run_expiry(table, ALL, ASIDE)
    [listing] = home.rglob("moved.json")
    listing.unlink()
    assert len(restore(table, dry_run=True)) == len(quarantined_files(home)) > 0
    assert all(back for _, back in restore(table))
    assert on_disk(table) == before

    other = new_table(table.catalog, "db.other")
    history(other)
    run_expiry(other, ALL, ASIDE)
    home = Path(other.location().removeprefix("file://"))
    [listing] = home.rglob("moved.json")
    listing.unlink()
    for now_ms, left in ((FUTURE_MS, True), (FUTURE_MS + 8 * DAY_MS, False)):
        search = OrphanSearch(other.refresh(), OrphanRequest(now_ms=now_ms))
        list(search.delete(search.find()))
        assert bool(quarantined_files(home)) is left


@pytest.mark.parametrize("name", ["a b+c.parquet", "100%25.parquet", "ümläut.parquet", "x#y?z=1.parquet", "%.parquet"])
def test_odd_names_follow_from_the_name_alone(table: Table, name: str) -> None:
    home = Path(table.location().removeprefix("file://"))
    left = home / "data" / "k=%2F" / name
    left.parent.mkdir()
    left.write_bytes(b"odd")
    search = OrphanSearch(table, OrphanRequest(now_ms=FUTURE_MS, quarantine_ms=DAY_MS))
    assert [gone for _, gone in search.delete(search.find())] == [True]
    [listing] = home.rglob("moved.json")
    listing.unlink()
    assert restore(table) == [(str(left), True)]
    assert left.read_bytes() == b"odd"


def test_the_listing_of_a_crashed_run_goes_after_its_time(table: Table) -> None:
    crashed_expiry(table, "reclaim.move", after=2)
    home = Path(table.location().removeprefix("file://"))
    assert len(restore(table, now_ms=FUTURE_MS + 1)) == 2
    assert list(home.rglob("moved.json"))
    assert restore(table, now_ms=FUTURE_MS + 2 * DAY_MS) == []
    assert not list(home.rglob("moved.json"))


def as_earlier_version(table: Table) -> list[Path]:
    """Turn a finished quarantine into what 0.1.0 wrote: no uuid, numbered names."""
    home = Path(table.location().removeprefix("file://"))
    [listing] = home.parent.parent.parent.rglob("moved.json")
    record = json.loads(listing.read_text())
    folder = listing.parents[2] / "0123456789abcdef"
    folder.mkdir()
    files = []
    for at, (original, aside, size) in enumerate(record["files"]):
        target = folder / f"{at}-{original.rsplit('/', 1)[-1]}"
        Path(aside.removeprefix("file://")).rename(target)
        files.append([original, f"file://{target}", size])
    keep = {key: record[key] for key in ("moved_at_ms", "delete_after_ms")}
    (folder / "moved.json").write_text(json.dumps({**keep, "files": files}))
    listing.unlink()
    return [Path(file[1].removeprefix("file://")) for file in files]


def test_what_an_earlier_version_moved_aside_is_restored(table: Table) -> None:
    before = on_disk(table)
    run_expiry(table, ALL, ASIDE)
    assert len(as_earlier_version(table)) == len(restore(table)) > 0
    assert on_disk(table) == before


def test_what_an_earlier_version_left_in_a_shared_folder_is_reported_and_left_alone(
    catalog: SqlCatalog, tmp_path: Path
) -> None:
    shared = {"write.metadata.path": f"file://{tmp_path}/shared"}
    first, second = new_table(catalog, "db.a", **shared), new_table(catalog, "db.b", **shared)
    history(first)
    history(second)
    run_expiry(first, ALL, ASIDE)
    files = as_earlier_version(first)
    for table in (first, second):
        run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS + 30 * DAY_MS, older_than_ms=FUTURE_MS))
        assert sorted(restore(table)) == sorted((str(path), False) for path in files)
    assert all(path.exists() for path in files)


def test_the_journal_of_an_earlier_version_is_finished_if_the_folder_is_the_tables_own(table: Table) -> None:
    crashed_expiry(table, "expire.delete", options=ExpiryOptions())
    [journal] = Path(table.location().removeprefix("file://")).rglob("*.pending.json")
    (journal.parents[1] / journal.name).write_text(json.dumps(json.loads(journal.read_text())["files"]))
    journal.unlink()
    assert sum(run_expiry(table, ALL).deleted.values()) > 0
    assert needed(table.refresh()) == on_disk(table)


def test_a_listing_that_points_outside_its_folder_is_refused(table: Table) -> None:
    run_expiry(table, ALL, ASIDE)
    [listing] = Path(table.location().removeprefix("file://")).rglob("moved.json")
    record = json.loads(listing.read_text())
    live = table.refresh().inspect.files()["file_path"].to_pylist()[0]
    record["files"][0][1] = live
    del record["sha256"]
    listing.write_text(json.dumps(record))
    with pytest.raises(IcebergCompactError, match="which is outside its folder"):
        run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS + 30 * DAY_MS, older_than_ms=FUTURE_MS))
    assert Path(live.removeprefix("file://")).exists()


def test_only_what_this_run_removed_counts_as_freed(table: Table) -> None:
    planned = plan_expiry(table, ALL).files
    gone = [file for file in planned if file.path.endswith(".parquet")]
    for file in gone:
        Path(file.path.removeprefix("file://")).unlink()
    result = run_expiry(table, ALL)
    assert result.freed_bytes == sum(file.size_bytes for file in planned if file not in gone) > 0

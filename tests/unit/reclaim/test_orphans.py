"""Orphans against real tables and folders: what is found, what is spared, what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import (
    CommitConflictError,
    IcebergCompactError,
    InvalidArgumentError,
    UnsupportedError,
)
from iceberg_compact_sql.reclaim import quarantine
from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, run_expiry
from iceberg_compact_sql.reclaim.find_records import Records, find_records
from iceberg_compact_sql.reclaim.orphans import OrphanPlan, OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.protocol import StoredFile
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

NOW_MS = int(time.time() * 1000) + 10 * DAY_MS


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = new_table(new_catalog(tmp_path))
    for i in range(3):
        append_ids(table, i)
    return table


def folder(table: Table) -> Path:
    return Path(split_location(table.location()).path)


def leave(table: Table, name: str, content: bytes = b"orphan") -> Path:
    path = folder(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def request(**changes: object) -> OrphanRequest:
    return OrphanRequest(now_ms=NOW_MS, **changes)  # type: ignore[arg-type]


def found(table: Table, **changes: object) -> list[str]:
    plan = OrphanSearch(table, request(**changes)).find()
    return [str(Path(split_location(file.path).path).relative_to(folder(table))) for file in plan.orphans]


def clean(table: Table, **changes: object) -> tuple[OrphanPlan, dict[str, bool]]:
    search = OrphanSearch(table, request(**changes))
    plan = search.find()
    return plan, {file.path: gone for file, gone in search.delete(plan)}


def test_orphans_go_and_everything_else_stays(table: Table) -> None:
    one, two = leave(table, "data/left.parquet"), leave(table, "metadata/left.avro", b"12345678")
    before = set(folder(table).rglob("*"))
    plan, outcome = clean(table)
    assert [(file.path, file.size_bytes) for file in plan.orphans] == [(f"file://{one}", 6), (f"file://{two}", 8)]
    assert outcome == {f"file://{one}": True, f"file://{two}": True}
    assert before - set(folder(table).rglob("*")) == {one, two}
    assert ids_in(table.refresh()) == [0, 1, 2]
    assert found(table) == []


def test_files_that_expiry_leaves_are_found(table: Table) -> None:
    table.overwrite(id_rows(9))
    request_ = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)
    run_expiry(table, request_, ExpiryOptions(keep_files=True))
    clean(table.refresh(), force=True)
    assert needed(table) == on_disk(table)
    assert ids_in(table) == [9]


def test_staged_snapshots_tags_and_branches_count_as_needed(table: Table) -> None:
    first = table.metadata.snapshots[0].snapshot_id
    table.manage_snapshots().create_branch(first, "side").commit()
    append_ids(table, 77, branch="side")
    table.manage_snapshots().remove_branch("side").commit()
    assert found(table) == []


def test_young_files_stay(table: Table) -> None:
    leave(table, "data/left.parquet")
    now_ms = int(time.time() * 1000)
    assert OrphanSearch(table, OrphanRequest(now_ms=now_ms)).find().orphans == ()
    assert OrphanSearch(table, OrphanRequest(now_ms=now_ms + 4 * DAY_MS)).find().orphans != ()
    moment = OrphanRequest(now_ms=now_ms + 4 * DAY_MS, older_than_ms=now_ms - 60_000)
    assert OrphanSearch(table, moment).find().orphans == ()


def test_less_than_a_day_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="24 hours") as caught:
        OrphanRequest(now_ms=NOW_MS, older_than_ms=NOW_MS - DAY_MS + 1)
    assert caught.value.argument == "older_than"
    OrphanRequest(now_ms=NOW_MS, older_than_ms=NOW_MS - DAY_MS)


def test_hidden_names_are_left_alone_unless_they_are_partitions(tmp_path: Path) -> None:
    table = new_table(new_catalog(tmp_path))
    with table.update_spec() as update:
        update.add_field("name", "identity", "_day")
    append_ids(table, 1)
    for name in ("_temporary/x", "data/.part.crc", "data/_staging/y", "data/_day=1/z", "data/_days=1/z", "data/plain"):
        leave(table, name)
    assert found(table) == ["data/_day=1/z", "data/plain"]


def test_symbolic_links_are_never_followed(table: Table, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = outside / "precious.parquet"
    precious.write_bytes(b"x")
    (folder(table) / "data" / "link").symlink_to(outside)
    (folder(table) / "data" / "file_link.parquet").symlink_to(precious)
    leave(table, "data/left.parquet")
    plan, _ = clean(table)
    assert [Path(file.path).name for file in plan.orphans] == ["left.parquet"]
    assert precious.exists()
    rows_ = [(f"file:{folder(table)}/data/link/precious.parquet", 0)]
    assert OrphanSearch(table, request()).find(rows_).orphans == ()
    with pytest.raises(InvalidArgumentError, match="symbolic link"):
        OrphanSearch(table, request(location=f"{table.location()}/data/link"))


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("{root}/../other", "'..'"),
        ("{root}/./data", "'.'"),
        ("{root}/version.txt", "is a file"),
        ("{parent}", "outside"),
        ("{root}2", "outside"),
        ("file:///", "whole bucket or file system"),
        ("s3://bucket", "whole bucket or file system"),
        ("s3://bucket/t", "outside"),
    ],
)
def test_places_that_the_table_does_not_own_are_refused(table: Table, place: str, message: str) -> None:
    text = place.format(root=table.location(), parent=table.location().rsplit("/", 1)[0])
    leave(table, "version.txt")
    with pytest.raises(IcebergCompactError, match=message) as caught:
        OrphanSearch(table, request(location=text))
    assert caught.value.argument == "location"


def test_a_location_inside_the_table_or_its_data_path_is_fine(table: Table, tmp_path: Path) -> None:
    leave(table, "data/left.parquet")
    leave(table, "metadata/left.avro")
    assert found(table, location=f"{table.location()}/metadata/") == ["metadata/left.avro"]
    assert found(table, location=f"file:{folder(table)}/data") == ["data/left.parquet"]
    elsewhere = tmp_path / "elsewhere"
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{elsewhere}"})
    append_ids(table, 50)
    (elsewhere / "left.parquet").write_bytes(b"x")
    plan = OrphanSearch(table, request(location=f"file://{elsewhere}")).find()
    assert [file.path for file in plan.orphans] == [f"file://{elsewhere}/left.parquet"]


def test_the_version_hint_stays_also_where_metadata_is_written_elsewhere(table: Table, tmp_path: Path) -> None:
    leave(table, "metadata/version-hint.text", b"3")
    with table.transaction() as change:
        change.set_properties({"write.metadata.path": f"file://{tmp_path}/elsewhere"})
    append_ids(table, 50)
    assert found(table) == []


@pytest.mark.parametrize("nested", ["nested", "."])
def test_another_tables_files_inside_are_refused(table: Table, nested: str) -> None:
    location = f"{table.location()}/{nested}" if nested != "." else table.location()
    other = table.catalog.create_table("db.other", table.schema(), location=location)
    append_ids(other, 5)
    theirs = [(path, 0) for path in other.inspect.files()["file_path"].to_pylist()]
    with pytest.raises(UnsupportedError, match="belongs to another table"):
        OrphanSearch(table, request()).find()
    if nested == ".":
        # Also where the search passes data files only.
        with pytest.raises(UnsupportedError, match="belongs to another table"):
            OrphanSearch(table, request(location=f"{table.location()}/data")).find()
        with pytest.raises(UnsupportedError, match="belongs to another table"):
            OrphanSearch(table, request()).find(theirs)
    assert ids_in(other) == [5]


@pytest.mark.parametrize("place", ["shared", "shared/deeper"])
def test_a_data_path_that_another_table_uses_too_is_refused(table: Table, tmp_path: Path, place: str) -> None:
    with table.transaction() as change:
        change.set_properties({"write.data.path": f"file://{tmp_path}/shared"})
    table.catalog.create_namespace("elsewhere")
    other = table.catalog.create_table(
        "elsewhere.other", table.schema(), properties={"write.data.path": f"file:{tmp_path}/{place}"}
    )
    append_ids(table, 4)
    append_ids(other, 5)
    with pytest.raises(UnsupportedError, match=r"table elsewhere\.other keeps files in file:/.*/shared"):
        OrphanSearch(table, request(location=f"file://{tmp_path}/shared")).find()
    assert found(table) == []


def test_a_damaged_metadata_file_of_ones_own_is_an_orphan_and_elsewhere_a_doubt(table: Table) -> None:
    leave(table, "metadata/00099-x.metadata.json", b"{cut")
    assert found(table) == ["metadata/00099-x.metadata.json"]
    leave(table, "nested/metadata/00000-x.metadata.json", b"{cut")
    with pytest.raises(UnsupportedError, match="cannot be read"):
        found(table)


def test_the_fuse(table: Table) -> None:
    for i in range(30):
        leave(table, f"data/left{i}.parquet")
    search = OrphanSearch(table, request())
    plan = search.find()
    with pytest.raises(IcebergCompactError, match=r"more than max_share 0\.5") as caught:
        search.delete(plan)
    assert caught.value.argument == "max_share"
    assert len(list((folder(table) / "data").glob("left*"))) == 30
    assert all(clean(table, force=True)[1].values())
    assert found(table) == []


def test_without_gc_it_is_refused(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"gc.enabled": "false"})
    with pytest.raises(UnsupportedError, match=r"gc\.enabled"):
        OrphanSearch(table, request())


def test_an_unreadable_manifest_stops_the_run(table: Table) -> None:
    leave(table, "data/left.parquet")
    manifest = table.metadata.snapshots[0].manifests(table.io)[0].manifest_path
    Path(split_location(manifest).path).write_bytes(b"cut")
    with pytest.raises(IcebergCompactError, match="cannot be read"):
        found(table)
    assert (folder(table) / "data/left.parquet").exists()


@pytest.mark.parametrize("point", ["orphans.valid", "orphans.listed", "orphans.check"])
def test_a_file_that_is_committed_meanwhile_is_spared(table: Table, point: str) -> None:
    late = table.inspect.files()["file_path"].to_pylist()[0]
    added = folder(table) / "data" / "late.parquet"
    added.write_bytes(Path(split_location(late).path).read_bytes())
    leave(table, "data/left.parquet")
    done: list[str] = []

    def commit(reached: str, facts: object) -> None:
        if reached == point and not done:
            done.append(reached)
            table.catalog.load_table("db.t").add_files([f"file://{added}"])

    with events.listening(commit):
        _, outcome = clean(table.catalog.load_table("db.t"))
    assert done
    assert added.exists()
    assert outcome.get(f"file://{added}") in (None, False)
    assert not (folder(table) / "data/left.parquet").exists()
    assert len(ids_in(table.refresh())) == 4


def test_a_file_written_again_is_spared_and_one_that_is_gone_is_no_failure(table: Table) -> None:
    again, gone, left = (leave(table, f"data/{name}") for name in ("again", "gone", "left"))

    def change(reached: str, facts: object) -> None:
        if reached == "orphans.check":
            again.write_bytes(b"a new file")
            os.utime(again, (1, 1))
            gone.unlink()

    with events.listening(change):
        _, outcome = clean(table)
    assert outcome == {f"file://{again}": False, f"file://{gone}": True, f"file://{left}": True}
    assert again.exists()
    assert not left.exists()


def test_a_table_made_again_meanwhile_stops_the_run(table: Table) -> None:
    leave(table, "data/left.parquet")
    search = OrphanSearch(table, request())
    plan = search.find()
    table.catalog.drop_table("db.t")
    new_table(table.catalog)
    with pytest.raises(CommitConflictError, match="created again"):
        list(search.delete(plan))
    assert (folder(table) / "data/left.parquet").exists()


def test_a_file_list_in_any_spelling(table: Table) -> None:
    left = leave(table, "data/left.parquet")
    live = table.inspect.files()["file_path"].to_pylist()
    old = [(path, 0) for path in (*live, f"file:{left}", "file:/elsewhere/x", f"file:{folder(table)}/../x", f"{left}2")]
    plan = OrphanSearch(table, request()).find(old)
    assert [file.path for file in plan.orphans] == [f"file:{left}"]
    assert plan.orphans[0].size_bytes == 6
    twice = [
        (path, 0) for path in (str(left), f"file:{left}", f"file://{left}", str(left).replace("/data/", "//data/"))
    ]
    assert len(OrphanSearch(table, request()).find(twice).orphans) == 1
    short = [(f"file:{split_location(path).path}", 0) for path in live]
    assert OrphanSearch(table, request()).find(short).orphans == ()
    assert OrphanSearch(table, request()).find([(f"file:{left}", NOW_MS)]).orphans == ()
    assert OrphanSearch(table, request()).find([(f"file:{left}", None)]).orphans == ()


def test_java_and_python_spellings_of_local_paths_are_one_file(table: Table) -> None:
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=f"file:{folder(table)}"),))
    table.refresh()
    leave(table, "data/left.parquet")
    assert found(table) == ["data/left.parquet"]


def test_a_folder_that_is_known_under_two_names_holds_one_set_of_files(table: Table, tmp_path: Path) -> None:
    other_name = tmp_path / "other_name"
    other_name.symlink_to(folder(table))
    table.catalog.commit_table(table, (), (SetLocationUpdate(location=f"file:{other_name}"),))
    table.refresh()
    leave(table, "data/left.parquet")
    _, outcome = clean(table)
    assert outcome == {f"file:{other_name}/data/left.parquet": True}
    assert all(Path(path.removeprefix("file:")).exists() for path in needed(table))


def test_a_spelling_that_leaves_doubt_stops_the_run(table: Table) -> None:
    live = Path(split_location(table.inspect.files()["file_path"].to_pylist()[0]).path)
    leave(table, "data/" + live.name.replace("-", "%2D"))
    with pytest.raises(IcebergCompactError, match="another spelling"):
        found(table)


def test_quarantine_and_back(table: Table) -> None:
    left = leave(table, "data/left.parquet", b"precious")
    os.utime(left, (0, 0))
    _, outcome = clean(table, quarantine_ms=7 * DAY_MS)
    assert outcome == {f"file://{left}": True}
    assert not left.exists()
    stores = Stores(table.io)
    quarantined = find_records(stores, table.metadata).quarantined
    assert [(run.delete_after_ms, [f.original for f in run.files]) for run in quarantined] == [
        (NOW_MS + 7 * DAY_MS, [f"file://{left}"])
    ]
    assert found(table) == []
    with pytest.raises(InvalidArgumentError, match="is the table's quarantine"):
        found(table, location=f"{table.location()}/metadata/_quarantine/")
    assert [(moved.original, back) for moved, back in quarantine.restore(stores, quarantined, FUTURE_MS)] == [
        (f"file://{left}", True)
    ]
    assert left.read_bytes() == b"precious"
    assert find_records(stores, table.metadata) == Records()
    # Whoever brought it back has time to use it before the next run.
    assert time.time() - left.stat().st_mtime < 3600


def test_a_quarantine_that_was_half_made_or_half_taken_back(table: Table) -> None:
    """Only what is aside is brought back, and the dry run says so."""
    lefts = [leave(table, f"data/left{i}.parquet") for i in range(3)]
    clean(table, quarantine_ms=DAY_MS, force=True)
    stores = Stores(table.io)
    quarantined = find_records(stores, table.metadata).quarantined
    aside = {file.original: Path(split_location(file.aside).path) for file in quarantined[0].files}
    aside[f"file://{lefts[0]}"].rename(lefts[0])
    lefts[1].write_bytes(b"taken")
    planned = [file.original for file in quarantine.still_aside(stores, quarantined)]
    assert planned == [f"file://{left}" for left in lefts[1:]]
    outcome = [(moved.original, back) for moved, back in quarantine.restore(stores, quarantined, FUTURE_MS)]
    assert outcome == [(planned[0], False), (planned[1], True)]
    assert lefts[1].read_bytes() == b"taken"
    assert [
        f.original for f in quarantine.still_aside(stores, find_records(stores, table.metadata).quarantined)
    ] == planned[:1]


def test_a_journal_that_another_run_has_just_closed_is_passed_over(table: Table) -> None:
    class Raced(Stores):
        """Lists a journal that is deleted before it is read."""

        def walk(self, root: str, enter: Callable[[str], bool] = lambda relative: True) -> Iterator[StoredFile]:
            yield from super().walk(root, enter)
            yield StoredFile(f"{root}/gone.pending.json", 2, 0)
            yield StoredFile(f"{root}/gone/moved.json", 2, 0)

    assert find_records(Raced(table.io), table.metadata) == Records()


def test_quarantine_ends_when_its_time_is_over(table: Table) -> None:
    leave(table, "data/left.parquet")
    clean(table, quarantine_ms=DAY_MS)
    aside = folder(table) / "metadata" / "_quarantine"
    leave(table, "data/more.parquet")
    clean(table)
    assert list(aside.rglob("*left.parquet"))
    search = OrphanSearch(table, OrphanRequest(now_ms=NOW_MS + DAY_MS))
    list(search.delete(search.find()))
    assert not [path for path in aside.rglob("*") if path.is_file()]


def test_expired_files_can_be_brought_back(table: Table) -> None:
    old = table.metadata_location
    table.overwrite(id_rows(9))
    before = on_disk(table)
    options = ExpiryOptions(quarantine_ms=DAY_MS)
    result = run_expiry(table, ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS), options)
    assert result.freed_bytes == 0
    assert sum(result.deleted.values()) > 0
    assert needed(table.refresh()) == on_disk(table)
    stores = Stores(table.io)
    place_taken = next(path for path in sorted(before - on_disk(table)) if path.endswith(".parquet"))
    Path(place_taken.removeprefix("file:")).write_bytes(b"someone else")
    outcome = dict(quarantine.restore(stores, find_records(stores, table.metadata).quarantined, FUTURE_MS))
    assert sorted(outcome.values()).count(False) == 1
    Path(place_taken.removeprefix("file:")).unlink()
    assert list(
        dict(quarantine.restore(stores, find_records(stores, table.metadata).quarantined, FUTURE_MS)).values()
    ) == [True]
    assert on_disk(table) == before
    assert ids_in(table.catalog.register_table("db.back", old)) == [0, 1, 2]

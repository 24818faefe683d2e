"""What makes a file ours to delete: tables under two names, other tables and views, through the text of a CALL."""

from __future__ import annotations

import dataclasses
import gzip
import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import SetLocationUpdate
from pyiceberg.types import LongType, NestedField, StringType
from sqlalchemy import text

from iceberg_compact_sql import events
from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.reclaim import metadata_versions, named_by_others
from iceberg_compact_sql.storage.locations import split_location
from tests.support.calls import call
from tests.support.plain import PlainLake, open_plain
from tests.support.reclaim import DAY_MS, SCHEMA, append_ids, id_rows, ids_in, needed

LATER_MS = int(time.time() * 1000) + 10 * DAY_MS
ORPHANS = "CALL remove_orphans('db.t', force => true)"
EXPIRE = "CALL expire_snapshots('db.t', older_than => '1d', retain_last => 1)"
Everything = dict[Path, bytes]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is being committed while these tests run; what was learnt of a table is forgotten after each."""
    monkeypatch.setattr(metadata_versions, "_WAITS_S", ())
    yield
    named_by_others._folders_cache.clear()
    close_catalogs()


@pytest.fixture
def second_lake(tmp_path: Path) -> Iterator[PlainLake]:
    with open_plain(tmp_path / "second") as lake:
        yield lake


def make(lake: PlainLake, name: str = "db.t", appends: int = 3, **properties: str) -> Table:
    table = lake.catalog.create_table(name, SCHEMA, properties=properties)
    for i in range(appends):
        append_ids(table, i)
    return table


def folder(table: Table) -> Path:
    return Path(split_location(table.location()).path)


def contents(*roots: Path) -> Everything:
    return {path: path.read_bytes() for root in roots for path in root.rglob("*") if path.is_file()}


def run(lake: PlainLake, sql: str) -> list[dict[str, Any]]:
    return call(lake, sql, now_ms=LATER_MS)


def refused(lake: PlainLake, sql: str, message: str, *roots: Path) -> None:
    """The call is refused, with or without a dry run and a quarantine, and no file is touched."""
    before = contents(*roots)
    for extra in ("", ", dry_run => true", ", quarantine => '7d'"):
        with pytest.raises(UnsupportedError, match=message):
            run(lake, f"{sql.removesuffix(')')}{extra})")
    assert contents(*roots) == before


def leave(table: Table, name: str) -> Path:
    path = folder(table) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"orphan")
    return path


# One table under two names


@pytest.mark.parametrize("sql", [ORPHANS, EXPIRE])
@pytest.mark.parametrize(
    "move_on",
    [
        lambda table: append_ids(table, 7),
        lambda table: table.overwrite(id_rows(8)),
        lambda table: [append_ids(table, i) for i in range(5)],
        lambda table: table.transaction().set_properties({"comment": "x"}).commit_transaction(),
    ],
    ids=["append", "overwrite", "many", "properties"],
)
def test_the_stale_name_of_a_table_in_another_catalog_is_refused(
    plain_lake: PlainLake, second_lake: PlainLake, sql: str, move_on: Callable[[Table], object]
) -> None:
    live = make(plain_lake)
    second_lake.catalog.register_table("db.t", live.metadata_location)
    move_on(live)
    leave(live, "data/left.parquet")
    refused(second_lake, sql, "another name or in another catalog", folder(live))


@pytest.mark.parametrize("place", ["write.metadata.path", "location"])
def test_a_newer_version_in_another_metadata_folder_is_seen(
    plain_lake: PlainLake, second_lake: PlainLake, tmp_path: Path, place: str
) -> None:
    live = make(plain_lake)
    elsewhere = f"file://{tmp_path}/elsewhere"
    if place == "location":
        with live.transaction() as change:
            change._apply((SetLocationUpdate(location=elsewhere),))
    else:
        with live.transaction() as change:
            change.set_properties({"write.metadata.path": elsewhere})
    second_lake.catalog.register_table("db.t", live.metadata_location)
    append_ids(live, 7)
    refused(second_lake, EXPIRE, "another name or in another catalog", tmp_path)


def test_both_names_of_a_table_have_moved_on(plain_lake: PlainLake, second_lake: PlainLake) -> None:
    live = make(plain_lake)
    other = second_lake.catalog.register_table("db.t", live.metadata_location)
    append_ids(other, 7)
    append_ids(live, 8)
    orphan = leave(live, "data/left.parquet")
    # One version of the other name may be left over from a failed commit: what it names stays, the rest goes.
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    assert ids_in(second_lake.load("db.t")) == [0, 1, 2, 7]
    # A second version on top of it is the proof that somebody uses it.
    append_ids(other, 9)
    append_ids(live, 10)
    refused(plain_lake, ORPHANS, "another name or in another catalog", folder(live))
    refused(plain_lake, EXPIRE, "another name or in another catalog", folder(live))


def test_both_names_are_in_one_catalog(plain_lake: PlainLake) -> None:
    live = make(plain_lake)
    other = plain_lake.catalog.register_table("db.copy", live.metadata_location)
    orphan = leave(live, "data/left.parquet")
    # Two names that are equally fresh name the same files.
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    append_ids(other, 7)
    refused(plain_lake, ORPHANS, "another name or in another catalog", folder(live))
    append_ids(live, 8)
    assert run(plain_lake, ORPHANS) == []
    assert ids_in(plain_lake.load("db.copy")) == [0, 1, 2, 7]


def test_a_copy_of_the_current_metadata_file_is_as_new_as_the_table(
    plain_lake: PlainLake, second_lake: PlainLake, tmp_path: Path
) -> None:
    live = make(plain_lake)
    copied = tmp_path / "copy"
    shutil.copytree(folder(live), copied)
    name = live.metadata_location.rpartition("/")[2]
    second_lake.catalog.register_table("db.t", f"file://{copied}/metadata/{name}")
    refused(second_lake, ORPHANS, "another name or in another catalog", folder(live), copied)


def test_leftovers_of_failed_commits_do_not_stop_anything(plain_lake: PlainLake) -> None:
    table = make(plain_lake)
    metadata = json.loads(Path(split_location(table.metadata_location).path).read_bytes())
    metadata["last-updated-ms"] += 1
    head = dict(
        metadata["snapshots"][-1], **{"snapshot-id": 42, "manifest-list": f"{table.location()}/metadata/gone.avro"}
    )
    failed = dict(metadata, **{"snapshots": [*metadata["snapshots"], head], "current-snapshot-id": 42})
    # Newer than the table, but its writer has removed what it wrote: nobody can read it.
    dead = leave(table, f"metadata/00099-{uuid.uuid4()}.metadata.json")
    dead.write_bytes(json.dumps(failed).encode())
    zipped = leave(table, f"metadata/00098-{uuid.uuid4()}.gz.metadata.json")
    zipped.write_bytes(gzip.compress(json.dumps(failed).encode()))
    assert sorted(row["orphan_file_location"] for row in run(plain_lake, ORPHANS)) == [
        f"file://{zipped}",
        f"file://{dead}",
    ]
    # One that can be read and is newer is a doubt until the table moves on.
    alive = leave(table, f"metadata/00003-{uuid.uuid4()}.metadata.json")
    alive.write_bytes(json.dumps(metadata).encode())
    refused(plain_lake, ORPHANS, alive.name, folder(table))
    time.sleep(0.002)
    append_ids(table, 9)
    assert run(plain_lake, ORPHANS) == []
    assert run(plain_lake, EXPIRE)[0]["expired_snapshots_count"] == 3
    assert ids_in(plain_lake.load("db.t")) == [0, 1, 2, 9]


def test_old_versions_that_the_log_has_passed_are_orphans(plain_lake: PlainLake) -> None:
    make(plain_lake, appends=6, **{"write.metadata.previous-versions-max": "2"})
    old = [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)]
    assert len(old) == 4
    assert all(path.endswith(".metadata.json") for path in old)
    assert ids_in(plain_lake.load("db.t")) == list(range(6))


def test_a_commit_through_another_catalog_before_the_deletion_stops_it(
    plain_lake: PlainLake, second_lake: PlainLake
) -> None:
    live = make(plain_lake)
    second_lake.catalog.register_table("db.t", live.metadata_location)
    orphan = leave(live, "data/left.parquet")

    def commit(event: str, facts: object) -> None:
        if event == "orphans.check":
            append_ids(live, 7)

    with events.listening(commit), pytest.raises(UnsupportedError, match="another name or in another catalog"):
        run(second_lake, ORPHANS)
    assert orphan.exists()


def test_a_commit_that_is_under_way_is_waited_for(plain_lake: PlainLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(plain_lake)
    orphan = leave(table, "data/left.parquet")
    monkeypatch.setattr(metadata_versions, "_WAITS_S", (0.0,))
    before = table.metadata_location
    append_ids(table, 7)
    after = table.metadata_location
    swap = "UPDATE iceberg_tables SET metadata_location = :to"
    with plain_lake.catalog.engine.begin() as connection:
        connection.execute(text(swap), {"to": before})

    def land(wait_s: float) -> None:
        with plain_lake.catalog.engine.begin() as connection:
            connection.execute(text(swap), {"to": after})

    monkeypatch.setattr(metadata_versions.time, "sleep", land)
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    assert ids_in(plain_lake.load("db.t")) == [0, 1, 2, 7]


@pytest.fixture
def hadoop_lake(tmp_path: Path) -> PlainLake:
    warehouse = tmp_path / "hadoop"
    catalog = HadoopCatalog("plain", warehouse=str(warehouse))
    catalog.create_namespace("db")
    conf = {"spark.sql.catalog.plain.type": "hadoop", "spark.sql.catalog.plain.warehouse": str(warehouse)}
    return PlainLake("plain", catalog, warehouse, conf)  # type: ignore[arg-type]


@pytest.mark.parametrize("sql", [ORPHANS, EXPIRE, "CALL expire_snapshots('db.t', older_than => '9000d')"])
@pytest.mark.parametrize("moved_on", [False, True])
def test_a_copied_folder_of_a_hadoop_catalog_is_refused(hadoop_lake: PlainLake, sql: str, moved_on: bool) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    live = hadoop_lake.catalog.create_table("db.live", schema)
    for i in range(3):
        append_ids(live, i)
    shutil.copytree(folder(live), folder(live).parent / "t")
    if moved_on:
        append_ids(live, 7)
    refused(hadoop_lake, sql, "is a copy", hadoop_lake.folder)
    for arguments in ("'db.t'", "'db.t', dry_run => true"):
        with pytest.raises(UnsupportedError, match="is a copy"):
            run(hadoop_lake, f"CALL restore_quarantine({arguments})")
    # The original itself, in whatever spelling, is cleaned as ever.
    leave(live, "data/left.parquet")
    spelled = dataclasses.replace(
        hadoop_lake, conf={**hadoop_lake.conf, "spark.sql.catalog.plain.warehouse": f"file://{hadoop_lake.folder}/"}
    )
    assert len(run(spelled, ORPHANS.replace("db.t", "db.live"))) == 1
    assert run(spelled, EXPIRE.replace("db.t", "db.live"))[0]["expired_snapshots_count"] == 2 + moved_on


def test_a_copied_folder_of_a_hadoop_catalog_is_not_rewritten(hadoop_lake: PlainLake) -> None:
    """New files would lie in the original's folder, where nothing of the original names them."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    live = hadoop_lake.catalog.create_table("db.live", schema)
    append_ids(live, 1)
    shutil.copytree(folder(live), folder(live).parent / "t")
    before = contents(hadoop_lake.folder)
    for name in ("compact_table", "rewrite_manifests", "rewrite_position_deletes"):
        for arguments in ("'db.t'", "'db.t', dry_run => true"):
            with pytest.raises(UnsupportedError, match="is a copy"):
                run(hadoop_lake, f"CALL {name}({arguments})")
    assert contents(hadoop_lake.folder) == before


def test_a_hadoop_table_made_again_under_the_same_version_number_is_read_again(hadoop_lake: PlainLake) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    table = hadoop_lake.catalog.create_table("db.t", schema)
    append_ids(table, 0)
    other = hadoop_lake.catalog.create_table("db.other", schema)
    append_ids(other, 1)
    orphan = leave(table, "data/left.parquet")
    assert len(run(hadoop_lake, ORPHANS)) == 1
    before, imported = other.metadata_location, table.inspect.files()["file_path"][0].as_py()
    shutil.rmtree(folder(other))
    again = hadoop_lake.catalog.create_table("db.other", schema)
    shutil.copy(split_location(imported).path, orphan)
    again.add_files([f"file:{orphan}"])
    assert again.metadata_location == before
    assert run(hadoop_lake, ORPHANS) == [] and orphan.exists()


# Other tables and views


def view_metadata(location: str) -> bytes:
    metadata = {"view-uuid": str(uuid.uuid4()), "format-version": 1, "location": location, "current-version-id": 1}
    return json.dumps(metadata).encode()


def add_view(lake: PlainLake, name: str, metadata_location: str) -> None:
    with lake.catalog.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO iceberg_tables VALUES (:c, 'db', :n, :m, NULL, 'VIEW')"),
            {"c": lake.name, "n": name, "m": metadata_location},
        )


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("listed", [False, True])
def test_a_view_under_the_old_name_of_a_renamed_table_stays(
    plain_lake: PlainLake, compressed: bool, listed: bool
) -> None:
    old = make(plain_lake, "db.old")
    plain_lake.catalog.rename_table("db.old", "db.t")
    name = f"metadata/00000-{uuid.uuid4()}{'.gz' if compressed else ''}.metadata.json"
    view, content = leave(old, name), view_metadata(old.location())
    view.write_bytes(gzip.compress(content) if compressed else content)
    if listed:
        add_view(plain_lake, "old", f"file:{view}")
    orphan = leave(old, "data/left.parquet")
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    assert view.exists()


def test_a_view_whose_metadata_has_another_name_stays(plain_lake: PlainLake) -> None:
    table = make(plain_lake)
    view = leave(table, "metadata/view.json")
    add_view(plain_lake, "v", f"file:{view}")
    assert run(plain_lake, ORPHANS) == []
    assert view.exists()


@pytest.mark.parametrize("namespace", ["db", "other", "deep.er.still"])
@pytest.mark.parametrize("inner", ["data", "data/theirs", "elsewhere"])
@pytest.mark.parametrize("spelling", ["file://{}", "file:{}/", "{}"])
def test_another_tables_data_path_inside_this_table_is_refused_and_read_where_it_was_left(
    plain_lake: PlainLake, namespace: str, inner: str, spelling: str
) -> None:
    table = make(plain_lake)
    for depth in range(1, namespace.count(".") + 2):
        plain_lake.catalog.create_namespace_if_not_exists(".".join(namespace.split(".")[:depth]))
    path = spelling.format(folder(table) / inner)
    other = make(plain_lake, f"{namespace}.other", **{"write.data.path": path})
    refused(plain_lake, ORPHANS, f"{namespace}.other keeps files in", folder(table))
    with other.transaction() as change:
        change.remove_properties("write.data.path")
    orphan = leave(table, "data/left.parquet")
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    assert ids_in(plain_lake.load(f"{namespace}.other")) == [0, 1, 2]


@pytest.mark.parametrize("history", ["current", "old snapshot", "tag"])
def test_a_shared_path_that_the_other_table_has_left_keeps_its_files(
    plain_lake: PlainLake, tmp_path: Path, history: str
) -> None:
    shared = f"file://{tmp_path}/shared"
    table = make(plain_lake, **{"write.data.path": shared})
    plain_lake.catalog.create_namespace("a")
    plain_lake.catalog.create_namespace("a.b")
    other = make(plain_lake, "a.b.other", **{"write.data.path": shared})
    with other.transaction() as change:
        change.remove_properties("write.data.path")
    if history == "tag":
        other.manage_snapshots().create_tag(other.current_snapshot().snapshot_id, "kept").commit()  # type: ignore[union-attr]
    snapshot = other.current_snapshot().snapshot_id  # type: ignore[union-attr]
    if history != "current":
        other.overwrite(id_rows(9))
    orphan = tmp_path / "shared/left.parquet"
    orphan.write_bytes(b"orphan")
    found = run(plain_lake, f"CALL remove_orphans('db.t', force => true, location => '{shared}')")
    assert [row["orphan_file_location"] for row in found] == [f"file://{orphan}"]
    assert ids_in(plain_lake.load("a.b.other"), snapshot) == [0, 1, 2]
    assert ids_in(table) == [0, 1, 2]


@pytest.mark.parametrize("spelled", ["file://{}", "file:{}", "{}"])
def test_files_that_another_table_has_imported_stay(plain_lake: PlainLake, tmp_path: Path, spelled: str) -> None:
    table = make(plain_lake)
    imported = folder(table) / "data" / "imported file.parquet"
    source = next((folder(table) / "data").glob("*.parquet"))
    shutil.copy(source, imported)
    other = make(plain_lake, "db.other", appends=0)
    other.add_files([spelled.format(imported)], check_duplicate_files=False)
    assert run(plain_lake, ORPHANS) == []
    assert imported.exists()


def test_a_linked_folder_and_a_linked_file_of_another_table_are_followed(plain_lake: PlainLake, tmp_path: Path) -> None:
    table = make(plain_lake)
    data = folder(table) / "data"
    (tmp_path / "door").symlink_to(data)
    first, second = (data / f"imported{i}.parquet" for i in range(2))
    for copy in (first, second):
        shutil.copy(next(data.glob("0*.parquet")), copy)
    (tmp_path / "linked.parquet").symlink_to(second)
    other = make(plain_lake, "db.other", appends=0)
    other.add_files(
        [f"file://{tmp_path}/door/{first.name}", f"file://{tmp_path}/linked.parquet"], check_duplicate_files=False
    )
    for _ in range(2):
        assert run(plain_lake, ORPHANS) == []
    assert first.exists()
    assert second.exists()


def test_a_table_around_this_one_does_not_stop_it(plain_lake: PlainLake) -> None:
    outer = make(plain_lake, "db.outer")
    table = plain_lake.catalog.create_table("db.t", SCHEMA, location=f"{outer.location()}/inner")
    append_ids(table, 1)
    imported = folder(table) / "data" / "imported.parquet"
    shutil.copy(next((folder(table) / "data").glob("*.parquet")), imported)
    outer.add_files([f"file://{imported}"], check_duplicate_files=False)
    orphan = leave(table, "data/left.parquet")
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]
    assert imported.exists()


@pytest.mark.parametrize("create", ["data path", "imported", "registered"])
def test_a_table_made_in_the_place_after_the_listing_is_seen(plain_lake: PlainLake, create: str) -> None:
    table = make(plain_lake)
    orphan = leave(table, "data/left.parquet")
    shutil.copy(next((folder(table) / "data").glob("0*.parquet")), orphan)

    def appear(event: str, facts: object) -> None:
        if event == "orphans.check":
            if create == "data path":
                make(plain_lake, "db.other", **{"write.data.path": f"{table.location()}/data"})
            elif create == "imported":
                other = make(plain_lake, "db.other", appends=0)
                other.add_files([f"file://{orphan}"], check_duplicate_files=False)
            else:
                other = plain_lake.catalog.register_table("db.other", table.metadata_location)
                append_ids(other, 7)

    with events.listening(appear):
        if create == "imported":
            assert [row["deleted"] for row in run(plain_lake, ORPHANS)] == [False]
        else:
            with pytest.raises(UnsupportedError):
                run(plain_lake, ORPHANS)
    assert orphan.exists()
    expected = {"data path": [0, 1, 2], "imported": [0], "registered": [0, 1, 2, 7]}[create]
    assert len(ids_in(plain_lake.load("db.other"))) == len(expected)


def test_a_table_that_cannot_be_read_is_named_and_can_be_ignored(plain_lake: PlainLake) -> None:
    table = make(plain_lake)
    other = make(plain_lake, "db.other")
    orphan = leave(table, "data/left.parquet")
    metadata = Path(split_location(other.metadata_location).path)
    whole = metadata.read_bytes()
    metadata.write_bytes(whole[:100])
    refused(plain_lake, ORPHANS, r"table db\.other cannot be read", folder(table))
    metadata.write_bytes(whole)
    manifest = next((folder(other) / "metadata").glob("*-m0.avro"))
    manifest.write_bytes(b"Obj\x01cut")
    refused(plain_lake, ORPHANS, r"table db\.other cannot be read", folder(table))
    ignoring = dataclasses.replace(
        plain_lake, conf={**plain_lake.conf, "spark.iceberg_compact_sql.ignored_tables": "db.none, db.other"}
    )
    assert len(run(ignoring, ORPHANS)) == 1
    assert not orphan.exists()


def test_a_table_whose_metadata_is_lost_stops_only_what_it_may_have_had_files_in(
    plain_lake: PlainLake, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    table = make(plain_lake, **{"write.data.path": f"file://{shared}"})
    other = make(plain_lake, "db.other")
    Path(split_location(other.metadata_location).path).unlink()
    (shared / "left.parquet").write_bytes(b"orphan")
    with pytest.raises(UnsupportedError, match=r"table db\.other cannot be read"):
        run(plain_lake, f"CALL remove_orphans('db.t', force => true, location => 'file://{shared}')")
    orphan = leave(table, "metadata/left.avro")
    assert [row["orphan_file_location"] for row in run(plain_lake, ORPHANS)] == [f"file://{orphan}"]


def test_a_table_dropped_and_made_again_in_the_place_is_refused(plain_lake: PlainLake) -> None:
    first = make(plain_lake)
    plain_lake.catalog.drop_table("db.t")
    second = make(plain_lake)
    assert folder(first) == folder(second)
    # The files of the first are nobody's, but its metadata says that they were another table's.
    refused(plain_lake, ORPHANS, "belongs to another table", folder(second))


def test_a_renamed_table_and_a_new_one_in_its_old_folder_are_both_refused(plain_lake: PlainLake) -> None:
    make(plain_lake, "db.old")
    plain_lake.catalog.rename_table("db.old", "db.t")
    make(plain_lake, "db.old")
    for name in ("db.t", "db.old"):
        refused(plain_lake, ORPHANS.replace("db.t", name), "belongs to another table", plain_lake.folder)


def test_expiry_keeps_imported_files_that_their_own_table_still_names(plain_lake: PlainLake) -> None:
    source = make(plain_lake, "db.source")
    table = make(plain_lake, appends=1)
    files = source.inspect.files()["file_path"].to_pylist()
    table.add_files(files, check_duplicate_files=False)
    loose = folder(source).parent / "imported.parquet"
    shutil.copy(split_location(files[0]).path, loose)
    table.add_files([f"file://{loose}"], check_duplicate_files=False)
    table.overwrite(id_rows(9))
    planned = run(plain_lake, f"{EXPIRE.removesuffix(')')}, dry_run => true)")
    assert not set(files) & {row["path"] for row in planned}
    result = run(plain_lake, EXPIRE)[0]
    # Its own file and the imported one that nobody else names.
    assert result["deleted_data_files_count"] == 2
    assert not loose.exists()
    assert ids_in(source) == [0, 1, 2]


def drop_rows(table: Table) -> None:
    """No current row is in an old file any more, so that expiry would delete all of those."""
    table.overwrite(id_rows(99))
    append_ids(table, 100)


def import_files(lake: PlainLake, source: Table) -> Table:
    other = lake.catalog.create_table("db.other", SCHEMA)
    other.add_files(source.inspect.files()["file_path"].to_pylist())
    return other


def register_again(lake: PlainLake, source: Table) -> Table:
    return lake.catalog.register_table("db.other", source.metadata_location)


def clone(lake: PlainLake, source: Table) -> Table:
    """A table with a uuid of its own on the manifests of another one, in a folder of its own."""
    metadata = json.loads(Path(split_location(source.metadata_location).path).read_text())
    place = lake.folder / "cloned"
    metadata |= {"table-uuid": str(uuid.uuid4()), "location": f"file://{place}", "metadata-log": []}
    (place / "metadata").mkdir(parents=True)
    copy = place / "metadata" / "00000-clone.metadata.json"
    copy.write_text(json.dumps(metadata))
    return lake.catalog.register_table("db.other", f"file://{copy}")


@pytest.mark.parametrize("take_over", [import_files, register_again, clone])
@pytest.mark.parametrize("sql", [EXPIRE, EXPIRE.replace(")", ", quarantine => '7d')"), "CALL maintain_table('db.t')"])
def test_expiry_keeps_files_that_another_table_has_taken_over(
    plain_lake: PlainLake, sql: str, take_over: Callable[[PlainLake, Table], Table]
) -> None:
    table = make(plain_lake)
    other = take_over(plain_lake, table)
    needed_files = needed(other)
    drop_rows(table)
    run(plain_lake, sql)
    run(plain_lake, ORPHANS)
    assert len(plain_lake.load("db.t").metadata.snapshots) == 1
    assert all(Path(path.removeprefix("file:")).exists() for path in needed_files)
    assert ids_in(plain_lake.load("db.other")) == [0, 1, 2]


def test_files_taken_over_after_the_plan_stay(plain_lake: PlainLake) -> None:
    table = make(plain_lake)
    files = table.inspect.files()["file_path"].to_pylist()
    drop_rows(table)
    other = plain_lake.catalog.create_table("db.other", SCHEMA)

    def import_now(event: str, facts: Any) -> None:
        if event == "expire.committed":
            other.add_files(files)

    with events.listening(import_now):
        assert run(plain_lake, EXPIRE)[0]["expired_snapshots_count"] > 0
    assert ids_in(plain_lake.load("db.other")) == [0, 1, 2]


def test_an_ordinary_lake_is_read_once_and_expiry_reads_no_manifest_of_others(plain_lake: PlainLake) -> None:
    table = make(plain_lake)
    for i in range(20):
        make(plain_lake, f"db.other{i}", appends=1)
    reads: list[str] = []
    asked: list[object] = []

    def count(event: str, facts: Any) -> None:
        if event == "reclaim.read_other_table":
            reads.append(facts["table"])
        if event == "reclaim.other_tables":
            asked.append(facts["count"])

    with events.listening(count):
        # Without an orphan there is no question.
        assert run(plain_lake, ORPHANS) == []
        assert (reads, asked) == ([], [])
        leave(table, "data/left.parquet")
        assert len(run(plain_lake, ORPHANS)) == 1
        assert (len(reads), asked) == (20, [20, 20])
        leave(table, "data/left.parquet")
        append_ids(plain_lake.load("db.other3"), 5)
        assert len(run(plain_lake, ORPHANS)) == 1
        assert reads[20:] == ["db.other3"]
        assert run(plain_lake, EXPIRE)[0]["expired_snapshots_count"] == 2
        assert len(reads) == 21
        # A table that cannot be loaded does not stop an expiry, which deletes what the table itself has written.
        broken = plain_lake.load("db.other3")
        Path(split_location(broken.metadata_location).path).unlink()
        append_ids(plain_lake.load("db.t"), 6)
        assert run(plain_lake, EXPIRE)[0]["expired_snapshots_count"] == 1
        assert len(reads) == 21

"""Damaged metadata: whatever bit flips in a manifest or manifest list, no live file is deleted."""

from __future__ import annotations

import contextlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest
from tests.support.reclaim import DAY_MS, FUTURE_MS, append_ids, ids_in, needed, new_catalog, new_table, on_disk

ALL = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)
FLIPS = 40


class Lake:
    """A table whose files and catalog can be put back as they were, again and again."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.folder = folder
        self.catalog = new_catalog(folder)
        table = new_table(self.catalog, **properties)
        append_ids(table, 1, 2)
        append_ids(table, 3, 4)
        table.manage_snapshots().create_tag(append_ids(table, 5), "keep").commit()
        # Copy on write: manifests are written again, and files change from added to existing.
        table.delete("id = 3")
        append_ids(table, 6)
        append_ids(table, 7)
        table.delete("id = 7")
        table.delete("id = 1")
        self.left = folder / "warehouse/db/t/data/left.parquet"
        self.left.write_bytes(b"left over")
        plan = plan_expiry(table, ALL)
        going = {f"file:{file.path.removeprefix('file://')}" for file in plan.files}
        assert going
        self.kept = plan.retention.kept
        self.live = needed(table) - going
        self.all_needed = needed(table)
        self.files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def open(self) -> Table:
        return self.catalog.load_table("db.t")

    def put_back(self) -> None:
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in self.files:
                path.unlink()
        for path, content in self.files.items():
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def metadata_files(self, kind: str) -> list[Path]:
        table = self.open()
        lists = {Path(snapshot.manifest_list.removeprefix("file://")) for snapshot in table.metadata.snapshots}
        if kind == "manifest list":
            return sorted(lists)
        return sorted(path for path in self.files if path.suffix == ".avro" and path not in lists)

    def lost(self, live: set[str]) -> set[str]:
        return {path for path in live if not Path(path.removeprefix("file:")).exists()}


@pytest.fixture(scope="module", params=["null", "gzip"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(tmp_path_factory.mktemp("lake"), **{"write.avro.compression-codec": request.param})


def flips(lake: Lake, kind: str, seed: str) -> Iterator[tuple[Path, bytes]]:
    """Files with one bit changed, at random places."""
    chance = random.Random(seed)
    paths = lake.metadata_files(kind)
    for _ in range(FLIPS):
        path = chance.choice(paths)
        changed = bytearray(lake.files[path])
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield path, bytes(changed)


def expire(table: Table) -> None:
    run_expiry(table, ALL)


def remove_orphans(table: Table) -> None:
    request = OrphanRequest(now_ms=int(time.time() * 1000) + 30 * DAY_MS, force=True)
    search = OrphanSearch(table, request)
    list(search.delete(search.find()))


@pytest.mark.parametrize("kind", ["manifest", "manifest list"])
@pytest.mark.parametrize("work", [expire, remove_orphans])
def test_a_flipped_bit_never_costs_a_live_file(lake: Lake, kind: str, work: Callable[[Table], None]) -> None:
    live = lake.live if work is expire else lake.all_needed
    refused = 0
    lake.put_back()
    for path, damaged in flips(lake, kind, f"{kind} {work.__name__}"):
        lake.put_back()
        path.write_bytes(damaged)
        try:
            work(lake.open())
        except IcebergCompactError as error:
            refused += 1
            assert re.search(r"(nothing was|no file was) (deleted|changed)", str(error))
        at = [i for i, (a, b) in enumerate(zip(damaged, lake.files[path], strict=True)) if a != b]
        assert not lake.lost(live), f"byte {at} of {path.name}"
    lake.put_back()
    assert refused > 0


def change_path(lake: Lake, path: Path, old: str, new: str) -> None:
    assert len(old) == len(new)
    content = lake.files[path]
    assert old.encode() in content
    path.write_bytes(content.replace(old.encode(), new.encode(), 1))


@pytest.fixture
def plain(tmp_path: Path) -> Lake:
    return Lake(tmp_path, **{"write.avro.compression-codec": "null"})


@pytest.mark.parametrize("work", [expire, remove_orphans])
def test_a_changed_path_in_a_kept_manifest_stops_the_deletion_and_is_named(
    plain: Lake, work: Callable[[Table], None]
) -> None:
    table = plain.open()
    [manifest, *_] = table.current_snapshot().manifests(table.io)  # type: ignore[union-attr]
    [entry, *_] = manifest.fetch_manifest_entry(table.io)
    name = entry.data_file.file_path.rsplit("/", 1)[1]
    changed = name.replace(name[-12], "q")
    change_path(plain, Path(manifest.manifest_path.removeprefix("file://")), name, changed)
    before = on_disk(table)
    with pytest.raises(IcebergCompactError, match=re.escape(changed)) as caught:
        work(table)
    assert f"manifest {manifest.manifest_path} names" in str(caught.value)
    assert "which does not exist; no file was deleted" in str(caught.value)
    assert on_disk(table) == before
    assert len(table.refresh().metadata.snapshots) > len(plain.kept)


@pytest.mark.parametrize("work", [expire, remove_orphans])
def test_a_live_file_of_another_length_stops_the_deletion(plain: Lake, work: Callable[[Table], None]) -> None:
    [*_, path] = plain.open().inspect.files()["file_path"].to_pylist()
    with Path(path.removeprefix("file://")).open("ab") as file:
        file.write(b"x")
    with pytest.raises(IcebergCompactError, match=r"a length of .* bytes, the file has"):
        work(plain.open())
    assert not plain.lost(plain.live)


def test_nothing_to_delete_needs_no_proof(plain: Lake) -> None:
    """Expiring with keep_files, and a table without orphans, are not held up by a lost file."""
    table = plain.open()
    [*_, path] = table.inspect.files()["file_path"].to_pylist()
    Path(path.removeprefix("file://")).unlink()
    plain.left.unlink()
    remove_orphans(table)
    run_expiry(table, ALL, ExpiryOptions(keep_files=True))
    assert len(table.refresh().metadata.snapshots) == len(plain.kept)


def edit_metadata(plain: Lake, edit: Callable[[dict[str, Any]], None]) -> None:
    path = Path(plain.open().metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def test_a_ref_to_a_snapshot_that_is_not_there_stops_the_expiry(plain: Lake) -> None:
    def change_tag(document: dict[str, Any]) -> None:
        document["refs"]["keep"]["snapshot-id"] ^= 1

    edit_metadata(plain, change_tag)
    with pytest.raises(IcebergCompactError, match=r"tag keep names snapshot .* which the metadata does not have"):
        expire(plain.open())
    assert not plain.lost(plain.all_needed)


@pytest.mark.parametrize("field", ["snapshot-id", "parent-snapshot-id"])
def test_a_snapshot_whose_ids_are_not_those_of_its_manifest_list_stops_the_expiry(plain: Lake, field: str) -> None:
    def change_id(document: dict[str, Any]) -> None:
        document["snapshots"][1][field] ^= 1

    edit_metadata(plain, change_id)
    with pytest.raises(IcebergCompactError, match=r"its manifest list .* is of snapshot"):
        expire(plain.open())
    assert not plain.lost(plain.all_needed)


@pytest.mark.parametrize("work", [expire, remove_orphans])
def test_without_damage_the_same_calls_work(lake: Lake, work: Callable[[Table], None]) -> None:
    lake.put_back()
    work(lake.open())
    table = lake.open()
    assert ids_in(table) == [2, 4, 5, 6]
    assert needed(table) <= on_disk(table)
    if work is remove_orphans:
        assert not lake.left.exists()
    lake.put_back()


def changed_json(lake: Lake, old: bytes, new: bytes) -> None:
    path = Path(lake.open().metadata_location.removeprefix("file://"))
    assert len(old) == len(new)
    assert old in lake.files[path]
    path.write_bytes(lake.files[path].replace(old, new, 1))


@pytest.mark.parametrize("work", [expire, remove_orphans])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"snapshots"', b'"snaxshots"'),
        (b'"refs"', b'"reds"'),
        (b'"statistics"', b'"stitistics"'),
        (b'"parent-snapshot-id"', b'"parent-snapshmt-id"'),
        (b'"max-ref-age-ms"', b'"max-ref-age-ks"'),
    ],
)
def test_a_field_of_the_metadata_whose_name_is_damaged_stops_the_deletion(
    plain: Lake, work: Callable[[Table], None], old: bytes, new: bytes
) -> None:
    table = plain.open()
    table.manage_snapshots().create_branch(
        plain.kept[0], "side", max_ref_age_ms=10**15, min_snapshots_to_keep=3
    ).commit()
    plain.files = {path: path.read_bytes() for path in plain.folder.rglob("*") if path.is_file()}
    changed_json(plain, old, new)
    with pytest.raises(IcebergCompactError, match=r"nothing was (deleted|changed)"):
        work(plain.open())
    assert not plain.lost(plain.all_needed)


@pytest.mark.parametrize("work", [expire, remove_orphans])
@pytest.mark.parametrize(("old", "new"), [("file:///", "file://?"), ("file:///", "file:/o/"), ("file:///", "file:?//")])
def test_damage_at_the_border_of_authority_and_path_stops_the_deletion(
    plain: Lake, work: Callable[[Table], None], old: str, new: str
) -> None:
    head = plain.open().current_snapshot()
    assert head is not None
    manifest = Path(head.manifests(plain.open().io)[0].manifest_path.removeprefix("file://"))
    change_path(plain, manifest, old, new)
    with contextlib.suppress(IcebergCompactError):
        work(plain.open())
    assert not plain.lost(plain.live if work is expire else plain.all_needed)

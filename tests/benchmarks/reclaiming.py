"""How long expiry and orphan removal take on large histories: `python -m tests.benchmarks.reclaiming [snapshots]`.

A history is written file by file without an engine: each snapshot adds ten files of its own in one manifest, and drops
the manifest that is `window` snapshots old.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from iceberg_compact_sql.reclaim.expiry import plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.orphans import OrphanRequest, OrphanSearch
from iceberg_compact_sql.reclaim.retention import ExpiryRequest

FILES_PER_SNAPSHOT = 10
FUTURE_MS = 4_102_444_800_000
EVERYTHING = ExpiryRequest(now_ms=FUTURE_MS, older_than_ms=FUTURE_MS)


def build(folder: Path, snapshots: int, window: int) -> Table:
    """A table with that many snapshots; its files are empty, only their names and sizes matter."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]))
    root = Path(table.location().removeprefix("file://"))
    (root / "data").mkdir(parents=True, exist_ok=True)
    manifests: list[ManifestFile] = []
    updates: list[AddSnapshotUpdate] = []
    for at in range(1, snapshots + 1):
        manifests = [*manifests, _manifest(table, root, at)][-window:]
        listing = f"file://{root}/metadata/snap-{at}.avro"
        with write_manifest_list(2, table.io.new_output(listing), at, at - 1 or None, at, "null") as writer:
            writer.add_manifests(manifests)
        # Later than the table itself: Java reads no metadata whose history runs backwards.
        updates.append(_snapshot(at, listing, table.metadata.last_updated_ms + at))
    head = SetSnapshotRefUpdate.model_validate({"ref-name": "main", "type": "branch", "snapshot-id": snapshots})
    catalog.commit_table(table, (), (*updates, head))
    return catalog.load_table("db.t")


def _manifest(table: Table, root: Path, at: int) -> ManifestFile:
    path = f"file://{root}/metadata/{uuid.uuid4()}-m0.avro"
    with write_manifest(2, table.spec(), table.schema(), table.io.new_output(path), at, "null") as writer:
        for number in range(FILES_PER_SNAPSHOT):
            name = f"{root}/data/{at:06}-{number}-{uuid.uuid4()}.parquet"
            Path(name).touch()
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"file://{name}",
                file_format=FileFormat.PARQUET,
                partition=Record(),
                record_count=1,
                file_size_in_bytes=1000,
            )
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED, snapshot_id=at, sequence_number=at, data_file=file
                )
            )
    made = writer.to_manifest_file()
    made.sequence_number = at
    made.min_sequence_number = at
    return made


def _snapshot(at: int, listing: str, timestamp_ms: int) -> AddSnapshotUpdate:
    fields = {
        "snapshot-id": at,
        "parent-snapshot-id": at - 1 or None,
        "sequence-number": at,
        "timestamp-ms": timestamp_ms,
        "manifest-list": listing,
        "summary": Summary(operation=Operation.APPEND),
        "schema-id": 0,
    }
    return AddSnapshotUpdate(snapshot=Snapshot.model_validate(fields))


def main(snapshots: int) -> None:
    for window in (min(100, snapshots), snapshots):
        with tempfile.TemporaryDirectory() as folder:
            table = build(Path(folder), snapshots, window)
            shape = f"{snapshots} snapshots, {snapshots * FILES_PER_SNAPSHOT} files, {window} manifests a snapshot"
            _timed(f"plan expiry: {shape}", lambda table=table: f"{len(plan_expiry(table, EVERYTHING).files)} files")
            _timed(
                f"run expiry: {shape}",
                lambda table=table: f"{sum(run_expiry(table, EVERYTHING).deleted.values())} gone",
            )
            search = OrphanSearch(table.refresh(), OrphanRequest(now_ms=FUTURE_MS))
            _timed(f"find orphans after it: {shape}", lambda search=search: f"{len(search.find().orphans)} orphans")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")


def _timed(what: str, work) -> None:  # type: ignore[no-untyped-def]
    start, cpu = time.perf_counter(), time.process_time()
    result = work()
    print(
        f"{what}: {time.perf_counter() - start:.2f} s wall, {time.process_time() - cpu:.2f} s CPU; {result}", flush=True
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)

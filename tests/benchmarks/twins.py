"""Twin tables for two sides: the same files under two names, so that each side starts from the same state."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    write_manifest,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.typedef import Record

from tests.benchmarks.data import SCHEMA
from tests.support.handmade import commit_manifests, make_table
from tests.support.java import Lake
from tests.support.oracle import entries, plain

SIDES = ("ours", "iceberg")
Deletes = Callable[[Table, Sequence[str]], None]


def make_twins(
    lake: Lake,
    name: str,
    paths: Sequence[Path],
    deletes: Deletes | None = None,
    *,
    untouched: bool = False,
    schema: Schema = SCHEMA,
) -> dict[str, str]:
    """A table for each side (and one that nobody touches), named by the side; the files are hard links."""
    sides = (*SIDES, "before") if untouched else SIDES
    return {side: table_of(lake, f"db.{name}_{side}", paths, deletes, schema) for side in sides}


def table_of(
    lake: Lake, identifier: str, paths: Sequence[Path], deletes: Deletes | None = None, schema: Schema = SCHEMA
) -> str:
    """A table of these files, as hard links; returns its name."""
    table = make_table(lake.catalog, identifier, schema)
    folder = Path(plain(table.location())) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    snapshot_id = table.metadata.new_snapshot_id()
    output = table.io.new_output(f"{table.location()}/metadata/made.avro")
    with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        for path in paths:
            home = folder / path.name
            os.link(path, home)
            entry = ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=_data_file(home)
            )
            writer.add_entry(entry)
    commit_manifests(table, [writer.to_manifest_file()], snapshot_id, Operation.APPEND, {}, "main")
    if deletes is not None:
        deletes(table, [(folder / path.name).as_uri() for path in paths])
    return identifier


def _data_file(path: Path) -> DataFile:
    metadata = pq.read_metadata(path)
    starts = [metadata.row_group(index).column(0) for index in range(metadata.num_row_groups)]
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=metadata.num_rows,
        file_size_in_bytes=path.stat().st_size,
        split_offsets=[start.dictionary_page_offset or start.data_page_offset for start in starts],
        sort_order_id=0,
    )
    file.spec_id = 0
    return file


def data_files(lake: Lake, identifier: str) -> list[Path]:
    """The live data files of a table."""
    live = entries(lake.load(identifier))
    return [Path(plain(entry["data_file"]["file_path"])) for entry in live if entry["data_file"]["content"] == 0]


def data_mb(lake: Lake, identifier: str) -> float:
    """The size of a table's live data files."""
    return round(sum(path.stat().st_size for path in data_files(lake, identifier)) / 1024**2, 1)


def fingerprint(lake: Lake, identifier: str) -> tuple[int, int]:
    """Rows and a sum over them, as Java reads the table: equal for twins, whoever rewrote them."""
    [row] = lake.sql(
        f"SELECT count(*), sum(xxhash64(id, amount, kind) % 1000003) FROM {lake.full(identifier)}"
    ).collect()
    return row[0], row[1]

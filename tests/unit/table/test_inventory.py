"""Inventories of real tables: sequence numbers, deletes, branches, filters, and files cut short."""

from __future__ import annotations

import threading
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.io import InputFile
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.pyiceberg_internals import manifest_columns as records
from iceberg_compact_sql.pyiceberg_internals.manifest_entries import read_entries
from iceberg_compact_sql.pyiceberg_internals.manifest_writer import new_data_file, write_manifest_entries
from iceberg_compact_sql.table.inventory import read_inventory
from iceberg_compact_sql.table.model import DeleteKind
from tests.support import handmade

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "kind", StringType()))
BY_KIND = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return handmade.make_catalog(tmp_path)


def test_a_table_without_a_snapshot_is_empty(catalog: SqlCatalog) -> None:
    inventory = read_inventory(handmade.make_table(catalog), "main")
    assert (list(inventory.files), list(inventory.deletes)) == ([], [])
    assert inventory.state.snapshot_id is None


def test_what_is_read_is_what_pyiceberg_reads(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog, "db.t", SCHEMA, BY_KIND)
    paths = handmade.append(table, [{"id": n, "kind": "ab"[n % 2]} for n in range(10)])
    handmade.append(table, [{"id": 1, "kind": None}])
    handmade.add_position_deletes(table, {paths[0]: [0, 1]})
    handmade.add_position_deletes(table, {path: [0] for path in paths[1:]}, scoped=False)
    handmade.add_equality_deletes(table, [{"id": 1}], [1], partition=("a",))
    points = []
    with listening(lambda point, facts: points.append((point, dict(facts)))):
        inventory = read_inventory(table, "main")
    entries = handmade.live_entries(table)
    data = [entry for entry in entries if entry.data_file.content == 0]
    assert [(f.path, f.size_bytes, f.rows, f.sequence_number, f.snapshot_id) for f in inventory.files] == [
        (
            e.data_file.file_path,
            e.data_file.file_size_in_bytes,
            e.data_file.record_count,
            e.sequence_number,
            e.snapshot_id,
        )
        for e in data
    ]
    assert {f.partition for f in inventory.files} == {("a",), ("b",), (None,)}
    assert [d.kind for d in sorted(inventory.deletes, key=lambda d: d.sequence_number)] == [
        DeleteKind.POSITION,
        DeleteKind.POSITION,
        DeleteKind.EQUALITY,
    ]
    by_path = {file.path: [d.kind for d in inventory.deletes_for(file)] for file in inventory.files}
    scoped = next(delete for delete in inventory.deletes if delete.referenced_path is not None)
    assert scoped.referenced_path == paths[0]
    assert DeleteKind.POSITION in by_path[paths[0]]
    assert sum(DeleteKind.EQUALITY in kinds for kinds in by_path.values()) == 1
    assert inventory.known_deleted_rows(next(f for f in inventory.files if f.path == paths[0])) == 2
    assert points[-1] == ("inventory.read", {"files": 3, "deletes": 3, "run_id": None})


@pytest.mark.parametrize("format_version", [1, 2])
def test_entries_are_decoded_as_pyiceberg_decodes_them(catalog: SqlCatalog, format_version: int) -> None:
    table = handmade.make_table(catalog, "db.t", SCHEMA, BY_KIND, format_version=format_version)
    for batch in range(3):
        handmade.append(table, [{"id": batch * 10 + n, "kind": "abc"[n % 3]} for n in range(9)])
    table.delete("kind = 'b'")
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    decoded = 0
    for manifest in snapshot.manifests(table.io):
        ours = list(records.read_live_records(manifest, records.read_contents(manifest, table.io), metrics=True))
        theirs = read_entries(manifest, table.io)
        decoded += len(ours)
        for values, entry in zip(ours, theirs, strict=True):
            # Content and format are plain values here, enums there; a v1 file says nothing of its content.
            file = entry.data_file
            assert values[records.SNAPSHOT_ID : records.PATH + 2] == [
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
                file.file_path,
                file.file_format,
            ]
            assert values[records.PARTITION] == tuple(file.partition._data)
            assert values[records.ROWS : records.SORT_ORDER + 1] == [
                file.record_count,
                file.file_size_in_bytes,
                file.key_metadata,
                file.split_offsets,
                file.sort_order_id,
            ]
            assert (values[records.CONTENT] or 0, values[records.EQUALITY_IDS]) == (file.content, file.equality_ids)
            metrics = (file.nan_value_counts, file.value_counts, file.null_value_counts)
            expected = [dict(found) for found in (*metrics, file.lower_bounds, file.upper_bounds)]
            assert [dict(found) for found in values[records.NAN_COUNTS :]] == expected
        contents = records.read_contents(manifest, table.io)
        without = list(records.read_live_records(manifest, contents, metrics=False))
        assert without == [values[: records.NAN_COUNTS] for values in ours]
        nans_only = list(records.read_live_records(manifest, contents, metrics=False, nan_counts=True))
        assert nans_only == [values[: records.NAN_COUNTS + 1] for values in ours]
    assert decoded == 6


def test_partition_values_of_every_type_are_what_was_written(catalog: SqlCatalog) -> None:
    kinds: dict[PrimitiveType, list[Any]] = {
        BooleanType(): [True, False],
        IntegerType(): [-(2**31), 7],
        LongType(): [2**63 - 1, -1],
        FloatType(): [0.5, -0.0],
        DoubleType(): [0.1, 1e300],
        DateType(): [-1, 20_000],
        TimeType(): [0, 86_399_999_999],
        TimestampType(): [-1, 1_700_000_000_000_000],
        TimestamptzType(): [-1, 1_700_000_000_000_000],
        StringType(): ["", "Zürich"],
        UUIDType(): [uuid.UUID(int=1), uuid.UUID(int=2**127)],
        FixedType(3): [b"abc", bytes(3)],
        BinaryType(): [b"", b"\xff\x00"],
        DecimalType(9, 2): [Decimal("-1.25"), Decimal("1234567.89")],
        DecimalType(38, 0): [Decimal("1" + 37 * "0"), Decimal(-1)],
    }
    fields = [NestedField(n, f"c{n}", kind) for n, kind in enumerate(kinds, 1)]
    parts = [PartitionField(n, 1000 + n, IdentityTransform(), f"c{n}") for n in range(1, len(kinds) + 1)]
    table = handmade.make_table(catalog, "db.t", Schema(*fields), PartitionSpec(*parts))
    rows = [tuple(None for _ in kinds), *(tuple(values[at] for values in kinds.values()) for at in range(2))]
    files = [
        new_data_file(
            table.metadata,
            spec_id=0,
            partition=row,
            content=DataFileContent.DATA,
            file_path=f"{table.location()}/data/{number}.parquet",
            file_format=FileFormat.PARQUET,
            record_count=1,
            file_size_in_bytes=1,
        )
        for number, row in enumerate(rows)
    ]
    entries = [ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=file) for file in files]
    written = write_manifest_entries(
        table.io.new_output(f"{table.location()}/metadata/made.avro"),
        entries,
        metadata=table.metadata,
        content=ManifestContent.DATA,
        spec_id=0,
        compression="deflate",
    )
    manifest = written.listed(1, 1)
    contents = records.read_contents(manifest, table.io)
    found = [values[records.PARTITION] for values in records.read_live_records(manifest, contents, metrics=False)]
    assert [list(map(repr, row)) for row in found] == [list(map(repr, row)) for row in rows]


def test_branches(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog)
    handmade.append(table, [{"id": 1, "name": "a"}])
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_branch(snapshot.snapshot_id, "audit").create_tag(
        snapshot.snapshot_id, "release"
    ).commit()
    handmade.append(table, [{"id": 2, "name": "b"}], branch="audit")
    table.refresh()
    assert len(read_inventory(table, "main").files) == 1
    side = read_inventory(table, "audit")
    assert len(side.files) == 2
    assert side.state.branch == "audit"
    with pytest.raises(NotFoundError, match=r"The table has: audit, main, release. Did you mean 'audit'\?"):
        read_inventory(table, "audti")
    with pytest.raises(NotFoundError, match="'release' is a tag, not a branch"):
        read_inventory(table, "release")


def test_filters_pass_over_manifests_partitions_and_files(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog, "db.t", SCHEMA, BY_KIND)
    for kind in ("a", "b", "c"):
        handmade.append(table, [{"id": n, "kind": kind} for n in range(3)])
    handmade.append(table, [{"id": 100, "kind": "a"}])
    assert len(read_inventory(table, "main", EqualTo("kind", "a")).files) == 2
    assert len(read_inventory(table, "main", EqualTo("id", 100)).files) == 1
    assert len(read_inventory(table, "main", EqualTo("id", 50)).files) == 0
    # A manifest that is passed over is not opened.
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    for manifest in snapshot.manifests(table.io):
        entries = list(records.read_live_records(manifest, records.read_contents(manifest, table.io), metrics=False))
        if all(values[records.PARTITION] == ("b",) for values in entries):
            Path(manifest.manifest_path.removeprefix("file://")).unlink()
    assert len(read_inventory(table, "main", EqualTo("kind", "c")).files) == 1
    with pytest.raises(FileNotFoundError):
        read_inventory(table, "main")


def test_manifests_are_read_ahead_and_used_in_their_order(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    table = handmade.make_table(catalog)
    for number in range(12):
        handmade.append(table, [{"id": number, "name": "a"}])
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    paths = [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
    last = Path(paths[-1].removeprefix("file://"))
    opened: list[str] = []
    at_once = threading.Barrier(8)
    open_input = table.io.new_input

    def watched(location: str) -> InputFile:
        if location in paths:
            opened.append(location)
            # The first eight only get on together.
            if location in paths[:8]:
                at_once.wait(60)
        return open_input(location)

    monkeypatch.setattr(table.io, "new_input", watched)
    in_order = [file.path for file in read_inventory(table, "main").files]
    assert sorted(opened) == sorted(paths)
    assert in_order == [entry.data_file.file_path for entry in handmade.live_entries(table)]
    last.unlink()
    with pytest.raises(FileNotFoundError, match=last.name):
        read_inventory(table, "main")


def test_history_tells_writes_from_compactions(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog, "db.t", SCHEMA, BY_KIND)
    handmade.append(table, [{"id": 1, "kind": "a"}])
    inventory = read_inventory(table.refresh(), "main")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    history = inventory.history(inventory.files)
    assert history.last_written_ms == history.first_written_ms == snapshot.timestamp_ms
    assert history.last_compacted_ms is None
    handmade.add_equality_deletes(table, [{"id": 1}], [1], partition=("a",))
    later = table.refresh().current_snapshot()
    assert later is not None
    inventory = read_inventory(table, "main")
    assert inventory.history(inventory.files).last_written_ms == later.timestamp_ms


def test_a_manifest_cut_short_is_an_error_and_not_a_smaller_table(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog)
    handmade.append(table, pa.table({"id": pa.array([1], pa.int64()), "name": pa.array(["a"])}))
    snapshot = table.refresh().current_snapshot()
    assert snapshot is not None
    path = Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file://"))
    whole = path.read_bytes()
    for length in range(len(whole) - 1, 100, -37):
        path.write_bytes(whole[:length])
        with pytest.raises(IcebergCompactError, match=rf"cannot be read: it has {length} bytes of {len(whole)}"):
            read_inventory(table, "main")
    path.write_bytes(whole[:-40] + b"x" * 40)
    with pytest.raises(IcebergCompactError, match="cannot be read"):
        read_inventory(table, "main")


def test_a_file_that_counts_no_nulls_may_hold_some(catalog: SqlCatalog) -> None:
    table = handmade.make_table(catalog, properties={"write.metadata.metrics.default": "none"})
    handmade.append(table, [{"id": 1, "name": None}])
    assert len(read_inventory(table.refresh(), "main", IsNull("name")).files) == 1

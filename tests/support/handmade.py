"""Tables made by hand, without Java: data files, position deletes and equality deletes of any spec and branch.

Everything is written with pyarrow and pyiceberg's own manifest writers, never with code of the package under test.

    table = make_table(catalog, "db.t", SCHEMA, format_version=2)
    paths = append(table, [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    add_position_deletes(table, {paths[0]: [0]})                     # one file-scoped delete file for each path
    add_position_deletes(table, {p: [0] for p in paths}, scoped=False)  # one partition-scoped file
    add_equality_deletes(table, [{"id": 2}], field_ids=[1])
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, AssertRefSnapshotId, SetSnapshotRefUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from iceberg_compact_sql.storage.locations import split_location

PATH_ID, POS_ID = 2147483546, 2147483545
POSITION_SCHEMA = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(POS_ID)}),
    ]
)
_EXTRA = (
    NestedField(143, "referenced_data_file", StringType(), required=False),
    NestedField(144, "content_offset", LongType(), required=False),
    NestedField(145, "content_size_in_bytes", LongType(), required=False),
)
SIMPLE_SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="name"))


def make_catalog(folder: Path, name: str = "lake") -> SqlCatalog:
    """A SQLite catalog whose tables live under `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(name, uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=f"file://{folder / 'warehouse'}")
    catalog.create_namespace_if_not_exists("db")
    return catalog


def make_table(
    catalog: Catalog,
    identifier: str = "db.t",
    schema: Schema = SIMPLE_SCHEMA,
    spec: PartitionSpec | None = None,
    *,
    format_version: int = 2,
    properties: Mapping[str, str] | None = None,
) -> Table:
    """An empty table whose commits wait only milliseconds between tries."""
    quick = {"commit.retry.min-wait-ms": "1", "commit.retry.max-wait-ms": "5"}
    quick |= {"commit.status-check.min-wait-ms": "1", "commit.status-check.max-wait-ms": "5"}
    return catalog.create_table(
        identifier,
        schema,
        partition_spec=spec or PartitionSpec(),
        properties={**quick, "format-version": str(format_version), **(properties or {})},
    )


def append(table: Table, rows: Sequence[Mapping[str, Any]] | pa.Table, *, branch: str = "main") -> list[str]:
    """Append rows as one new data file for each partition; gives the paths of the new files."""
    if not isinstance(rows, pa.Table):
        rows = pa.Table.from_pylist([dict(row) for row in rows], schema=schema_to_pyarrow(table.schema()))
    table.append(rows, branch=branch)
    snapshot = table.metadata.snapshot_by_name(branch)
    assert snapshot is not None
    mine = [m for m in snapshot.manifests(table.io) if m.added_snapshot_id == snapshot.snapshot_id]
    entries = [entry for manifest in mine for entry in manifest.fetch_manifest_entry(table.io)]
    return [entry.data_file.file_path for entry in entries if entry.snapshot_id == snapshot.snapshot_id]


def make_small_table(catalog: SqlCatalog) -> Table:
    """`db.t` with four files of one row: enough for every procedure to have something to do."""
    table = make_table(catalog, "db.t", SIMPLE_SCHEMA)
    for number in range(4):
        append(table, [{"id": number, "name": "n"}])
    return table


def data_paths(table: Table, branch: str = "main") -> list[str]:
    """Live data files of a branch."""
    return [entry.data_file.file_path for entry in live_entries(table, branch) if entry.data_file.content == 0]


def live_entries(table: Table, branch: str = "main") -> list[ManifestEntry]:
    """Live entries of all manifests of a branch, as pyiceberg reads them."""
    snapshot = table.refresh().metadata.snapshot_by_name(branch)
    manifests = snapshot.manifests(table.io) if snapshot else []
    return [entry for manifest in manifests for entry in manifest.fetch_manifest_entry(table.io)]


def add_position_deletes(
    table: Table,
    positions: Mapping[str, Iterable[int]],
    *,
    scoped: bool | str = True,
    branch: str = "main",
    partition: Sequence[Any] | None = None,
    referenced: str | None = None,
) -> list[str]:
    """Delete rows by position in one commit; gives the paths of the delete files.

    `scoped=True`: a file for each data file with `referenced_data_file` and equal path bounds, as Java writes;
    `scoped="bounds"`: the same without the field; `scoped=False`: one file for each partition. With `partition` the
    delete files claim that one, as a careless writer might; with `referenced` they claim to be about that file.
    """
    homes = {e.data_file.file_path: e.data_file for e in live_entries(table, branch) if e.data_file.content == 0}
    # Java spells local paths with one slash; the delete file may use either spelling.
    by_plain = {path.replace("file:///", "file:/"): file for path, file in homes.items()}
    groups: dict[Any, list[str]] = {}
    for path in positions:
        home = by_plain[path.replace("file:///", "file:/")]
        key = path if scoped else (home.spec_id, tuple(home.partition[i] for i in range(len(home.partition))))
        groups.setdefault(key, []).append(path)
    files = []
    for paths in groups.values():
        rows = sorted((path, pos) for path in paths for pos in positions[path])
        home = by_plain[paths[0].replace("file:///", "file:/")]
        rows_table = pa.table([[r[0] for r in rows], [r[1] for r in rows]], schema=POSITION_SCHEMA)
        bounds = ({PATH_ID: rows[0][0].encode()}, {PATH_ID: rows[-1][0].encode()})
        files.append(
            _delete_file(
                table,
                rows_table,
                DataFileContent.POSITION_DELETES,
                home.spec_id,
                home.partition if partition is None else Record(*partition),
                bounds,
                referenced=referenced or (paths[0] if scoped is True else None),
            )
        )
    commit_delete_files(table, files, branch=branch)
    return [file.file_path for file in files]


def add_equality_deletes(
    table: Table,
    rows: Sequence[Mapping[str, Any]],
    field_ids: Sequence[int],
    *,
    partition: Sequence[Any] = (),
    spec_id: int | None = None,
    branch: str = "main",
) -> list[str]:
    """Delete rows by equality of the named fields: in one partition, or everywhere when the spec has no fields."""
    table.refresh()
    names = [table.schema().find_column_name(field_id) for field_id in field_ids]
    arrow = schema_to_pyarrow(table.schema().select(*[name for name in names if name]))
    data = pa.Table.from_pylist([dict(row) for row in rows], schema=arrow)
    spec = table.spec().spec_id if spec_id is None else spec_id
    file = _delete_file(
        table, data, DataFileContent.EQUALITY_DELETES, spec, Record(*partition), ({}, {}), equality_ids=list(field_ids)
    )
    commit_delete_files(table, [file], branch=branch)
    return [file.file_path]


def _delete_file(
    table: Table,
    rows: pa.Table,
    content: DataFileContent,
    spec_id: int,
    partition: Record,
    bounds: tuple[dict[int, bytes], dict[int, bytes]],
    *,
    referenced: str | None = None,
    equality_ids: list[int] | None = None,
) -> DataFile:
    path = f"{table.location()}/data/delete-{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(rows, sink)
    file = DataFile.from_args(
        _table_format_version=3,
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        lower_bounds=bounds[0],
        upper_bounds=bounds[1],
        equality_ids=equality_ids,
        referenced_data_file=referenced,
    )
    file.spec_id = spec_id
    return file


class _DeleteManifestWriter(ManifestWriterV2):
    """A v2 delete manifest with `referenced_data_file` and int equality ids, as Java writes them."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._entry_schema(2, _EXTRA),
            record_schema=self._entry_schema(3, ()),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def _entry_schema(self, version: int, extra: tuple[NestedField, ...]) -> Schema:
        ids = ListType(element_id=136, element_type=IntegerType(), element_required=True)
        fields = [
            NestedField(135, "equality_ids", ids, required=False)
            if f.field_id == 135
            else NestedField(102, "partition", self._spec.partition_type(self._schema), required=True)
            if f.field_id == 102
            else f
            for f in DATA_FILE_TYPE[version].fields  # type: ignore[index]
        ]
        return Schema(
            NestedField(0, "status", IntegerType(), required=True),
            NestedField(1, "snapshot_id", LongType(), required=False),
            NestedField(3, "sequence_number", LongType(), required=False),
            NestedField(4, "file_sequence_number", LongType(), required=False),
            NestedField(2, "data_file", StructType(*fields, *extra), required=True),
        )


def commit_delete_files(table: Table, files: Sequence[DataFile], *, branch: str = "main") -> int:
    """Commit delete files on a branch as a row delta would; gives the snapshot id."""
    metadata = table.refresh().metadata
    parent = metadata.snapshot_by_name(branch)
    assert parent is not None
    snapshot_id = metadata.new_snapshot_id()
    manifests = list(parent.manifests(table.io))
    names: Iterator[int] = itertools.count()
    commit_id = uuid.uuid4()
    for spec_id in sorted({file.spec_id for file in files}):
        path = f"{table.location()}/metadata/{commit_id}-d{next(names)}.avro"
        schema = table.schema()
        with _DeleteManifestWriter(
            metadata.specs()[spec_id], schema, table.io.new_output(path), snapshot_id, "gzip"
        ) as writer:
            for file in files:
                if file.spec_id == spec_id:
                    writer.add_entry(
                        ManifestEntry.from_args(
                            status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file
                        )
                    )
        manifests.append(writer.to_manifest_file())
    return commit_manifests(table, manifests, snapshot_id, Operation.DELETE, _delete_totals(parent, files), branch)


def commit_manifests(
    table: Table,
    manifests: Sequence[ManifestFile],
    snapshot_id: int,
    operation: Operation,
    summary: Mapping[str, str],
    branch: str,
) -> int:
    """Make a list of manifests the head of a branch."""
    metadata = table.metadata
    parent = metadata.snapshot_by_name(branch)
    parent_id = parent.snapshot_id if parent else None
    list_path = f"{table.location()}/metadata/snap-{snapshot_id}-{uuid.uuid4()}.avro"
    sequence_number = metadata.next_sequence_number()
    with write_manifest_list(
        metadata.format_version, table.io.new_output(list_path), snapshot_id, parent_id, sequence_number, "gzip"
    ) as writer:
        writer.add_manifests(list(manifests))
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent_id,
        manifest_list=list_path,
        sequence_number=sequence_number,
        summary=Summary(operation, **summary),
        schema_id=metadata.current_schema_id,
    )
    move = SetSnapshotRefUpdate(
        snapshot_id=snapshot_id, parent_snapshot_id=parent_id, ref_name=branch, type=SnapshotRefType.BRANCH
    )
    expected = AssertRefSnapshotId(ref=branch, snapshot_id=parent_id)
    table.catalog.commit_table(table, (expected,), (AddSnapshotUpdate(snapshot=snapshot), move))
    table.refresh()
    return snapshot_id


def _delete_totals(parent: Snapshot, files: Sequence[DataFile]) -> dict[str, str]:
    before = parent.summary.additional_properties if parent.summary else {}
    totals = {key: int(value) for key, value in before.items() if key.startswith("total-")}
    for file in files:
        kind = "position" if file.content == DataFileContent.POSITION_DELETES else "equality"
        for key, amount in (
            ("total-delete-files", 1),
            (f"total-{kind}-deletes", file.record_count),
            ("total-files-size", file.file_size_in_bytes),
        ):
            totals[key] = totals.get(key, 0) + amount
    return {key: str(value) for key, value in totals.items()}


def named_file(path: str, rows: int = 1) -> DataFile:
    """A data file of an unpartitioned table under any spelling of its path; its length is that of the local file."""
    on_disk = Path(split_location(path).path)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=on_disk.stat().st_size if on_disk.is_file() else 10,
    )
    file.spec_id = 0
    return file


def replace_names(table: Table, removed: Sequence[str], added: Sequence[str]) -> None:
    """Commit a snapshot that names files under other paths; nothing is written or read."""
    live = {entry.data_file.file_path: entry.data_file for entry in live_entries(table)}
    with table.transaction() as transaction, transaction.update_snapshot().overwrite() as change:
        for path in removed:
            change.delete_data_file(live[path])
        for path in added:
            change.append_data_file(named_file(path))

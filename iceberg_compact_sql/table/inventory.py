"""The live files of one branch head with the deletes that apply to them: what every plan starts from."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import DataFileContent, ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import IcebergType

from iceberg_compact_sql.errors import NotFoundError, UnsupportedError, did_you_mean
from iceberg_compact_sql.events import reach
from iceberg_compact_sql.pyiceberg_internals import manifest_columns as record
from iceberg_compact_sql.table.damaged_metadata import readable
from iceberg_compact_sql.table.delete_index import (
    DeleteIndex,
    KeyRange,
    KeyRanges,
    key_range,
)
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile, PlannedState
from iceberg_compact_sql.table.partitions import PartitionPaths, is_unpartitioned, partition_key
from iceberg_compact_sql.table.pruning import FileMetrics, FilePruner
from iceberg_compact_sql.table.snapshot_counts import counts_files
from iceberg_compact_sql.table.summary_keys import RUN_ID, SIZES

Partition = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class SnapshotFact:
    """What planning needs to know of a snapshot that is still in the metadata."""

    snapshot_id: int
    sequence_number: int
    time_ms: int
    # A replace changes no row: rows were compacted, not written.
    replaces: bool
    # The run of ours that made it, and the sizes that it was made for.
    run_id: str | None = None
    sizes: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """When rows of a partition were last written and last compacted, as far as the metadata still tells."""

    last_written_ms: int | None
    last_compacted_ms: int | None
    # None when the oldest files are older than the oldest snapshot in the metadata.
    first_written_ms: int | None = None


class TableInventory:
    """Live files of one branch head in scan order: manifests as listed, entries as stored.

    Nothing is read after it is made, and nothing in it changes. `files` holds only those that may match the filter that
    it was read with; `deletes` holds all.
    """

    def __init__(
        self,
        state: PlannedState,
        files: Sequence[LiveFile],
        deletes: Sequence[LiveDelete] = (),
        *,
        specs: Mapping[int, PartitionSpec],
        default_spec_id: int,
        schemas: Sequence[Schema] = (),
        snapshots: Sequence[SnapshotFact] = (),
        index: DeleteIndex | None = None,
    ) -> None:
        self.state = state
        self.files = files
        self.deletes = deletes
        self.specs = specs
        self.default_spec_id = default_spec_id
        self._snapshots = {fact.snapshot_id: fact for fact in snapshots}
        self.snapshot_times_ms: Mapping[int, int] = {fact.snapshot_id: fact.time_ms for fact in snapshots}
        self._times_by_sequence = {fact.sequence_number: fact.time_ms for fact in snapshots}
        self._paths = PartitionPaths(specs, schemas)
        self._index = index if index is not None else DeleteIndex(deletes, unpartitioned_specs=_unpartitioned(specs))
        self._delete_times: dict[tuple[int, Partition], int] | None = None

    @property
    def has_deletes(self) -> bool:
        return not self._index.empty

    def deletes_for(self, file: LiveFile) -> Sequence[LiveDelete]:
        """The deletes that may remove rows of a file, by sequence number, spec and partition, path and key bounds."""
        return self._index.deletes_for(file)

    def known_deleted_rows(self, file: LiveFile) -> int:
        """Rows that deletes of this one file remove, as their record counts say."""
        return self._index.known_deleted_rows(file)

    def made_by_one_run(self, files: Sequence[LiveFile], sizes: str) -> bool:
        """Whether one compaction of ours wrote all these files, for the same sizes."""
        snapshot_ids = {file.snapshot_id for file in files}
        facts = [self._snapshots.get(found) if found is not None else None for found in snapshot_ids]
        runs = {(fact.run_id, fact.sizes) if fact is not None and fact.replaces else None for fact in facts}
        [run, *more] = runs
        return not more and run is not None and run[0] is not None and run[1] == sizes

    def partition_path(self, spec_id: int, partition: Partition) -> str:
        return self._paths.path(spec_id, partition)

    def history(self, files: Sequence[LiveFile]) -> PartitionHistory:
        """When the rows of these files, all the files of a partition, were last written and last compacted.

        Deletes of the partition count as writes. Where only compacted files are left, the moment of the plan that
        compacted them stands for the last write: it was not later.
        """
        written: int | None = None
        earliest: int | None = None
        forgotten = False
        compacted: int | None = None
        at_latest: int | None = None
        # Commits, not files: there are far fewer.
        for snapshot_id, sequence_number in {(file.snapshot_id, file.sequence_number) for file in files}:
            fact = self._snapshots.get(snapshot_id) if snapshot_id is not None else None
            if fact is None:
                forgotten = True
                continue
            earliest = fact.time_ms if earliest is None else min(earliest, fact.time_ms)
            if fact.replaces:
                compacted = _latest(compacted, fact.time_ms)
                at_latest = _latest(at_latest, self._times_by_sequence.get(sequence_number))
            else:
                written = _latest(written, fact.time_ms)
        if self.deletes:
            times = self._times_of_deletes()
            for key in {(file.spec_id, partition_key(file.partition)) for file in files}:
                written = _latest(written, times.get(key))
        return PartitionHistory(
            written if written is not None else at_latest, compacted, None if forgotten else earliest
        )

    def _times_of_deletes(self) -> dict[tuple[int, Partition], int]:
        if self._delete_times is None:
            self._delete_times = {}
            for delete in self.deletes:
                time_ms = self._times_by_sequence.get(delete.sequence_number)
                if time_ms is not None:
                    key = (delete.spec_id, partition_key(delete.partition))
                    self._delete_times[key] = max(time_ms, self._delete_times.get(key, time_ms))
        return self._delete_times


def read_inventory(table: Table, branch: str, where: BooleanExpression | None = None) -> TableInventory:
    """The inventory of a branch's head; a table without a snapshot has an empty one.

    `where` chooses files: manifests, partitions and files that cannot hold a matching row are passed over. Reads the
    manifest list and the manifests once, changes nothing.
    """
    metadata = table.metadata
    snapshot = branch_head(metadata, branch)
    state = PlannedState(
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        branch=branch,
        snapshot_id=snapshot.snapshot_id if snapshot is not None else None,
        sequence_number=(snapshot.sequence_number or 0) if snapshot is not None else 0,
    )
    specs = metadata.specs()
    schemas = [metadata.schema(), *reversed(metadata.schemas)]
    reach("inventory.head", branch=branch, snapshot_id=state.snapshot_id)
    listed = _manifests(table, snapshot) if snapshot is not None else []
    manifests = [manifest for manifest in listed if manifest.has_added_files() or manifest.has_existing_files()]
    pruner = None
    if where is not None and not isinstance(where, AlwaysTrue):
        pruner = FilePruner(where, metadata.schema(), specs)
    reader = _ManifestsReader(schemas, pruner)
    with _no_search_for_garbage():
        deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        for manifest, contents in record.read_ahead(deletes, table.io):
            with readable("manifest", manifest.manifest_path):
                reader.read_deletes(manifest, contents())
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        wanted = [manifest for manifest in data if pruner is None or pruner.manifest_may_match(manifest)]
        for manifest, contents in record.read_ahead(wanted, table.io):
            with readable("manifest", manifest.manifest_path):
                reader.read_files(manifest, contents())
    index = DeleteIndex(
        reader.deletes,
        unpartitioned_specs=_unpartitioned(specs),
        file_keys=reader.file_keys,
        delete_keys=reader.delete_keys,
    )
    reach("inventory.read", files=len(reader.files), deletes=len(reader.deletes))
    return TableInventory(
        state,
        reader.files,
        reader.deletes,
        specs=specs,
        default_spec_id=metadata.default_spec_id,
        schemas=schemas,
        snapshots=_facts(metadata),
        index=index,
    )


def _manifests(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    with readable("manifest list", snapshot.manifest_list):
        listed = snapshot.manifests(table.io)
        if not listed and counts_files(snapshot):
            raise EOFError("it names no manifest, its snapshot counts files")
        return listed


@contextlib.contextmanager
def _no_search_for_garbage() -> Iterator[None]:
    """Python looks through all objects again and again while they become more; here all that is made stays."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _ManifestsReader:
    """Gathers live files and deletes from manifests; delete manifests come first, as they say which keys matter."""

    def __init__(self, schemas: Sequence[Schema], pruner: FilePruner | None) -> None:
        self._schemas = schemas
        self._pruner = pruner
        # By spec and key; the key of a partition without floats is the partition itself.
        self._partitions: dict[int, dict[Partition, Partition]] = {}
        self._formats: dict[str, str] = {}
        self._key_types: dict[int, IcebergType | None] = {}
        self.files: list[LiveFile] = []
        self.deletes: list[LiveDelete] = []
        self.file_keys: dict[str, KeyRanges] = {}
        self.delete_keys: dict[str, KeyRanges] = {}

    def read_deletes(self, manifest: ManifestFile, contents: bytes) -> None:
        for values in record.read_live_records(manifest, contents, metrics=True):
            equality = values[record.CONTENT] == DataFileContent.EQUALITY_DELETES.value
            file_format = values[record.FORMAT].upper()
            kind = DeleteKind.EQUALITY if equality else DeleteKind.POSITION
            if not equality and file_format == "PUFFIN":
                kind = DeleteKind.VECTOR
            equality_ids = tuple(values[record.EQUALITY_IDS] or ())
            columns = equality_ids if equality else (PATH_FIELD_ID,)
            lower = record.int_map(values[record.LOWER_BOUNDS])
            upper = record.int_map(values[record.UPPER_BOUNDS])
            delete = LiveDelete(
                path=values[record.PATH],
                kind=kind,
                file_format=file_format,
                spec_id=manifest.partition_spec_id,
                partition=self._shared(manifest.partition_spec_id, values[record.PARTITION]),
                sequence_number=_sequence(values, manifest),
                size_bytes=values[record.SIZE],
                rows=values[record.ROWS],
                equality_ids=equality_ids,
                referenced_path=None if equality else _referenced_path(values, lower, upper),
                content_offset=values[record.CONTENT_OFFSET],
                content_size_bytes=values[record.CONTENT_SIZE],
                lower_bounds=tuple((column, lower[column]) for column in columns if column in lower),
                upper_bounds=tuple((column, upper[column]) for column in columns if column in upper),
            )
            self.deletes.append(delete)
            if equality:
                for column in equality_ids:
                    if column not in self._key_types:
                        self._key_types[column] = self._type_of(column)
                self.delete_keys[delete.path] = self._key_ranges(values, equality_ids)

    def read_files(self, manifest: ManifestFile, contents: bytes) -> None:
        pruner, append = self._pruner, self.files.append
        spec_id = manifest.partition_spec_id
        partitions, formats = self._partitions.setdefault(spec_id, {}), self._formats
        keys = tuple(self._key_types)
        for values in record.read_live_records(manifest, contents, metrics=pruner is not None or bool(keys)):
            # One step for all of them: a table may have a million files.
            (
                snapshot_id,
                sequence,
                file_sequence,
                path,
                file_format,
                partition,
                rows,
                size,
                key,
                offsets,
                sort_order,
            ) = values[record.SNAPSHOT_ID : record.SORT_ORDER + 1]
            if pruner is not None and not (
                pruner.partition_may_match(spec_id, partition) and pruner.file_may_match(_metrics(values))
            ):
                continue
            shared = partitions.get(partition)
            file = LiveFile(
                path,
                formats.get(file_format) or self._format(file_format),
                spec_id,
                shared if shared is not None else self._shared(spec_id, partition),
                size,
                rows,
                sequence if sequence is not None else _sequence(values, manifest),
                snapshot_id,
                sort_order,
                key is not None,
                tuple(offsets) if offsets else (),
                file_sequence,
            )
            append(file)
            if keys:
                self.file_keys[path] = self._key_ranges(values, keys)

    def _format(self, text: str) -> str:
        return self._formats.setdefault(text, text.upper())

    def _shared(self, spec_id: int, partition: Partition) -> Partition:
        """One tuple for all files of a partition; apart where Python's equality is looser than a partition's."""
        return self._partitions.setdefault(spec_id, {}).setdefault(partition_key(partition), partition)

    def _type_of(self, column: int) -> IcebergType | None:
        for schema in self._schemas:
            try:
                return schema.find_type(column)
            except ValueError:
                continue
        return None

    def _key_ranges(self, values: list[Any], columns: Sequence[int]) -> KeyRanges:
        lower = record.int_map(values[record.LOWER_BOUNDS])
        upper = record.int_map(values[record.UPPER_BOUNDS])
        nulls = record.int_map(values[record.NULL_COUNTS])
        ranges: dict[int, KeyRange] = {}
        for column in columns:
            found = key_range(self._key_types[column], lower.get(column), upper.get(column), nulls.get(column))
            if found.lower is not None or found.upper is not None:
                ranges[column] = found
        return ranges


def _metrics(values: list[Any]) -> FileMetrics:
    return FileMetrics(
        values[record.ROWS],
        record.int_map(values[record.VALUE_COUNTS]),
        record.int_map(values[record.NULL_COUNTS]),
        record.int_map(values[record.NAN_COUNTS]),
        record.int_map(values[record.LOWER_BOUNDS]),
        record.int_map(values[record.UPPER_BOUNDS]),
    )


def _referenced_path(values: list[Any], lower: Mapping[int, bytes], upper: Mapping[int, bytes]) -> str | None:
    """The one data file that a position delete file is about, said outright or by equal bounds of its paths."""
    path: str | None = values[record.REFERENCED_PATH]
    if path is not None:
        return path
    low, high = lower.get(PATH_FIELD_ID), upper.get(PATH_FIELD_ID)
    return low.decode("utf-8") if low is not None and low == high else None


def _sequence(values: list[Any], manifest: ManifestFile) -> int:
    sequence: int | None = values[record.SEQUENCE]
    if sequence is None:
        raise UnsupportedError(
            f"manifest {manifest.manifest_path} holds {values[record.PATH]} without a sequence number",
            hint="Without it nobody can tell which deletes apply. Rewrite the manifest with the engine that wrote it.",
        )
    return sequence


def branch_head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """The newest snapshot of a branch; `main` may have none yet, any other branch that does not exist is refused."""
    ref = metadata.refs.get(branch)
    if ref is None:
        if branch == "main" and metadata.current_snapshot_id is None:
            return None
        names = sorted(metadata.refs)
        raise NotFoundError(
            f"branch '{branch}' does not exist",
            argument="branch",
            value=branch,
            hint=f"The table has: {', '.join(names) or 'no branch yet'}. {did_you_mean(branch, names) or ''}".rstrip(),
        )
    if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise NotFoundError(
            f"'{branch}' is a {ref.snapshot_ref_type.value}, not a branch",
            argument="branch",
            value=branch,
            hint="A tag never changes; name a branch.",
        )
    return metadata.snapshot_by_id(ref.snapshot_id)


def _facts(metadata: TableMetadata) -> list[SnapshotFact]:
    return [
        SnapshotFact(
            snapshot.snapshot_id,
            snapshot.sequence_number or 0,
            snapshot.timestamp_ms,
            snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE,
            snapshot.summary.get(RUN_ID) if snapshot.summary is not None else None,
            snapshot.summary.get(SIZES) if snapshot.summary is not None else None,
        )
        for snapshot in metadata.snapshots
    ]


def _unpartitioned(specs: Mapping[int, PartitionSpec]) -> frozenset[int]:
    return frozenset(spec_id for spec_id, spec in specs.items() if is_unpartitioned(spec))


def _latest(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)

"""The live files of one branch head with the deletes that apply to them: the input of every plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from iceberg_compact_sql.errors import NotFoundError, did_you_mean
from iceberg_compact_sql.events import reach, stop_if_cancelled
from iceberg_compact_sql.garbage_collector import garbage_collector_off
from iceberg_compact_sql.pyiceberg_internals import manifest_columns as record
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import read_manifests
from iceberg_compact_sql.table.column_bounds import ColumnBounds
from iceberg_compact_sql.table.damaged_metadata import stop_if_damaged
from iceberg_compact_sql.table.delete_index import (
    DeleteIndex,
)
from iceberg_compact_sql.table.delete_rules import is_global
from iceberg_compact_sql.table.inventory_reader import InventoryReader, Partition
from iceberg_compact_sql.table.model import LiveDelete, LiveFile, PlannedState
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from iceberg_compact_sql.table.partitions import PartitionPaths
from iceberg_compact_sql.table.pruning import FilePruner
from iceberg_compact_sql.table.snapshot_counts import summary_counts_files
from iceberg_compact_sql.table.summary_keys import RUN_ID, SIZES


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What planning needs about a snapshot that is still in the metadata."""

    snapshot_id: int
    sequence_number: int
    time_ms: int
    # The operation is `replace`: rows were compacted, not written.
    replaces: bool
    # The run of this package that made it, and the sizes that the run used.
    run_id: str | None = None
    sizes: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionHistory:
    """When rows of a partition were last written and last compacted; None when the metadata does not show it."""

    last_written_ms: int | None
    last_compacted_ms: int | None
    # None when the oldest files are older than the oldest snapshot in the metadata.
    first_written_ms: int | None = None


class TableInventory:
    """Live files of one branch head in scan order: manifests as listed, entries as stored.

    It is complete when it is created, and it never changes. `files` holds only files that may match the filter;
    `deletes` holds all deletes.
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
        snapshots: Sequence[SnapshotFacts] = (),
        index: DeleteIndex | None = None,
        manifests: int = 0,
        bounds: Mapping[str, Mapping[int, ColumnBounds]] | None = None,
    ) -> None:
        self.state = state
        self.files = files
        self.deletes = deletes
        self.specs = specs
        self.default_spec_id = default_spec_id
        # How many manifests were read.
        self.manifests = manifests
        # By path, of the columns that the reader was asked for.
        self.bounds = bounds or {}
        self._snapshots = {fact.snapshot_id: fact for fact in snapshots}
        self._times_by_sequence = {fact.sequence_number: fact.time_ms for fact in snapshots}
        # The current schema; the others are for partitions of dropped columns.
        self.schema = schemas[0] if schemas else None
        self._paths = PartitionPaths(specs, schemas)
        self._index = index if index is not None else DeleteIndex(deletes, unpartitioned_specs=_unpartitioned(specs))
        self._delete_times: dict[tuple[int, Partition], int] | None = None

    @property
    def has_deletes(self) -> bool:
        return not self._index.is_empty

    def deletes_for(self, file: LiveFile) -> Sequence[LiveDelete]:
        """Return the deletes that may remove rows of a file: by sequence number, partition, path and key bounds."""
        return self._index.deletes_for(file)

    def known_deleted_rows(self, file: LiveFile) -> int:
        """Return how many rows the file-scoped deletes of a file remove, by their record counts."""
        return self._index.known_deleted_rows(file)

    def made_by_one_run(self, files: Sequence[LiveFile], sizes: str) -> bool:
        """Whether one run of this package wrote all these files, with these sizes."""
        snapshot_ids = {file.snapshot_id for file in files}
        facts = [self._snapshots.get(key) if key is not None else None for key in snapshot_ids]
        runs = {(fact.run_id, fact.sizes) if fact is not None and fact.replaces else None for fact in facts}
        [run, *more] = runs
        return not more and run is not None and run[0] is not None and run[1] == sizes

    def ordered_run(self, file: LiveFile, order_text: str) -> str | None:
        """Return the run of this package that wrote the file in this order; None if none did, or it is unknown."""
        fact = self._snapshots.get(file.snapshot_id) if file.snapshot_id is not None else None
        if fact is None or not fact.replaces or fact.sizes is None or not fact.sizes.endswith(f"/{order_text}"):
            return None
        return fact.run_id

    def partition_path(self, spec_id: int, partition: Partition) -> str:
        return self._paths.path(spec_id, partition)

    def history(self, files: Sequence[LiveFile]) -> PartitionHistory:
        """Return when the rows of these files, all files of one partition, were last written and last compacted.

        Deletes of the partition count as writes. If only compacted files are left, the time of the snapshot that the
        compaction was planned on counts as the last write: the rows were not written later.
        """
        written: int | None = None
        earliest: int | None = None
        forgotten = False
        compacted: int | None = None
        at_latest: int | None = None
        # Loop over commits, not files: there are far fewer.
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
            for key in {(file.spec_id, exact_partition_key(file.partition)) for file in files}:
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
                    key = (delete.spec_id, exact_partition_key(delete.partition))
                    self._delete_times[key] = max(time_ms, self._delete_times.get(key, time_ms))
        return self._delete_times


def read_inventory(
    table: Table, branch: str, where: BooleanExpression | None = None, *, bounds_of: Sequence[int] = ()
) -> TableInventory:
    """Return the inventory of a branch's head; a table without a snapshot has an empty one.

    `where` selects files: manifests, partitions and files that cannot hold a matching row are skipped. `bounds_of` are
    the ids of columns whose bounds are kept. Reads the manifest list and the manifests once; changes nothing.
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
    manifests = live_manifests(table, snapshot) if snapshot is not None else []
    pruner = None
    if where is not None and not isinstance(where, AlwaysTrue):
        pruner = FilePruner(where, metadata.schema(), specs)
    reader = InventoryReader(schemas, pruner, bounds_of)
    with garbage_collector_off():
        deletes = [manifest for manifest in manifests if manifest.content == ManifestContent.DELETES]
        for manifest, contents in record.read_ahead(deletes, table.io):
            stop_if_cancelled()
            with stop_if_damaged("manifest", manifest.manifest_path):
                reader.read_deletes(manifest, contents())
        data = [manifest for manifest in manifests if manifest.content == ManifestContent.DATA]
        wanted = [manifest for manifest in data if pruner is None or pruner.manifest_may_match(manifest)]
        for manifest, contents in record.read_ahead(wanted, table.io):
            stop_if_cancelled()
            with stop_if_damaged("manifest", manifest.manifest_path):
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
        manifests=len(deletes) + len(wanted),
        bounds=reader.bounds,
    )


def live_manifests(table: Table, snapshot: Snapshot) -> list[ManifestFile]:
    """Return the manifests of a snapshot that list live files, in the order of the manifest list."""
    with stop_if_damaged("manifest list", snapshot.manifest_list):
        listed = read_manifests(table.io, snapshot.manifest_list)
        if not listed and summary_counts_files(snapshot):
            raise EOFError("it has no manifest, but the snapshot's summary counts files")
        return [manifest for manifest in listed if manifest.has_added_files() or manifest.has_existing_files()]


def branch_head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the newest snapshot of a branch; None for a new `main`. Raise for any other branch that does not exist."""
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
            hint="A tag never changes. Give a branch.",
        )
    return metadata.snapshot_by_id(ref.snapshot_id)


def _facts(metadata: TableMetadata) -> list[SnapshotFacts]:
    return [
        SnapshotFacts(
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
    return frozenset(spec_id for spec_id, spec in specs.items() if is_global(spec))


def _latest(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else max(left, right)

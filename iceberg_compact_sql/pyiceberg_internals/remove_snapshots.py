"""Removing snapshots in one metadata commit, with what a plan relied on pinned.

pyiceberg's own `remove-snapshots` forgets partition statistics, cuts parent ids and leaves history with holes, through
which time travel would find a snapshot that was not current then; Java's reference implementation does neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import Field, PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import SnapshotLogEntry
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
    _apply_table_update,
    _TableMetadataUpdateContext,
)


class RemoveSnapshotsWhole(RemoveSnapshotsUpdate):
    """`remove-snapshots` for catalogs that apply updates in this process, as Java's metadata builder does it."""


class AssertStillDecided(ValidatableTableRequirement):
    """Validated in this process, on the metadata that the commit replaces: would the plan still be the same?"""

    type: Literal["assert-still-decided"] = Field(default="assert-still-decided")
    _holds: Callable[[TableMetadata], bool] = PrivateAttr()

    def __init__(self, holds: Callable[[TableMetadata], bool]) -> None:
        super().__init__(type="assert-still-decided")
        self._holds = holds

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or not self._holds(base_metadata):
            raise CommitFailedException("Requirement failed: refs, snapshots or retention settings have changed")


@_apply_table_update.register(RemoveSnapshotsWhole)
def _remove_snapshots(
    update: RemoveSnapshotsWhole, base: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    if lost := [name for name, ref in base.refs.items() if ref.snapshot_id in gone]:
        raise CommitFailedException(f"Requirement failed: snapshots to remove are referenced by {', '.join(lost)}")
    context.add_update(update)
    return base.model_copy(
        update={
            "snapshots": [s for s in base.snapshots if s.snapshot_id not in gone],
            "snapshot_log": _log_since_gap(base.snapshot_log, gone),
            "statistics": [s for s in base.statistics if s.snapshot_id not in gone],
            "partition_statistics": [s for s in base.partition_statistics if s.snapshot_id not in gone],
        }
    )


def _log_since_gap(log: Iterable[SnapshotLogEntry], gone: frozenset[int]) -> list[SnapshotLogEntry]:
    """History after the last removed entry: before it nobody can say any more what was current when."""
    kept: list[SnapshotLogEntry] = []
    for entry in log:
        if entry.snapshot_id in gone:
            kept.clear()
        else:
            kept.append(entry)
    return kept


def commit_removal(
    table: Table,
    *,
    snapshot_ids: Sequence[int],
    refs: Sequence[str],
    spec_ids: Sequence[int],
    schema_ids: Sequence[int],
    holds: Callable[[TableMetadata], bool],
) -> CommitTableResponse:
    """Commit the removal on top of `table`'s metadata; CommitFailedException if what it relied on has changed.

    Old metadata files go by the table's own `write.metadata.delete-after-commit.enabled`, as after any commit.
    """
    metadata = table.metadata
    in_process = validates_in_process(table)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in refs]
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    if in_process:
        updates += [RemoveSnapshotsWhole.model_validate({"snapshot-ids": list(snapshot_ids)})] if snapshot_ids else []
        requirements.append(AssertStillDecided(holds))  # type: ignore[arg-type]
    else:
        gone = frozenset(snapshot_ids)
        partitions = sorted({s.snapshot_id for s in metadata.partition_statistics} & gone)
        statistics = sorted({s.snapshot_id for s in metadata.statistics} & gone)
        updates += [RemovePartitionStatisticsUpdate.model_validate({"snapshot-id": i}) for i in partitions]
        updates += [RemoveStatisticsUpdate.model_validate({"snapshot-id": i}) for i in statistics]
        updates += [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(snapshot_ids)})] if snapshot_ids else []
        requirements += [_pin(n, r.snapshot_id) for n, r in metadata.refs.items()]
    if spec_ids:
        updates.append(RemovePartitionSpecsUpdate.model_validate({"spec-ids": list(spec_ids)}))
        requirements.append(AssertDefaultSpecId.model_validate({"default-spec-id": metadata.default_spec_id}))
    if schema_ids:
        updates.append(RemoveSchemasUpdate.model_validate({"schema-ids": list(schema_ids)}))
        requirements.append(AssertCurrentSchemaId.model_validate({"current-schema-id": metadata.current_schema_id}))
    return table.catalog.commit_table(table, tuple(requirements), tuple(updates))


def _pin(ref: str, snapshot_id: int) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def delete_old_metadata(table: Table, committed: TableMetadata) -> None:
    """What pyiceberg does after any commit: drop metadata files that fell out of the log, if the table says so."""
    table.catalog._delete_old_metadata(table.io, table.metadata, committed)


def validates_in_process(table: Table) -> bool:
    """Whether the catalog checks requirements here, so that requirements of our own count; a REST server does not."""
    from pyiceberg.catalog.rest import RestCatalog

    return not isinstance(table.catalog, RestCatalog)


def refusal_is_certain(table: Table, error: Exception) -> bool:
    """Whether a refused commit surely did not land; a request that a network repeats may be refused, having landed."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.catalog.sql import SqlCatalog

    if not validates_in_process(table):
        return False
    return isinstance(table.catalog, (SqlCatalog, NoopCatalog)) or str(error).startswith("Requirement failed")

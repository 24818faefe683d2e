"""Removes snapshots in one metadata commit that is refused if the basis of the plan has changed.

pyiceberg's own `remove-snapshots` keeps partition statistics, changes parent ids and leaves gaps in the history. With
a gap, time travel finds a snapshot that was not current at that time. Java's reference implementation does not do this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from pydantic import Field, PrivateAttr
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
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

from iceberg_compact_sql.pyiceberg_internals.requests import validates_in_process


class RemoveSnapshotsAsJava(RemoveSnapshotsUpdate):
    """`remove-snapshots` as in Java's metadata builder, for catalogs that apply updates in this process."""


class AssertPlanStillValid(ValidatableTableRequirement):
    """Requires that the plan would be the same on the metadata that the commit replaces; validated in this process."""

    type: Literal["assert-plan-still-valid"] = Field(default="assert-plan-still-valid")
    _holds: Callable[[TableMetadata], bool] = PrivateAttr()

    def __init__(self, holds: Callable[[TableMetadata], bool]) -> None:
        super().__init__(type="assert-plan-still-valid")
        self._holds = holds

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or not self._holds(base_metadata):
            raise CommitFailedException("Requirement failed: refs, snapshots or retention settings have changed")


@_apply_table_update.register(RemoveSnapshotsAsJava)
def _remove_snapshots(
    update: RemoveSnapshotsAsJava, base: TableMetadata, context: _TableMetadataUpdateContext
) -> TableMetadata:
    gone = frozenset(update.snapshot_ids)
    if names := [name for name, ref in base.refs.items() if ref.snapshot_id in gone]:
        raise CommitFailedException(f"Requirement failed: snapshots to remove are referenced by {', '.join(names)}")
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
    """Return the history after the last removed entry: before it the current snapshot at a time is unknown."""
    kept: list[SnapshotLogEntry] = []
    for entry in log:
        if entry.snapshot_id in gone:
            kept.clear()
        else:
            kept.append(entry)
    return kept


def removal_request(
    table: Table,
    *,
    snapshot_ids: Sequence[int],
    refs: Sequence[str],
    spec_ids: Sequence[int],
    schema_ids: Sequence[int],
    holds: Callable[[TableMetadata], bool],
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the request that removes snapshots, refs, specs and schemas; refused if its basis changed."""
    metadata = table.metadata
    in_process = validates_in_process(table)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in refs]
    requirements: list[TableRequirement] = [AssertTableUUID(uuid=metadata.table_uuid)]
    if in_process:
        updates += [RemoveSnapshotsAsJava.model_validate({"snapshot-ids": list(snapshot_ids)})] if snapshot_ids else []
        requirements.append(AssertPlanStillValid(holds))  # type: ignore[arg-type]
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
    return tuple(requirements), tuple(updates)


def _pin(ref: str, snapshot_id: int) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": ref, "snapshot-id": snapshot_id})


def refusal_is_certain(table: Table, error: Exception) -> bool:
    """Whether a refused commit certainly did not land: a repeated HTTP request conflicts with its own first copy."""
    from pyiceberg.catalog.noop import NoopCatalog
    from pyiceberg.catalog.sql import SqlCatalog

    if not validates_in_process(table):
        return False
    return isinstance(table.catalog, (SqlCatalog, NoopCatalog)) or str(error).startswith("Requirement failed")

"""Sends commits without pyiceberg's Transaction, whose clean-up deletes manifests of commits that landed."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.pyiceberg_internals.manifest_lists import next_row_id
from iceberg_compact_sql.redaction import masked_logger

_log = masked_logger(__name__)


def replace_request(
    table: Table,
    *,
    branch: str,
    snapshot_id: int,
    parent_snapshot_id: int,
    manifest_list: str,
    assigned_row_ids: int,
    sequence_number: int,
    summary: Summary,
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Return the request that makes a snapshot the head of a branch if the head is still its parent.

    It repeats the retention settings of the branch: a ref update without them removes them.
    """
    metadata = table.metadata
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent_snapshot_id,
        "manifest-list": manifest_list,
        "sequence-number": sequence_number,
        "summary": summary,
        "schema-id": metadata.current_schema_id,
    }
    if rules_of(metadata.format_version).row_lineage:
        # A catalog adds `added-rows` to its own `next-row-id`, and refuses a first row id behind it.
        snapshot |= {"first-row-id": next_row_id(metadata), "added-rows": assigned_row_ids}
    ref = metadata.refs[branch]
    move: dict[str, Any] = {
        "ref-name": branch,
        "type": SnapshotRefType.BRANCH,
        "snapshot-id": snapshot_id,
        "max-ref-age-ms": ref.max_ref_age_ms,
        "max-snapshot-age-ms": ref.max_snapshot_age_ms,
        "min-snapshots-to-keep": ref.min_snapshots_to_keep,
    }
    expected: dict[str, Any] = {"ref": branch, "snapshot-id": parent_snapshot_id}
    requirements: list[Any] = [AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId(**expected)]
    if rules_of(metadata.format_version).row_lineage and validates_in_process(table):
        requirements.append(AssertLastSequenceNumber(value=_last_sequence_number(metadata)))
    return (
        tuple(requirements),
        (AddSnapshotUpdate(snapshot=Snapshot(**snapshot)), SetSnapshotRefUpdate(**move)),
    )


def send_commit(
    table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> CommitTableResponse:
    """Send one request to the catalog, without a retry. Deletes nothing, also after an error."""
    return table.catalog.commit_table(table, requirements, updates)


def delete_old_metadata(table: Table, after: TableMetadata) -> None:
    """Delete metadata files that left the log, if `write.metadata.delete-after-commit.enabled` is true.

    Called only after a commit that certainly landed. A failed delete does not change the table.
    """
    try:
        table.catalog._delete_old_metadata(table.io, table.metadata, after)
    except Exception as error:
        _log.warning("old metadata files of %s were not deleted: %s", ".".join(table.name()), type(error).__name__)


def validates_in_process(table: Table) -> bool:
    """Whether the catalog checks requirements in this process, also custom ones; a REST server does not."""
    from pyiceberg.catalog.rest import RestCatalog

    return not isinstance(table.catalog, RestCatalog)


def _last_sequence_number(metadata: TableMetadata) -> int:
    # Version 1 has none.
    return getattr(metadata, "last_sequence_number", 0)


class AssertLastSequenceNumber(ValidatableTableRequirement):
    """Requires that no branch got a snapshot meanwhile: in version 3 pyiceberg does not compare sequence numbers."""

    type: Literal["assert-last-sequence-number"] = Field(default="assert-last-sequence-number")
    value: int

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or _last_sequence_number(base_metadata) != self.value:
            raise CommitFailedException("Requirement failed: another branch got a snapshot")


class AssertPropertyIs(ValidatableTableRequirement):
    """Requires that a property still has the value that was read; only for catalogs that validate in this process."""

    type: Literal["assert-property-is"] = Field(default="assert-property-is")
    name: str
    value: str | None = None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or base_metadata.properties.get(self.name) != self.value:
            raise CommitFailedException(f"Requirement failed: property {self.name} has changed")


def set_lease_property(table: Table, name: str, value: str | None) -> None:
    """Set one property, or remove it with None, in a commit that fails if it has changed since the last refresh.

    Only catalogs that validate in this process get the requirement: a REST server would refuse it as unknown.
    """
    requirements: list[Any] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
    if isinstance(table.catalog, MetastoreCatalog):
        requirements.append(AssertPropertyIs(name=name, value=table.metadata.properties.get(name)))
    update: TableUpdate = (
        RemovePropertiesUpdate(removals=[name]) if value is None else SetPropertiesUpdate(updates={name: value})
    )
    table.catalog.commit_table(table, tuple(requirements), (update,))

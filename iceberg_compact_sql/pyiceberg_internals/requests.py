"""Sending a commit without pyiceberg's Transaction, whose clean-up deletes manifests of commits that landed."""

from __future__ import annotations

import logging
from typing import Any, Literal

from pydantic import Field
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
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

_logger = logging.getLogger("iceberg_compact_sql")


def replace_request(
    metadata: TableMetadata,
    *,
    branch: str,
    snapshot_id: int,
    parent_snapshot_id: int,
    manifest_list: str,
    sequence_number: int,
    summary: Summary,
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """The request that makes a snapshot the head of a branch if the branch is still at its parent.

    The branch's own retention settings are sent again: a ref update without them wipes them.
    """
    snapshot: dict[str, Any] = {
        "snapshot-id": snapshot_id,
        "parent-snapshot-id": parent_snapshot_id,
        "manifest-list": manifest_list,
        "sequence-number": sequence_number,
        "summary": summary,
        "schema-id": metadata.current_schema_id,
    }
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
    return (
        (AssertTableUUID(uuid=metadata.table_uuid), AssertRefSnapshotId(**expected)),
        (AddSnapshotUpdate(snapshot=Snapshot(**snapshot)), SetSnapshotRefUpdate(**move)),
    )


def send_commit(
    table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
) -> TableMetadata:
    """One request to the catalog, no retry; deletes nothing, whatever comes of it."""
    return table.catalog.commit_table(table, requirements, updates).metadata


def forget_old_metadata(table: Table, after: TableMetadata) -> None:
    """Delete metadata files that left the log, where `write.metadata.delete-after-commit.enabled` asks for it.

    Only called after a commit that is known to have landed; a failure to delete changes nothing in the table.
    """
    try:
        table.catalog._delete_old_metadata(table.io, table.metadata, after)
    except Exception as error:
        _logger.warning("old metadata files of %s were not deleted: %s", ".".join(table.name()), type(error).__name__)


class AssertPropertyIs(ValidatableTableRequirement):
    """A property still has the value that was read; only for catalogs that validate in this process."""

    type: Literal["assert-property-is"] = Field(default="assert-property-is")
    name: str
    value: str | None = None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        if base_metadata is None or base_metadata.properties.get(self.name) != self.value:
            raise CommitFailedException(f"Requirement failed: property {self.name} has changed")


def set_claim_property(table: Table, name: str, value: str | None) -> None:
    """Set (or with None remove) one property in a commit that fails if somebody else set it since the last refresh.

    A REST server would refuse the requirement as unknown, so it is only given to catalogs that check it here.
    """
    requirements: list[Any] = [AssertTableUUID(uuid=table.metadata.table_uuid)]
    if isinstance(table.catalog, MetastoreCatalog):
        requirements.append(AssertPropertyIs(name=name, value=table.metadata.properties.get(name)))
    update: TableUpdate = (
        RemovePropertiesUpdate(removals=[name]) if value is None else SetPropertiesUpdate(updates={name: value})
    )
    table.catalog.commit_table(table, tuple(requirements), (update,))

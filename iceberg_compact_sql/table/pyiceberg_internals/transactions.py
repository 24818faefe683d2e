"""Sending a commit without pyiceberg's Transaction, whose clean-up deletes manifests of commits that landed."""

from __future__ import annotations

import logging
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
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

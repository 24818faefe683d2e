"""Text about what a step of maintain_table did or would do, with the column names of its procedure."""

from __future__ import annotations

from functools import singledispatch

from iceberg_compact_sql.actions.compact_request import CompactResult
from iceberg_compact_sql.actions.merge_position_deletes import PositionDeletesResult
from iceberg_compact_sql.actions.orphans import OrphansResult
from iceberg_compact_sql.actions.rewrite_manifests import ManifestsResult
from iceberg_compact_sql.call.declaration import Procedure, Row
from iceberg_compact_sql.plan.model import CompactionPlan
from iceberg_compact_sql.procedures import (
    compact_table,
    expire_snapshots,
    rewrite_manifests,
    rewrite_position_deletes,
)
from iceberg_compact_sql.reclaim.expiry import ExpiryPlan, ExpiryResult
from iceberg_compact_sql.units import format_bytes

# Columns that do not describe a change.
_NOT_SHOWN = ("elapsed_ms", "snapshot_id", "groups_count", "commits_count", "depth_before", "depth_after")


@singledispatch
def detail(result: object) -> str:
    """Return what an action changed or would change; empty if nothing."""
    raise TypeError(f"no text for a result of type {type(result).__name__}")


@detail.register
def _(result: CompactResult) -> str:
    return _counts(compact_table.PROCEDURE, compact_table.result_row(result))


@detail.register
def _(plan: CompactionPlan) -> str:
    files = sum(len(group.files) for group in plan.rewrites)
    size = format_bytes(sum(group.input_bytes for group in plan.rewrites))
    return f"{len(plan.rewrites)} groups, {files} files, {size}" if plan.rewrites else ""


@detail.register
def _(result: PositionDeletesResult) -> str:
    return _counts(rewrite_position_deletes.PROCEDURE, rewrite_position_deletes.result_row(result))


@detail.register
def _(result: ManifestsResult) -> str:
    return _counts(rewrite_manifests.PROCEDURE, rewrite_manifests.result_row(result))


@detail.register
def _(result: ExpiryResult) -> str:
    return _counts(expire_snapshots.PROCEDURE, expire_snapshots.result_row(result))


@detail.register
def _(plan: ExpiryPlan) -> str:
    snapshots, files = len(plan.retention.expired), len(plan.files)
    size = format_bytes(sum(file.size_bytes or 0 for file in plan.files))
    return f"{snapshots} snapshots, {files} files, {size}" if snapshots or files else ""


@detail.register
def _(result: OrphansResult) -> str:
    if not result.files:
        return ""
    # A dry run deletes nothing: all of its files would be deleted.
    deleted = result.deleted if result.ran else result.files
    not_deleted = f", {len(result.files) - len(deleted)} not deleted" if len(result.files) > len(deleted) else ""
    return f"{len(deleted)} files, {format_bytes(sum(file.size_bytes for file in deleted))}{not_deleted}"


def _counts(procedure: Procedure, row: Row) -> str:
    named = zip((column.name for column in procedure.columns), row, strict=True)
    return ", ".join(f"{name} {value}" for name, value in named if value and name not in _NOT_SHOWN)

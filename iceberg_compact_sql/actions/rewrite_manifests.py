"""The work of `rewrite_manifests`: the same files in fewer manifests, clustered by partition."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.reporting import reported, snapshot_ids
from iceberg_compact_sql.actions.writable import committed_snapshot, writable_table
from iceberg_compact_sql.commit.rewrite_manifests import (
    ManifestRewriteRequest,
    check_request,
    commit_manifest_rewrite,
    plan_manifest_rewrite,
)
from iceberg_compact_sql.commit.run_stamps import stamp_summary
from iceberg_compact_sql.table.inventory import branch_head


@dataclass(frozen=True, kw_only=True)
class ManifestsRequest:
    """One rewrite of the manifests of one branch. `spec_id` None means all specs, or the table's current spec only."""

    table: str
    branch: str = "main"
    spec_id: int | None = None
    sort_by: tuple[str, ...] = ()
    current_spec_only: bool = False

    def manifest_request(self, metadata: TableMetadata) -> ManifestRewriteRequest:
        """What is asked of a table with this metadata."""
        current = self.spec_id is None and self.current_spec_only
        return ManifestRewriteRequest(metadata.default_spec_id if current else self.spec_id, self.sort_by)


@dataclass(frozen=True, kw_only=True)
class ManifestsResult:
    """What was rewritten, or would be; `snapshot_id` is None if nothing was committed."""

    rewritten_manifests: int = 0
    added_manifests: int = 0
    snapshot_id: int | None = None


def plan_manifests(request: ManifestsRequest, context: Context) -> ManifestsResult:
    """Return what `rewrite_manifests` would do now; changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = writable_table(context, request.table)
        branch_head(opened.table.metadata, request.branch)
        manifest_request = request.manifest_request(opened.table.metadata)
        planned = plan_manifest_rewrite(opened.table, manifest_request, branch=request.branch)
        return ManifestsResult(rewritten_manifests=planned.replaced, added_manifests=planned.written)


def rewrite_manifests(request: ManifestsRequest, context: Context) -> ManifestsResult:
    """Commit a REPLACE snapshot with the same files in fewer or better manifests; a no-op if there is no gain."""
    snapshot_id: int | None = None
    with (
        reported(context, "rewrite_manifests", request.table, lambda: {"snapshot_ids": snapshot_ids(snapshot_id)}),
        context.run(lambda: (ManifestsResult(), "Nothing was committed; the table is as it was.")),
    ):
        opened = writable_table(context, request.table)
        if branch_head(opened.table.metadata, request.branch) is None:
            return plan_manifests(request, context)
        events.stop_if_cancelled()
        manifest_request = request.manifest_request(opened.table.metadata)
        summary = {**context.engine_summary, **stamp_summary(context.observer.run_id, [])}
        with events.uninterrupted():
            attempted, done = commit_manifest_rewrite(
                opened.table, manifest_request, branch=request.branch, summary=summary
            )
        snapshot_id = committed_snapshot(attempted.outcome, attempted.snapshot_id, attempted.detail)
        if snapshot_id is not None:
            context.refresh(opened)
        return ManifestsResult(rewritten_manifests=done.replaced, added_manifests=done.written, snapshot_id=snapshot_id)


def check_manifests(request: ManifestsRequest, context: Context) -> None:
    """Refuse a spec or partition fields that the table does not have."""
    if request.sort_by or request.spec_id is not None:
        metadata = context.open_table(request.table).table.metadata
        check_request(metadata, request.manifest_request(metadata))

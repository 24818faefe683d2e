"""Shared code of actions that commit: opens writable tables, and reports the outcome of a commit."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError
from iceberg_compact_sql.format_versions import require_writable
from iceberg_compact_sql.reclaim.metadata_versions import refuse_copied_folder


def writable_table(context: Context, name: str) -> OpenTable:
    """Open a table for commits; raise with the reason if commits to it are not safe."""
    opened = context.open_table(name)
    require_writable(opened.table.metadata.format_version, name)
    opened.require_commits()
    # New files of a copied hadoop table would lie in the original's folder, where its remove_orphans deletes them.
    refuse_copied_folder(opened.table)
    return opened


def committed_snapshot(outcome: Outcome, snapshot_id: int | None, detail: str) -> int | None:
    """Return the committed snapshot id, or None if there was nothing to commit; raise for any other outcome."""
    if outcome is Outcome.UNKNOWN:
        raise CommitUnknownError(
            f"the catalog did not say whether snapshot {snapshot_id} was committed: {detail}",
            hint=f"Look for snapshot {snapshot_id} in the table's history; no file was deleted.",
        )
    if outcome is Outcome.FAILED:
        raise CommitConflictError(
            f"the commit failed: {detail or 'the catalog refused it'}",
            hint="The table has only the changes of other writers. Run it again.",
        )
    return snapshot_id if outcome is Outcome.COMMITTED else None

"""What procedures that commit have in common: the table that they may write, and how a commit's end is told."""

from __future__ import annotations

import uuid

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.commit.model import Outcome
from iceberg_compact_sql.commit.run_stamps import stamp_summary
from iceberg_compact_sql.errors import CommitConflictError, CommitUnknownError, UnsupportedError

# The newest format version whose rules this package keeps when it writes metadata.
NEWEST_FORMAT_VERSION = 2


def writable_table(context: Context, name: str) -> OpenTable:
    """The table under a name, if commits to it are safe; refused with the reason otherwise."""
    opened = context.open_table(name)
    version = opened.table.metadata.format_version
    if version > NEWEST_FORMAT_VERSION:
        raise UnsupportedError(
            f"table '{name}' has format version {version}; row lineage and deletion vectors are not kept yet",
            argument="table",
            value=name,
            hint=f"Versions 1 to {NEWEST_FORMAT_VERSION} are supported.",
        )
    opened.require_commits()
    return opened


def new_stamp() -> dict[str, str]:
    """Summary properties that tell our snapshots from others'."""
    return stamp_summary(uuid.uuid4().hex[:16], [])


def settled(outcome: Outcome, snapshot_id: int | None, detail: str) -> int | None:
    """The snapshot that was committed, or None when nothing had to be; raises what a user must know otherwise."""
    if outcome is Outcome.UNKNOWN:
        raise CommitUnknownError(
            f"the catalog did not say whether snapshot {snapshot_id} was committed: {detail}",
            hint=f"Look for snapshot {snapshot_id} in the table's history; no file was deleted.",
        )
    if outcome is Outcome.FAILED:
        raise CommitConflictError(
            f"the commit failed: {detail or 'the catalog refused it'}",
            hint="The table is as the others left it. Run it again.",
        )
    return snapshot_id if outcome is Outcome.COMMITTED else None

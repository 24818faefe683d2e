"""The outcome of a commit, read from the table itself before anything is reported or deleted."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    UnauthorizedError,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from iceberg_compact_sql.commit.commit_loop import Rejection
from iceberg_compact_sql.commit.conflicts import is_ancestor
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.table.retries import RetryPolicy

# pyiceberg checks in this process that no other branch got a snapshot meanwhile; nothing was sent.
_OUTDATED = re.compile(
    r"Cannot add snapshot with sequence number \d+ older than last sequence number"
    r"|Cannot add a snapshot with first row id smaller than the table's next-row-id"
)


class SnapshotPresence(Enum):
    """Where a snapshot is."""

    IN_BRANCH = "in the history of the branch"
    IN_TABLE = "in the table but not in the history of the branch"
    ABSENT = "nowhere"


def classify_error(error: BaseException) -> Rejection:
    """Return what an error says about the commit request: in doubt unless it is a known response of the catalog."""
    if isinstance(error, CommitFailedException):
        return Rejection.RETRY
    if isinstance(error, ValueError) and _OUTDATED.search(str(error)):
        return Rejection.RETRY
    # UnsupportedError: one of our catalogs cannot commit at the table's location, and raises before it writes anything.
    if isinstance(error, (BadRequestError, ForbiddenError, NoSuchTableError, UnauthorizedError, UnsupportedError)):
        return Rejection.FINAL
    return Rejection.DOUBT


def snapshot_presence(metadata: TableMetadata, branch: str, snapshot_id: int) -> SnapshotPresence:
    """Return where a snapshot is in freshly loaded metadata."""
    if metadata.snapshot_by_id(snapshot_id) is None:
        return SnapshotPresence.ABSENT
    return SnapshotPresence.IN_BRANCH if is_ancestor(metadata, branch, snapshot_id) else SnapshotPresence.IN_TABLE


def wait_for_snapshot(
    load: Callable[[], Table], branch: str, snapshot_id: int, checks: RetryPolicy
) -> tuple[SnapshotPresence | None, Table | None]:
    """Load the table until the snapshot is in the branch or the checks end; (None, None) if it cannot be loaded."""
    presence: SnapshotPresence | None = None
    table: Table | None = None
    waits = checks.waits()
    while True:
        try:
            table = load()
            presence = snapshot_presence(table.metadata, branch, snapshot_id)
        except Exception:
            # Keep the last state that could be loaded; the table may be reachable at the next check.
            pass
        if presence is SnapshotPresence.IN_BRANCH or not next(waits, False):
            return presence, table


def describe(error: BaseException) -> str:
    """Return an error in one line, without credentials."""
    text = " ".join(redact(error).split())[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

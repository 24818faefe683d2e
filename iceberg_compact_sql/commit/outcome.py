"""What became of a commit: looked up in the table itself, with patience, before anything is believed or deleted."""

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

from iceberg_compact_sql.commit.conflicts import is_ancestor
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.table.retries import Patience

# A process-local check of pyiceberg that another branch moved meanwhile; nothing was sent.
_STALE_SEQUENCE_NUMBER = re.compile(r"Cannot add snapshot with sequence number \d+ older than last sequence number")


class Rejection(Enum):
    """What an error of the catalog says about the request that caused it."""

    RETRY = "certainly not applied, may be tried again"
    FINAL = "certainly not applied, trying again is useless"
    DOUBT = "may have been applied, or may be applied later"


class Whereabouts(Enum):
    """Where a snapshot id is found."""

    IN_BRANCH = "in the history of the branch"
    IN_TABLE = "in the table but not in the history of the branch"
    ABSENT = "nowhere"


def judge(error: BaseException) -> Rejection:
    """What an error tells about the commit request: in doubt unless it is a known answer of the catalog."""
    if isinstance(error, CommitFailedException):
        return Rejection.RETRY
    if isinstance(error, ValueError) and _STALE_SEQUENCE_NUMBER.search(str(error)):
        return Rejection.RETRY
    # UnsupportedError: a catalog of ours that cannot commit where the table lies says so before it does anything.
    if isinstance(error, (BadRequestError, ForbiddenError, NoSuchTableError, UnauthorizedError, UnsupportedError)):
        return Rejection.FINAL
    return Rejection.DOUBT


def whereabouts(metadata: TableMetadata, branch: str, snapshot_id: int) -> Whereabouts:
    """Where our snapshot is in metadata that was just loaded."""
    if metadata.snapshot_by_id(snapshot_id) is None:
        return Whereabouts.ABSENT
    return Whereabouts.IN_BRANCH if is_ancestor(metadata, branch, snapshot_id) else Whereabouts.IN_TABLE


def look_patiently(
    load: Callable[[], Table], branch: str, snapshot_id: int, patience: Patience
) -> tuple[Whereabouts | None, Table | None]:
    """Look for a snapshot until it is in the branch or patience ends; (None, None) if the table cannot be loaded."""
    place: Whereabouts | None = None
    seen: Table | None = None
    turns = patience.waits()
    while True:
        try:
            seen = load()
            place = whereabouts(seen.metadata, branch, snapshot_id)
        except Exception:
            # The last good look stands; the table may be reachable again at the next turn.
            pass
        if place is Whereabouts.IN_BRANCH or not next(turns, False):
            return place, seen


def describe(error: BaseException) -> str:
    """An error in one line, without credentials."""
    text = redact(" ".join(str(error).split()))[:400]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

"""The one commit loop: build a change on the newest state of the table, send it, retry, and find the outcome.

A new snapshot (`commit.commit_snapshot`) and an expiry (`reclaim.commit_expiry`) are changes. Each
says how it is built, how its errors are classified, and how the table shows that it landed.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol, TypeVar

from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from iceberg_compact_sql.pyiceberg_internals.requests import send_commit
from iceberg_compact_sql.table.retries import RetryPolicy

Result = TypeVar("Result", covariant=True)
Request = tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]


class Rejection(Enum):
    """What an error of the catalog says about the request that caused it."""

    RETRY = "certainly not applied, may be retried"
    FINAL = "certainly not applied, a retry is useless"
    DOUBT = "may have been applied, or may be applied later"


class Change(Protocol[Result]):
    """One change of a table. It is prepared again on the newest state before every attempt."""

    # Whether a request of unknown outcome may be sent again: only if at most one of the attempts can land.
    retries_in_doubt: bool

    def load(self) -> Table:
        """Return the table as the catalog has it now; raise when it must not be changed any more."""

    def has_landed(self, fresh: Table) -> bool:
        """Whether an earlier attempt is in the table, although its response said otherwise or never arrived."""

    def prepare(self, fresh: Table) -> Request | None:
        """Return the request for this state of the table, or None when nothing is left to commit."""

    def answered(self, base: Table, answer: CommitTableResponse) -> None:
        """Record the catalog's response that the request on `base` is in the table."""

    def classify_error(self, error: Exception) -> Rejection:
        """Return what an error says about the last request: whether it can have been applied."""

    def find_outcome(self, error: Exception | None) -> Result:
        """Read the table, and return or raise the outcome of the change. No attempt follows."""

    def nothing_to_commit(self, fresh: Table) -> Result:
        """Return the result when there is nothing left to commit."""


def commit_change(change: Change[Result], retries: RetryPolicy) -> Result:
    """Send the change until it is in the table, is refused for good, or the retries are used up.

    Deletes nothing. An exception from `load` or `prepare` reaches the caller, who knows what was sent before.
    """
    waits = retries.waits()
    while True:
        fresh = change.load()
        if change.has_landed(fresh):
            return change.find_outcome(None)
        request = change.prepare(fresh)
        if request is None:
            return change.nothing_to_commit(fresh)
        error = _send(change, fresh, request)
        if error is None:
            return change.find_outcome(None)
        rejection = change.classify_error(error)
        retry = rejection is Rejection.RETRY or (rejection is Rejection.DOUBT and change.retries_in_doubt)
        if not retry or not next(waits, False):
            return change.find_outcome(error)


def _send(change: Change[Result], fresh: Table, request: Request) -> Exception | None:
    try:
        answer = send_commit(fresh, *request)
    except Exception as error:
        return error
    change.answered(fresh, answer)
    return None

"""An optional lease on a table, so that two compactions do not do the same work. Correctness never depends on it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from iceberg_compact_sql.commit.outcome import describe
from iceberg_compact_sql.errors import CommitConflictError, IcebergCompactError
from iceberg_compact_sql.pyiceberg_internals.requests import set_lease_property

LEASE_PROPERTY = "iceberg-compact.claim"


@dataclass(frozen=True, slots=True)
class Lease:
    """Which run works on a table, and until when."""

    owner: str
    expires_at_ms: int

    def text(self) -> str:
        return f"{self.expires_at_ms} {self.owner}"


def read_lease(table: Table) -> Lease | None:
    """Return the lease in the table's properties, expired or not; None if there is none that can be read."""
    expires, _, owner = table.metadata.properties.get(LEASE_PROPERTY, "").partition(" ")
    return Lease(owner, int(expires)) if expires.isdigit() and owner else None


def take_lease(table: Table, owner: str, lease_ms: int) -> Lease:
    """Take the lease, or renew it as its owner; raise while another owner holds a lease that has not expired.

    Catalogs that check requirements in this process take it atomically. A REST server has no such requirement:
    there the lease is read back. Two owners that write at the same moment may both continue, which is safe.
    """
    _refresh(table, "taken")
    now_ms = int(time.time() * 1000)
    held = read_lease(table)
    if held is not None and held.owner != owner and held.expires_at_ms > now_ms:
        raise _refused(table, held, now_ms)
    wanted = Lease(owner, now_ms + lease_ms)
    try:
        set_lease_property(table, LEASE_PROPERTY, wanted.text())
    except CommitFailedException as error:
        _refresh(table, "taken")
        winner = read_lease(table)
        if winner is not None and winner.owner != owner:
            raise _refused(table, winner, now_ms) from None
        raise _failed(table, "taken", error) from None
    except IcebergCompactError:
        raise
    except Exception as error:
        raise _failed(table, "taken", error) from None
    _refresh(table, "taken")
    winner = read_lease(table)
    if winner is None or winner.owner != owner:
        raise _refused(table, winner or wanted, now_ms)
    return wanted


def release_lease(table: Table, owner: str) -> bool:
    """Give the lease back. Return False, and change nothing, if this owner does not hold it any more."""
    _refresh(table, "given back")
    held = read_lease(table)
    if held is None or held.owner != owner:
        return False
    try:
        set_lease_property(table, LEASE_PROPERTY, None)
    except IcebergCompactError:
        raise
    except Exception as error:
        raise _failed(table, "given back", error) from None
    _refresh(table, "given back")
    return True


def _refresh(table: Table, what: str) -> None:
    try:
        table.refresh()
    except IcebergCompactError:
        raise
    except Exception as error:
        raise _failed(table, what, error) from None


def _refused(table: Table, held: Lease, now_ms: int) -> CommitConflictError:
    seconds = max(0, held.expires_at_ms - now_ms) // 1000
    return CommitConflictError(
        f"table {'.'.join(table.name())} is claimed by '{held.owner}' for another {seconds} s",
        argument="claim",
        hint="Wait for it to finish, or run without claim => true: concurrent compactions are safe.",
    )


def _failed(table: Table, what: str, error: Exception) -> IcebergCompactError:
    """Return an error with the catalog's message in one line, without credentials.

    The catalog's own exception may hold its whole response.
    """
    return IcebergCompactError(
        f"the lease on table {'.'.join(table.name())} could not be {what}: {describe(error)}",
        argument="claim",
        hint="Run it again, or without claim => true: concurrent compactions are safe.",
    )

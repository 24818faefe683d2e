"""An optional lease on a table, so that two compactions do not do the same work; never needed for correctness."""

from __future__ import annotations

import time
from dataclasses import dataclass

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from iceberg_compact_sql.errors import CommitConflictError
from iceberg_compact_sql.pyiceberg_internals.requests import set_claim_property

CLAIM_PROPERTY = "iceberg-compact.claim"


@dataclass(frozen=True, slots=True)
class Claim:
    """Who works on a table, and until when."""

    owner: str
    expires_at_ms: int

    def text(self) -> str:
        return f"{self.expires_at_ms} {self.owner}"


def read_claim(table: Table) -> Claim | None:
    """The claim in the table's properties, alive or not; None if there is none that can be read."""
    expires, _, owner = table.metadata.properties.get(CLAIM_PROPERTY, "").partition(" ")
    return Claim(owner, int(expires)) if expires.isdigit() and owner else None


def claim(table: Table, owner: str, lease_ms: int) -> Claim:
    """Take the lease, or take it again as its owner; refused while another owner's lease is alive.

    Catalogs that check requirements in this process take it atomically. A REST server knows no such requirement:
    there the claim is read back, and two owners that write in the same moment may both go on, which is safe.
    """
    table.refresh()
    now_ms = int(time.time() * 1000)
    held = read_claim(table)
    if held is not None and held.owner != owner and held.expires_at_ms > now_ms:
        raise _refused(table, held, now_ms)
    wanted = Claim(owner, now_ms + lease_ms)
    try:
        set_claim_property(table, CLAIM_PROPERTY, wanted.text())
    except CommitFailedException as error:
        table.refresh()
        winner = read_claim(table)
        if winner is not None and winner.owner != owner:
            raise _refused(table, winner, now_ms) from error
        raise
    table.refresh()
    winner = read_claim(table)
    if winner is None or winner.owner != owner:
        raise _refused(table, winner or wanted, now_ms)
    return wanted


def release(table: Table, owner: str) -> bool:
    """Give the lease back; False if it is not this owner's any more, and then nothing is changed."""
    table.refresh()
    held = read_claim(table)
    if held is None or held.owner != owner:
        return False
    set_claim_property(table, CLAIM_PROPERTY, None)
    table.refresh()
    return True


def _refused(table: Table, held: Claim, now_ms: int) -> CommitConflictError:
    seconds = max(0, held.expires_at_ms - now_ms) // 1000
    return CommitConflictError(
        f"table {'.'.join(table.name())} is claimed by '{held.owner}' for another {seconds} s",
        argument="claim",
        hint="Wait for it to finish, or run without claim => true: compactions at once are safe.",
    )

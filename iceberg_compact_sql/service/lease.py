"""The lease of the process that owns a state database: one process runs jobs at any time."""

from __future__ import annotations

import contextlib
import os
import platform
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from iceberg_compact_sql.service.jobs import iso_time
from iceberg_compact_sql.service.store import LEASE, StateError, Store

LEASE_MS = 30_000
RENEW_SECONDS = 10.0


class Lease:
    """A row that names its owner and is valid for 30 s; `renew` prolongs it.

    A process of this machine that no longer lives loses its lease at once; any other one when its time ends.
    """

    def __init__(self, store: Store, *, owner: str | None = None, now_ms: Callable[[], int] | None = None) -> None:
        self.store = store
        self.owner = owner or own_name()
        self._now_ms = now_ms or (lambda: int(time.time() * 1000))

    def take(self) -> str | None:
        """Take the lease; returns None, or a sentence about who holds it."""
        now_ms = self._now_ms()
        with self.store.transaction() as connection:
            row = connection.execute(LEASE.select().with_for_update()).first()
            if row is None:
                with contextlib.suppress(sa.exc.IntegrityError), connection.begin_nested():
                    connection.execute(LEASE.insert().values(number=1, owner=self.owner, until_ms=now_ms + LEASE_MS))
                    return None
                row = connection.execute(LEASE.select().with_for_update()).one()
            if row.owner != self.owner and row.until_ms > now_ms and not is_dead(row.owner):
                return f"held by {_shown(row.owner)} until {iso_time(row.until_ms)}"
            connection.execute(LEASE.update().values(owner=self.owner, until_ms=now_ms + LEASE_MS))
        return None

    def require(self) -> None:
        """Take the lease or raise an error that names the owner."""
        held = self.take()
        if held is not None:
            raise StateError(
                f"another process uses this state: the lease is {held}",
                argument="state",
                hint="Stop that process, or give this one another state.folder or state.url.",
            )

    def renew(self) -> bool:
        """Prolong the lease; false when another process has taken it."""
        with self.store.transaction() as connection:
            mine = LEASE.update().where(LEASE.c.owner == self.owner)
            return bool(connection.execute(mine.values(until_ms=self._now_ms() + LEASE_MS)).rowcount)

    def release(self) -> None:
        """Give the lease up, so that the next process starts at once."""
        with self.store.transaction() as connection:
            connection.execute(LEASE.delete().where(LEASE.c.owner == self.owner))


def own_name() -> str:
    """The name of this process as an owner: host, boot, process id, its start, and a random part."""
    return "/".join((platform.node(), _boot_id(), str(os.getpid()), _start_of(os.getpid()) or "", uuid.uuid4().hex[:8]))


def is_dead(owner: str) -> bool:
    """Whether the owner certainly does not live any more: a process of this boot of this machine that is gone.

    Process ids are used again, so the start time of the process is compared too.
    """
    host, boot, pid, start, _ = (owner.split("/") + [""] * 5)[:5]
    if not boot or (host, boot) != (platform.node(), _boot_id()) or not pid.isdigit() or not start:
        return False
    return _start_of(int(pid)) != start


def _start_of(pid: int) -> str | None:
    """When a process started, in ticks since boot; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]


def _boot_id() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        # Processes of two containers on one machine share the boot id, and have process ids of their own.
        return f"{boot}.{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _shown(owner: str) -> str:
    host, _, pid = owner.split("/")[:3]
    return f"process {pid} on {host}"

"""The work of `expire_snapshots`: removes old snapshots, and files that no other snapshot needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.reporting import reported
from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, ExpiryPlan, ExpiryResult, plan_expiry, run_expiry
from iceberg_compact_sql.reclaim.retention import ExpiryRequest


@dataclass(frozen=True, kw_only=True)
class ExpireRequest:
    """One expiry of one table. None means the table's property, else Iceberg's default."""

    table: str
    older_than_ms: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    ignore_unknown_ids: bool = False
    clean_expired_metadata: bool = False
    keep_files: bool = False
    max_concurrent_deletes: int | None = None
    quarantine_ms: int | None = None

    def retention(self, now_ms: int) -> ExpiryRequest:
        return ExpiryRequest(
            now_ms=now_ms,
            older_than_ms=self.older_than_ms,
            retain_last=self.retain_last,
            snapshot_ids=self.snapshot_ids,
            ignore_unknown_ids=self.ignore_unknown_ids,
            clean_expired_metadata=self.clean_expired_metadata,
        )

    def deletion(self, ignored_tables: frozenset[str]) -> ExpiryOptions:
        return ExpiryOptions(
            keep_files=self.keep_files,
            workers=self.max_concurrent_deletes,
            quarantine_ms=self.quarantine_ms,
            ignored_tables=ignored_tables,
        )


def plan_expire(request: ExpireRequest, context: Context) -> ExpiryPlan:
    """Return what `expire` would remove now; changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = context.open_table(request.table)
        return plan_expiry(opened.table, request.retention(context.now_ms), request.deletion(context.ignored_tables))


def expire(request: ExpireRequest, context: Context) -> ExpiryResult:
    """Expire by Iceberg's rules: metadata first, validated on the newest state, then exactly the unneeded files.

    Every remaining snapshot, branch and tag reads as before. Running it again finishes what was interrupted or
    cancelled: a run that is cancelled after its commit leaves its files to the next one.
    """
    expired = 0
    result = ExpiryResult()

    def count(event: str, facts: Mapping[str, object]) -> None:
        nonlocal expired
        if event == "expire.committed":
            expired = int(str(facts["expired"]))

    def done() -> tuple[ExpiryResult, str]:
        if not expired:
            return ExpiryResult(), "Nothing was committed; the table is as it was."
        return (
            ExpiryResult(expired_snapshots=expired),
            f"{expired} snapshot(s) are expired; run it again to delete the files that they leave.",
        )

    def facts() -> dict[str, Any]:
        return {
            "expired_snapshots": max(expired, result.expired_snapshots),
            "deleted_files": sum(result.deleted.values()),
            "freed_bytes": result.freed_bytes,
        }

    with (
        reported(context, "expire_snapshots", request.table, facts),
        context.run(done),
        events.listening(count),
    ):
        opened = context.open_table(request.table)
        opened.require_commits()
        result = run_expiry(opened.table, request.retention(context.now_ms), request.deletion(context.ignored_tables))
        if result.expired_snapshots or result.deleted:
            context.refresh(opened)
        return result

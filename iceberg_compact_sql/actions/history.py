"""The work of `history`: what was committed, from the snapshots' own summaries, and what the history database adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.report.history_store import HistoryEntry, read
from iceberg_compact_sql.table.summary_keys import RUN_ID


@dataclass(frozen=True, kw_only=True)
class HistoryRequest:
    """The last `limit` commits of one table, newest first; with `all_commits` also those of other writers."""

    table: str
    run_id: str | None = None
    limit: int = 100
    all_commits: bool = False


@dataclass(frozen=True, kw_only=True)
class HistoryRow:
    """A commit, an action that made none, or both. `entry` is what the history database knows about the run."""

    at_ms: int
    run_id: str | None = None
    snapshot_id: int | None = None
    operation: str | None = None
    summary: Mapping[str, str] | None = None
    entry: HistoryEntry | None = None

    def count(self, key: str) -> int | None:
        """Return a counter of the snapshot's summary; 0 where it has none, None where there is no snapshot."""
        if self.summary is None:
            return None
        text = self.summary.get(key, "0")
        return int(text) if text.lstrip("-").isdigit() else None


@dataclass(frozen=True)
class HistoryResult:
    rows: tuple[HistoryRow, ...]


def table_history(request: HistoryRequest, context: Context) -> HistoryResult:
    """Return the commits of all branches that are still in the metadata, newest first; changes nothing.

    With a history database also actions without a snapshot, and commits whose snapshots are expired.
    """
    with context.run(lambda: (None, "Nothing was changed.")):
        snapshots = context.open_table(request.table).table.metadata.snapshots
        url = context.view.setting("history")
        entries = [] if not url else _entries(url, request, context)
        rows = [*_commits(request, snapshots, entries), *_without_snapshot(snapshots, entries)]
        rows.sort(key=lambda row: row.at_ms, reverse=True)
        return HistoryResult(tuple(rows[: request.limit]))


def _entries(url: str, request: HistoryRequest, context: Context) -> list[HistoryEntry]:
    # A run has one entry for each action and each action at least one row: `limit` entries are always enough.
    return read(url, table=context.full_name(request.table), run_id=request.run_id, limit=request.limit)


def _commits(request: HistoryRequest, snapshots: list[Snapshot], entries: list[HistoryEntry]) -> list[HistoryRow]:
    by_snapshot = {snapshot_id: entry for entry in entries for snapshot_id in entry.snapshot_ids}
    rows = []
    for snapshot in snapshots:
        summary = dict(snapshot.summary.additional_properties) if snapshot.summary else {}
        run_id = summary.get(RUN_ID)
        if (run_id is None and not request.all_commits) or request.run_id not in (None, run_id):
            continue
        rows.append(
            HistoryRow(
                at_ms=snapshot.timestamp_ms,
                run_id=run_id,
                snapshot_id=snapshot.snapshot_id,
                operation=snapshot.summary.operation.value if snapshot.summary else None,
                summary=summary,
                entry=by_snapshot.get(snapshot.snapshot_id),
            )
        )
    return rows


def _without_snapshot(snapshots: list[Snapshot], entries: list[HistoryEntry]) -> list[HistoryRow]:
    present = {snapshot.snapshot_id for snapshot in snapshots}
    return [
        HistoryRow(
            at_ms=entry.finished_ms,
            run_id=entry.run_id,
            snapshot_id=entry.snapshot_ids[-1] if entry.snapshot_ids else None,
            entry=entry,
        )
        for entry in entries
        if present.isdisjoint(entry.snapshot_ids)
    ]

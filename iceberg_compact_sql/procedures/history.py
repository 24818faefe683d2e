"""`CALL history(...)`: what was committed to a table, by whichever door, newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import TABLE, Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.units import utc_time

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.history import HistoryRow


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return one row for each commit, and for each recorded action without one; reads only metadata."""
    from iceberg_compact_sql.actions.history import HistoryRequest, table_history

    request = HistoryRequest(
        table=arguments["table"],
        run_id=arguments["run_id"],
        limit=arguments["limit"],
        all_commits=arguments["all"],
    )
    return [history_row(row) for row in table_history(request, context).rows]


def history_row(row: HistoryRow) -> Row:
    """Return a row in the order of the columns: the snapshot's own counters, then what the database knows."""
    entry = row.entry
    # Counters of an action whose snapshot is gone, or that made none.
    recorded = entry if row.summary is None else None
    added_records = row.count("added-records")
    return (
        utc_time(row.at_ms),
        row.run_id,
        row.snapshot_id,
        row.operation,
        recorded.removed_data_files if recorded else row.count("deleted-data-files"),
        recorded.added_data_files if recorded else row.count("added-data-files"),
        recorded.removed_delete_files if recorded else row.count("removed-delete-files"),
        recorded.removed_bytes if recorded else row.count("removed-files-size"),
        recorded.added_bytes if recorded else row.count("added-files-size"),
        recorded.rows if recorded else added_records,
        row.count("total-data-files"),
        *(
            (None,) * 11
            if entry is None
            else (
                entry.procedure,
                entry.status,
                entry.elapsed_ms,
                entry.estimated_seconds,
                entry.cost,
                entry.estimated_cost,
                entry.expired_snapshots,
                entry.deleted_files,
                entry.freed_bytes,
                entry.user,
                entry.error,
            )
        ),
    )


PROCEDURE = Procedure(
    name="history",
    summary="Show what this package committed to a table, newest first, from the snapshots themselves.",
    parameters=(
        TABLE,
        Parameter("run_id", Kind.STRING, "only the commits of this run"),
        Parameter("limit", Kind.INT, "return at most this many rows", default=100, minimum=1),
        Parameter("all", Kind.BOOLEAN, "also commits of other writers", default=False),
    ),
    columns=columns(
        "committed_at timestamp, run_id string, snapshot_id bigint, operation string, removed_data_files bigint, "
        "added_data_files bigint, removed_delete_files bigint, removed_bytes bigint, added_bytes bigint, "
        "added_records bigint, total_data_files bigint, procedure string, status string, elapsed_ms bigint, "
        "estimated_seconds double, cost double, estimated_cost double, expired_snapshots bigint, "
        "deleted_files bigint, freed_bytes bigint, user string, error string"
    ),
    run=run,
    example="CALL history('db.events')",
)

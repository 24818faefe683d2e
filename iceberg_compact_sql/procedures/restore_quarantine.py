"""`CALL restore_quarantine(...)`: restore files that expire_snapshots or remove_orphans moved to quarantine."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import DRY_RUN, TABLE, Arguments, Procedure, Row, columns


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Move quarantined files back to their original paths, or list them in a dry run."""
    from iceberg_compact_sql.actions.restore import RestoreRequest, plan_restore, restore

    request = RestoreRequest(table=arguments["table"])
    result = (plan_restore if arguments["dry_run"] else restore)(request, context)
    return [(file.path, file.size_bytes, file.restored) for file in result.files]


PROCEDURE = Procedure(
    name="restore_quarantine",
    summary="Restore the files that expire_snapshots or remove_orphans moved to quarantine.",
    parameters=(TABLE, DRY_RUN),
    columns=columns("file_location string, bytes bigint, restored boolean"),
    dry_run_columns=columns("file_location string, bytes bigint, restored boolean"),
    run=run,
    changes_tables=True,
    example="CALL restore_quarantine('db.events')",
)

"""`CALL restore_quarantine(...)`: what expire_snapshots and remove_orphans moved aside, brought back."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import DRY_RUN, TABLE, Arguments, Procedure, Row, columns


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Move quarantined files back to where they were; one whose place is taken stays aside.

    The table's metadata is not changed: expired snapshots are still in the metadata files of the log.
    """
    from iceberg_compact_sql.reclaim import quarantine
    from iceberg_compact_sql.storage.stores import Stores

    table = context.open_table(arguments["table"]).table
    stores = Stores(table.io)
    quarantined, _ = quarantine.runs(stores, table.metadata)
    if arguments["dry_run"]:
        return [(file.original, file.size_bytes, False) for file in quarantine.still_aside(stores, quarantined)]
    return [(file.original, file.size_bytes, back) for file, back in quarantine.restore(stores, quarantined)]


PROCEDURE = Procedure(
    name="restore_quarantine",
    summary="Bring back the files that expire_snapshots or remove_orphans moved aside with quarantine.",
    parameters=(TABLE, DRY_RUN),
    columns=columns("file_location string, bytes bigint, restored boolean"),
    dry_run_columns=columns("file_location string, bytes bigint, restored boolean"),
    run=run,
    example="CALL restore_quarantine('db.events')",
)

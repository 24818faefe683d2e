"""The work of `restore_quarantine`: moves quarantined files of expiry and orphan removal back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.reporting import reported
from iceberg_compact_sql.reclaim import journals, quarantine
from iceberg_compact_sql.reclaim.find_records import Records, find_records
from iceberg_compact_sql.reclaim.metadata_versions import refuse_copied_folder
from iceberg_compact_sql.reclaim.quarantine import MovedFile
from iceberg_compact_sql.reclaim.record_files import all_roots
from iceberg_compact_sql.storage.stores import Stores


@dataclass(frozen=True, kw_only=True)
class RestoreRequest:
    """One restore of one table's quarantined files."""

    table: str


@dataclass(frozen=True)
class RestoredFile:
    """A quarantined file by its original path, and whether it was restored."""

    path: str
    size_bytes: int
    restored: bool


@dataclass(frozen=True)
class RestoreResult:
    files: tuple[RestoredFile, ...]


def plan_restore(request: RestoreRequest, context: Context) -> RestoreResult:
    """Return the files that `restore` would move back; changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        table = _open(request, context)
        stores = Stores(table.io)
        records = find_records(stores, table.metadata, all_roots(stores, table.metadata))
        return _result(((file, False) for file in quarantine.still_aside(stores, records.quarantined)), records)


def restore(request: RestoreRequest, context: Context) -> RestoreResult:
    """Move quarantined files back to where they were; a file whose original path is taken stays in quarantine.

    Finds them in the metadata folders of earlier locations too. Closes the journals of the runs that moved them, so
    that no later expiry deletes what came back. The table's metadata is not changed: expired snapshots are still in the
    metadata files of the log. A file whose table or original path is unknown is given by its present path, and stays.
    """
    with (
        reported(context, "restore_quarantine", request.table, dict),
        context.run(lambda: (None, "Nothing was changed.")),
    ):
        table = _open(request, context)
        stores = Stores(table.io)
        records = find_records(stores, table.metadata, all_roots(stores, table.metadata))
        aside = [file.original for file in quarantine.still_aside(stores, records.quarantined)]
        run_ids = {run.run_id for run in records.quarantined}
        # Closed first: a file that comes back is then claimed by no journal, even if this run is interrupted.
        journals.close_restored(stores, table.metadata, records.pending, run_ids, aside)
        events.reach("restore.journals_closed", files=len(aside))
        return _result(quarantine.restore(stores, records.quarantined, context.now_ms), records)


def _open(request: RestoreRequest, context: Context) -> Table:
    table = context.open_table(request.table).table
    # The records that the metadata of a copy leads to are those of the original.
    refuse_copied_folder(table)
    return table


def _result(moved: Iterable[tuple[MovedFile, bool]], records: Records) -> RestoreResult:
    files = [RestoredFile(file.original, file.size_bytes, back) for file, back in moved]
    files += [RestoredFile(file.path, file.size_bytes, False) for file in records.unclaimed]
    return RestoreResult(tuple(files))

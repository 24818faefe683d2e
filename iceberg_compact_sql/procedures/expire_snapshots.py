"""`CALL expire_snapshots(...)`: old snapshots go, and with them the files that nothing else needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import DRY_RUN, TABLE, Arguments, Kind, Parameter, Procedure, Row, columns

if TYPE_CHECKING:
    from iceberg_compact_sql.reclaim.expiry import ExpiryPlan, ExpiryResult


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Expire by Iceberg's rules: metadata first, validated on the freshest state, then exactly the unneeded files.

    Every remaining snapshot, branch and tag reads as before. Running it again finishes what was interrupted.
    """
    from iceberg_compact_sql.reclaim.expiry import ExpiryOptions, plan_expiry, run_expiry
    from iceberg_compact_sql.reclaim.retention import ExpiryRequest

    request = ExpiryRequest(
        now_ms=context.now_ms,
        older_than_ms=arguments["older_than"],
        retain_last=arguments["retain_last"],
        snapshot_ids=tuple(arguments["snapshot_ids"] or ()),
        clean_expired_metadata=arguments["clean_expired_metadata"],
    )
    options = ExpiryOptions(
        keep_files=arguments["keep_files"],
        workers=arguments["max_concurrent_deletes"],
        quarantine_ms=arguments["quarantine"],
    )
    opened = context.open_table(arguments["table"])
    if arguments["dry_run"]:
        return dry_run_rows(plan_expiry(opened.table, request, options))
    opened.require_commits()
    result = run_expiry(opened.table, request, options)
    if result.expired_snapshots or result.deleted:
        context.refresh(opened)
    return [result_row(result)]


def dry_run_rows(plan: ExpiryPlan) -> list[Row]:
    """Snapshots first, then files as they would be deleted."""
    snapshots: list[Row] = [("snapshot", str(snapshot_id), None) for snapshot_id in plan.retention.expired]
    return snapshots + [(file.kind.value, file.path, file.size_bytes) for file in plan.files]


def result_row(result: ExpiryResult) -> Row:
    """The one row of a run."""
    from iceberg_compact_sql.reclaim.reachability import FileKind

    kinds = (
        FileKind.DATA,
        FileKind.POSITION_DELETE,
        FileKind.EQUALITY_DELETE,
        FileKind.MANIFEST,
        FileKind.MANIFEST_LIST,
        FileKind.STATISTICS,
    )
    counts = tuple(result.deleted.get(kind, 0) for kind in kinds)
    return (*counts, result.expired_snapshots, result.failed_deletes, result.freed_bytes)


QUARANTINE = Parameter(
    "quarantine",
    Kind.AGE,
    "move files aside for this long instead of deleting them; restore_quarantine brings them back",
    above=0,
    example="'7d'",
)
MAX_CONCURRENT_DELETES = Parameter(
    "max_concurrent_deletes", Kind.INT, "threads that read and delete files", default_text="16", minimum=1
)
STREAM_RESULTS = Parameter(
    "stream_results", Kind.BOOLEAN, "accepted for Iceberg's sake; deleting always goes in batches", default=False
)

PROCEDURE = Procedure(
    name="expire_snapshots",
    summary="Remove old snapshots, and the files that only they needed.",
    parameters=(
        TABLE,
        Parameter(
            "older_than",
            Kind.TIME,
            "snapshots older than this go",
            default_text="`history.expire.max-snapshot-age-ms`, else 5 days",
            example="TIMESTAMP '2026-01-01 00:00:00'",
        ),
        Parameter(
            "retain_last",
            Kind.INT,
            "keep at least so many snapshots of each branch, however old",
            default_text="`history.expire.min-snapshots-to-keep`, else 1",
            minimum=1,
        ),
        Parameter("snapshot_ids", Kind.LONGS, "these go too, whatever their age", example="array(123, 456)"),
        Parameter("keep_files", Kind.BOOLEAN, "change metadata only, delete no file", default=False),
        Parameter(
            "clean_expired_metadata", Kind.BOOLEAN, "drop schemas and partition specs that nothing uses", default=False
        ),
        MAX_CONCURRENT_DELETES,
        STREAM_RESULTS,
        QUARANTINE,
        DRY_RUN,
    ),
    columns=columns(
        "deleted_data_files_count bigint, deleted_position_delete_files_count bigint, "
        "deleted_equality_delete_files_count bigint, deleted_manifest_files_count bigint, "
        "deleted_manifest_lists_count bigint, deleted_statistics_files_count bigint, "
        "expired_snapshots_count bigint, failed_deletes_count bigint, freed_bytes bigint"
    ),
    dry_run_columns=columns("kind string, path string, bytes bigint"),
    run=run,
    example="CALL expire_snapshots('db.events', older_than => '7d', retain_last => 10)",
    table_function=True,
)

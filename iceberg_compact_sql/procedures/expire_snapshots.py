"""`CALL expire_snapshots(...)`: remove old snapshots and the files that only they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    DRY_RUN,
    TABLE,
    Arguments,
    IcebergForm,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.expire import ExpireRequest
    from iceberg_compact_sql.reclaim.expiry import ExpiryPlan, ExpiryResult


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Expire snapshots and delete the files that only they needed, or list both in a dry run."""
    from iceberg_compact_sql.actions.expire import expire, plan_expire

    request = request_of(arguments)
    if arguments["dry_run"]:
        return dry_run_rows(plan_expire(request, context))
    return [result_row(expire(request, context))]


def request_of(arguments: Arguments) -> ExpireRequest:
    """Return the request of the action from the bound arguments."""
    from iceberg_compact_sql.actions.expire import ExpireRequest

    return ExpireRequest(
        table=arguments["table"],
        older_than_ms=arguments["older_than"],
        retain_last=arguments["retain_last"],
        snapshot_ids=tuple(arguments["snapshot_ids"] or ()),
        # Iceberg ignores ids that the table does not have, so that a repeated call succeeds.
        ignore_unknown_ids=arguments.iceberg_form,
        clean_expired_metadata=arguments["clean_expired_metadata"],
        keep_files=arguments["keep_files"],
        max_concurrent_deletes=arguments["max_concurrent_deletes"],
        quarantine_ms=arguments["quarantine"],
    )


def dry_run_rows(plan: ExpiryPlan) -> list[Row]:
    """Return one row for each expired snapshot, then one for each file that would be deleted."""
    snapshots: list[Row] = [("snapshot", str(snapshot_id), None) for snapshot_id in plan.retention.expired]
    return snapshots + [(file.kind.value, file.path, file.size_bytes) for file in plan.files]


def result_row(result: ExpiryResult) -> Row:
    """Return the result of a run in the order of the columns."""
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
    "move files to quarantine for this duration instead of deleting them; restore_quarantine restores them",
    above=0,
    example="'7d'",
)
MAX_CONCURRENT_DELETES = Parameter(
    "max_concurrent_deletes", Kind.INT, "threads that read and delete files", default_text="16", minimum=1
)
STREAM_RESULTS = Parameter(
    "stream_results",
    Kind.BOOLEAN,
    "accepted for compatibility with Iceberg and ignored: deletes always run in batches",
    default=False,
)

PROCEDURE = Procedure(
    name="expire_snapshots",
    summary="Remove old snapshots and the files that only they need.",
    parameters=(
        TABLE,
        Parameter(
            "older_than",
            Kind.TIME,
            "remove snapshots older than this",
            default_text="`history.expire.max-snapshot-age-ms`, else 5 days",
            example="TIMESTAMP '2026-01-01 00:00:00'",
        ),
        Parameter(
            "retain_last",
            Kind.INT,
            "keep at least this many snapshots of each branch, regardless of age",
            default_text="`history.expire.min-snapshots-to-keep`, else 1",
            minimum=1,
        ),
        Parameter(
            "snapshot_ids", Kind.LONGS, "also remove these snapshots, regardless of age", example="array(123, 456)"
        ),
        Parameter("keep_files", Kind.BOOLEAN, "change metadata only and delete no file", default=False),
        Parameter(
            "clean_expired_metadata",
            Kind.BOOLEAN,
            "drop schemas and partition specs that no snapshot uses",
            default=False,
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
    changes_tables=True,
    example="CALL expire_snapshots('db.events', older_than => '7d', retain_last => 10)",
    table_function=True,
    iceberg=IcebergForm(
        "expire_snapshots",
        (
            "table",
            "older_than",
            "retain_last",
            "max_concurrent_deletes",
            "stream_results",
            "snapshot_ids",
            "clean_expired_metadata",
        ),
        6,
    ),
)

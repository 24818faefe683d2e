"""`CALL rewrite_position_deletes(...)`: merge small position delete files and drop entries without a live file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    BRANCH,
    DRY_RUN,
    MAX_FILE_SIZE,
    MIN_FILE_SIZE,
    MIN_INPUT_FILES,
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
    from iceberg_compact_sql.actions.merge_position_deletes import PositionDeletesRequest, PositionDeletesResult


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Commit a REPLACE snapshot in which fewer files delete the same rows; do nothing if there is nothing to merge."""
    from iceberg_compact_sql.actions import merge_position_deletes as actions

    request = request_of(arguments)
    action = actions.plan_position_deletes if arguments["dry_run"] else actions.rewrite_position_deletes
    return [result_row(action(request, context))]


def request_of(arguments: Arguments) -> PositionDeletesRequest:
    """Return the request of the action from the bound arguments."""
    from iceberg_compact_sql.actions.merge_position_deletes import PositionDeletesRequest

    return PositionDeletesRequest(
        table=arguments["table"],
        branch=arguments["branch"],
        where=arguments["where"],
        target_bytes=arguments["target"],
        min_file_bytes=arguments["min_file_size"],
        max_file_bytes=arguments["max_file_size"],
        min_input_files=arguments["min_input_files"],
        max_group_bytes=arguments["max_group_size"],
        max_group_files=arguments["max_group_files"],
        rewrite_all=arguments["rewrite_all"],
        where_by_partition=arguments.iceberg_form,
    )


def result_row(result: PositionDeletesResult) -> Row:
    """Return the result of a run or a dry run in the order of the columns."""
    return (
        result.rewritten_delete_files,
        result.added_delete_files,
        result.rewritten_bytes,
        result.added_bytes,
        result.snapshot_id,
    )


_ACCEPTED = "accepted for compatibility with Iceberg and ignored"
_RESULT = columns(
    "rewritten_delete_files_count int, added_delete_files_count int, rewritten_bytes_count bigint, "
    "added_bytes_count bigint, snapshot_id bigint"
)

PROCEDURE = Procedure(
    name="rewrite_position_deletes",
    summary="Merge small position delete files of each partition and drop entries that point at no live file.",
    parameters=(
        TABLE,
        Parameter(
            "where",
            Kind.STRING,
            "a filter that selects partitions with files that may match; in Iceberg's form only partition values count",
        ),
        BRANCH,
        Parameter(
            "options", Kind.MAP, "options under Iceberg's names", default={}, example="map('rewrite-all', 'true')"
        ),
        DRY_RUN,
        Parameter(
            "target",
            Kind.SIZE,
            "target size of delete files",
            default_text="`write.delete.target-file-size-bytes`, else 64 MB",
            minimum=1,
            option="target-file-size-bytes",
        ),
        MIN_FILE_SIZE,
        MAX_FILE_SIZE,
        MIN_INPUT_FILES,
        Parameter(
            "max_group_size",
            Kind.SIZE,
            "maximum bytes that are merged at once",
            default_text="8 times target",
            minimum=1,
            option="max-file-group-size-bytes",
        ),
        Parameter(
            "rewrite_all", Kind.BOOLEAN, "rewrite every position delete file", default=False, option="rewrite-all"
        ),
        Parameter(
            "max_group_files",
            Kind.LONG,
            "maximum files that are merged at once",
            minimum=1,
            option="max-file-group-input-files",
        ),
        Parameter(
            "job_order",
            Kind.CHOICE,
            f"{_ACCEPTED}: all groups are in one commit",
            default="none",
            choices=("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc"),
            option="rewrite-job-order",
        ),
        Parameter(
            "partial_progress",
            Kind.BOOLEAN,
            f"{_ACCEPTED}: all groups are in one commit",
            default=False,
            option="partial-progress.enabled",
        ),
        Parameter(
            "max_commits",
            Kind.INT,
            f"{_ACCEPTED}: there is one commit",
            default=10,
            minimum=1,
            option="partial-progress.max-commits",
        ),
        Parameter(
            "max_concurrent_groups",
            Kind.INT,
            f"{_ACCEPTED}: groups are merged one after the other",
            minimum=1,
            option="max-concurrent-file-group-rewrites",
        ),
    ),
    columns=_RESULT,
    dry_run_columns=_RESULT,
    run=run,
    changes_tables=True,
    example="CALL rewrite_position_deletes('db.events')",
    iceberg=IcebergForm("rewrite_position_delete_files", ("table", "options", "where"), 4),
)

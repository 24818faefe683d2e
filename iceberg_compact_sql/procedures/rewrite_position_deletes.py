"""`CALL rewrite_position_deletes(...)`: many small position delete files into few, without rows that delete nothing."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import (
    BRANCH,
    DRY_RUN,
    MAX_FILE_SIZE,
    MIN_FILE_SIZE,
    MIN_INPUT_FILES,
    TABLE,
    Alias,
    Arguments,
    Kind,
    Parameter,
    Procedure,
    Row,
    columns,
)


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Commit a REPLACE snapshot in which the same rows are deleted by fewer files; a no-op where nothing is to do."""
    from iceberg_compact_sql.actions.merge_position_deletes import DeleteMerge

    merge = DeleteMerge.prepare(context, arguments)
    groups = merge.plan()
    if arguments["dry_run"] or not groups:
        return [merge.planned_row(groups)]
    return [merge.execute(groups)]


_RESULT = columns(
    "rewritten_delete_files_count int, added_delete_files_count int, rewritten_bytes_count bigint, "
    "added_bytes_count bigint, snapshot_id bigint"
)

PROCEDURE = Procedure(
    name="rewrite_position_deletes",
    summary="Merge small position delete files of each partition and drop rows that point at no live file.",
    parameters=(
        TABLE,
        Parameter("where", Kind.STRING, "which partitions: those with files that may match the expression"),
        BRANCH,
        Parameter("options", Kind.MAP, "Iceberg's option names", default={}, example="map('rewrite-all', 'true')"),
        DRY_RUN,
        Parameter(
            "target",
            Kind.SIZE,
            "size of delete files",
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
            "most bytes that are merged at once",
            default_text="8 times target",
            minimum=1,
            option="max-file-group-size-bytes",
        ),
        Parameter(
            "rewrite_all", Kind.BOOLEAN, "rewrite every position delete file", default=False, option="rewrite-all"
        ),
    ),
    columns=_RESULT,
    dry_run_columns=_RESULT,
    run=run,
    example="CALL rewrite_position_deletes('db.events')",
    aliases=(Alias("rewrite_position_delete_files", ("table", "options", "where")),),
)

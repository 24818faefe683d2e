"""`CALL compact_table(...)`: many files into few, deletes applied, no row changed."""

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
    """Plan, and unless it is a dry run rewrite, prove and commit.

    Commits REPLACE snapshots only: the table's rows are the same before and after. Running it again right after is a
    no-op.
    """
    from iceberg_compact_sql.actions.compact import Compaction
    from iceberg_compact_sql.plan.rows import dry_run_rows

    compaction = Compaction.prepare(context, arguments)
    plan = compaction.plan()
    if arguments["dry_run"]:
        return dry_run_rows(plan)
    return [compaction.execute(plan).row()]


PROCEDURE = Procedure(
    name="compact_table",
    summary="Rewrite small and oversized files to the target size and apply their deletes; rows never change.",
    parameters=(
        TABLE,
        Parameter(
            "target",
            Kind.SIZE,
            "size of output files",
            default_text="`write.target-file-size-bytes`, else 512 MB",
            minimum=1,
            option="target-file-size-bytes",
            example="'512MB'",
        ),
        Parameter(
            "where",
            Kind.STRING,
            "which files: a boolean expression over the table's columns; chooses files, never rows",
            example="\"day >= DATE '2026-01-01'\"",
        ),
        BRANCH,
        Parameter(
            "strategy",
            Kind.CHOICE,
            "how rows are arranged; only binpack for now",
            default="binpack",
            choices=("binpack", "sort", "zorder", "hilbert"),
        ),
        MIN_FILE_SIZE,
        MAX_FILE_SIZE,
        MIN_INPUT_FILES,
        Parameter(
            "delete_file_threshold",
            Kind.INT,
            "a file with at least so many delete files is rewritten",
            minimum=0,
            option="delete-file-threshold",
        ),
        Parameter(
            "delete_ratio_threshold",
            Kind.DOUBLE,
            "a file with at least this share of deleted rows is rewritten",
            default=0.3,
            above=0,
            maximum=1,
            option="delete-ratio-threshold",
        ),
        Parameter(
            "max_group_size",
            Kind.SIZE,
            "most bytes that are rewritten and committed together",
            default=100 * 1024**3,
            default_text="100 GB",
            minimum=1,
            option="max-file-group-size-bytes",
        ),
        Parameter(
            "max_group_files", Kind.LONG, "most files in one group", minimum=1, option="max-file-group-input-files"
        ),
        Parameter(
            "max_files", Kind.LONG, "most files rewritten by this call", minimum=1, option="max-files-to-rewrite"
        ),
        Parameter(
            "rewrite_all", Kind.BOOLEAN, "rewrite every file, whatever its size", default=False, option="rewrite-all"
        ),
        Parameter(
            "job_order",
            Kind.CHOICE,
            "which groups go first",
            default="none",
            choices=("none", "bytes-asc", "bytes-desc", "files-asc", "files-desc", "score-desc"),
            option="rewrite-job-order",
        ),
        Parameter(
            "partial_progress",
            Kind.BOOLEAN,
            "commit groups as they finish",
            default=False,
            option="partial-progress.enabled",
        ),
        Parameter(
            "max_commits",
            Kind.INT,
            "most commits with partial_progress",
            default=10,
            minimum=1,
            option="partial-progress.max-commits",
        ),
        Parameter(
            "max_failed_commits",
            Kind.INT,
            "failed commits that partial_progress puts up with",
            default_text="= max_commits",
            minimum=0,
            option="partial-progress.max-failed-commits",
        ),
        Parameter(
            "max_concurrent_groups",
            Kind.INT,
            "groups rewritten at the same time",
            default_text="what the cluster runs at once",
            minimum=1,
            option="max-concurrent-file-group-rewrites",
        ),
        Parameter(
            "use_starting_sequence_number",
            Kind.BOOLEAN,
            "outputs keep the planned snapshot's sequence number, so that equality deletes that arrive meanwhile apply",
            default=True,
            option="use-starting-sequence-number",
        ),
        Parameter(
            "remove_dangling_deletes",
            Kind.BOOLEAN,
            "deletes that apply to nothing any more go in the same commit",
            default=True,
            option="remove-dangling-deletes",
        ),
        Parameter("idle", Kind.AGE, "leave partitions alone that were written to within this age", example="'1h'"),
        Parameter(
            "min_score", Kind.DOUBLE, "only partitions whose score reaches it", minimum=0, maximum=1, example="0.5"
        ),
        Parameter("max_bytes", Kind.SIZE, "take the best groups first and stop at so many input bytes", minimum=1),
        Parameter("max_cost", Kind.DOUBLE, "take the best groups first and stop at so many dollars", above=0),
        Parameter(
            "time_budget", Kind.AGE, "start no group that is not expected to finish in time", minimum=1, example="'30m'"
        ),
        Parameter(
            "copy", Kind.CHOICE, "copy whole row groups where possible", default="auto", choices=("auto", "never")
        ),
        Parameter(
            "verify",
            Kind.CHOICE,
            "proof before commit: row counts always, contents with checksum",
            default="checksum",
            choices=("checksum", "rows"),
        ),
        Parameter(
            "options",
            Kind.MAP,
            "Iceberg's option names, and `write.*` and `compression` for this run",
            default={},
            example="map('min-input-files', '2')",
        ),
        DRY_RUN,
        Parameter(
            "output_spec_id",
            Kind.INT,
            "partition spec of the outputs",
            default_text="the table's current spec",
            minimum=0,
            option="output-spec-id",
        ),
        Parameter(
            "copy_min_row_group_size",
            Kind.SIZE,
            "row groups of at least this size are copied, smaller ones are gathered",
            default=8 * 1024**2,
            default_text="8 MB",
            minimum=1,
            option="copy-min-row-group-bytes",
        ),
        Parameter(
            "claim",
            Kind.BOOLEAN,
            "hold a lease on the table, so that a second compaction is refused at once",
            default=False,
        ),
        Parameter("sort_order", Kind.STRING, "columns for strategy sort; refused until clustering is there"),
    ),
    columns=columns(
        "rewritten_data_files_count int, added_data_files_count int, rewritten_bytes_count bigint, "
        "failed_data_files_count int, removed_delete_files_count int, added_bytes_count bigint, rows_count bigint, "
        "copied_row_groups_count bigint, groups_count int, commits_count int, snapshot_id bigint, elapsed_ms bigint"
    ),
    dry_run_columns=columns(
        "group_id int, partition string, spec_id int, action string, reason string, data_files int, delete_files int, "
        "input_bytes bigint, expected_files int, copied_row_groups bigint, estimated_seconds double, "
        "estimated_cost double"
    ),
    run=run,
    example="CALL compact_table('db.events', target => '512MB')",
    aliases=(Alias("rewrite_data_files", ("table", "strategy", "sort_order", "options", "where", "branch")),),
    table_function=True,
    option_prefixes=("write.",),
    option_names=("compression",),
)

"""`CALL compact_table(...)`: merge small files, apply deletes, cluster rows; the rows themselves never change."""

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
from iceberg_compact_sql.call.iceberg_errors import strategy_of, unknown_options
from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError
from iceberg_compact_sql.plan.layouts.order import DEFAULT_MAX_DEPTH, STRATEGY_NAMES
from iceberg_compact_sql.plan.ways import ways_text

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.compact_request import CompactRequest, CompactResult
    from iceberg_compact_sql.plan.model import CompactionPlan


# Arguments that only mean something for a strategy that orders rows, and the strategies that take them.
_SORT_OPTIONS = frozenset(("compression_factor", "shuffle_partitions_per_file"))
_STRATEGY_OPTIONS = {
    "binpack": frozenset[str](),
    "sort": _SORT_OPTIONS,
    "zorder": _SORT_OPTIONS | {"max_output_size", "var_length_contribution"},
    "hilbert": _SORT_OPTIONS,
}
_ORDER_OPTIONS = _STRATEGY_OPTIONS["zorder"]


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Plan the compaction; without dry_run also rewrite the files, verify them and commit.

    Commits REPLACE snapshots only: the table's rows are the same before and after. A second run right after it changes
    nothing.
    """
    from iceberg_compact_sql.actions.compact import compact, plan_compact

    request = request_of(arguments)
    if arguments["dry_run"]:
        return dry_run_rows(plan_compact(request, context))
    return [result_row(compact(request, context))]


def request_of(arguments: Arguments) -> CompactRequest:
    """Return the request of the action from the bound arguments."""
    from iceberg_compact_sql.actions.compact_request import CompactRequest

    strategy = arguments["strategy"]
    if arguments["sort_order"] is not None and strategy == "binpack" and "strategy" not in arguments.given:
        strategy = "sort"
    if arguments["sort_order"] is not None and strategy == "binpack":
        sentence = "Cannot set rewrite mode, it has already been set to BIN-PACK"
        raise InvalidArgumentError(
            f"{sentence}: strategy => 'binpack' does not sort",
            argument="sort_order",
            value=arguments["sort_order"],
            hint="Leave out sort_order, or choose a strategy that sorts.",
            iceberg=IcebergError(sentence),
        )
    _refuse_options_of_other_strategies(arguments, strategy)
    return CompactRequest(
        table=arguments["table"],
        branch=arguments["branch"],
        where=arguments["where"],
        strategy=strategy,
        sort_order=arguments["sort_order"],
        max_depth=_max_depth(arguments),
        compression_factor=arguments["compression_factor"],
        max_output_bytes=arguments["max_output_size"],
        var_length_bytes=arguments["var_length_contribution"],
        target_bytes=arguments["target"],
        min_file_bytes=arguments["min_file_size"],
        max_file_bytes=arguments["max_file_size"],
        min_input_files=arguments["min_input_files"],
        delete_file_threshold=arguments["delete_file_threshold"],
        delete_ratio_threshold=arguments["delete_ratio_threshold"],
        max_group_bytes=arguments["max_group_size"],
        max_group_files=arguments["max_group_files"],
        max_files=arguments["max_files"],
        rewrite_all=arguments["rewrite_all"],
        job_order=arguments["job_order"],
        output_spec_id=arguments["output_spec_id"],
        idle_ms=arguments["idle"],
        min_score=arguments["min_score"],
        min_fragment_ratio=arguments["min_fragment_ratio"],
        max_bytes=arguments["max_bytes"],
        max_cost_dollars=arguments["max_cost"],
        time_budget_ms=arguments["time_budget"],
        partial_progress=arguments["partial_progress"],
        max_commits=arguments["max_commits"],
        max_failed_commits=arguments["max_failed_commits"],
        max_concurrent_groups=arguments["max_concurrent_groups"],
        use_starting_sequence_number=arguments["use_starting_sequence_number"],
        remove_dangling_deletes=arguments["remove_dangling_deletes"],
        copy=arguments["copy"],
        copy_min_row_group_bytes=arguments["copy_min_row_group_size"],
        verify=arguments["verify"],
        write_options=arguments["options"],
        claim=arguments["claim"],
    )


def _max_depth(arguments: Arguments) -> int | None:
    """In Iceberg's form files are selected by size only, unless the option is given."""
    depth: int | None = arguments["max_depth"]
    return None if arguments.iceberg_form and "max_depth" not in arguments.given else depth


def _refuse_options_of_other_strategies(arguments: Arguments, strategy: str) -> None:
    """Refuse an argument that means nothing for the strategy, as Iceberg does."""
    layout = strategy_of(strategy, arguments["sort_order"])
    allowed = _STRATEGY_OPTIONS[layout]
    for parameter in PROCEDURE.parameters:
        name = parameter.name
        if name not in _ORDER_OPTIONS or name in allowed or name not in arguments.given:
            continue
        strategies = [other for other, names in _STRATEGY_OPTIONS.items() if name in names]
        raise InvalidArgumentError(
            f"{name} means nothing for strategy '{layout}'",
            argument=name,
            value=arguments[name],
            hint=f"It belongs to: {', '.join(strategies)}.",
            iceberg=unknown_options([parameter.option or name], layout),
        )


def result_row(result: CompactResult) -> Row:
    """Return the result of a run in the order of the columns."""
    return (
        result.rewritten_data_files,
        result.added_data_files,
        result.rewritten_bytes,
        result.failed_data_files,
        result.removed_delete_files,
        result.added_bytes,
        result.rows,
        result.copied_row_groups,
        result.groups,
        result.commits,
        result.snapshot_id,
        result.elapsed_ms,
        result.depth_before,
        result.depth_after,
        result.spliced_columns,
    )


def dry_run_rows(plan: CompactionPlan) -> list[Row]:
    """Return one row for each group that would be rewritten or is skipped."""
    return [
        (
            group.group_id,
            group.partition_path,
            group.spec_id,
            group.action,
            f"{group.reason}; {ways_text(plan, group)}" if group.action == "rewrite" else group.reason,
            len(group.files),
            len(group.distinct_deletes) if any(group.deletes) else 0,
            group.input_bytes,
            group.expected_files,
            group.copied_row_groups,
            group.estimated_seconds,
            group.estimated_cost,
            group.depth,
            group.estimate_source or None,
        )
        for group in plan.groups
    ]


PROCEDURE = Procedure(
    name="compact_table",
    summary="Rewrite small, oversized and overlapping files to the target size and apply their deletes.",
    parameters=(
        TABLE,
        Parameter(
            "target",
            Kind.SIZE,
            "target size of the output files",
            default_text="`write.target-file-size-bytes`, else 512 MB",
            minimum=1,
            option="target-file-size-bytes",
            example="'512MB'",
        ),
        Parameter(
            "where",
            Kind.STRING,
            "a filter over the table's columns that selects files, never single rows",
            example="\"day >= DATE '2026-01-01'\"",
        ),
        BRANCH,
        Parameter(
            "strategy",
            Kind.CHOICE,
            "binpack keeps the order of rows; sort, zorder and hilbert write them in the order of sort_order",
            default="binpack",
            default_text="binpack; sort when only sort_order is given",
            choices=STRATEGY_NAMES,
        ),
        Parameter(
            "sort_order",
            Kind.STRING,
            "columns and transforms with ASC or DESC and NULLS FIRST or LAST, or `zorder(a, b)` or `hilbert(a, b)`",
            default_text="the table's own order",
            example="'user_id, at DESC NULLS LAST'",
        ),
        Parameter(
            "max_depth",
            Kind.INT,
            "clustering: rewrite files where more than this many of a partition overlap",
            default=DEFAULT_MAX_DEPTH,
            minimum=1,
            option="max-depth",
        ),
        MIN_FILE_SIZE,
        MAX_FILE_SIZE,
        MIN_INPUT_FILES,
        Parameter(
            "delete_file_threshold",
            Kind.INT,
            "rewrite a file that has at least this many delete files",
            minimum=0,
            option="delete-file-threshold",
        ),
        Parameter(
            "delete_ratio_threshold",
            Kind.DOUBLE,
            "rewrite a file when at least this share of its rows is deleted",
            default=0.3,
            above=0,
            maximum=1,
            option="delete-ratio-threshold",
        ),
        Parameter(
            "max_group_size",
            Kind.SIZE,
            "maximum bytes in one group; a group is committed as a whole",
            default=100 * 1024**3,
            default_text="100 GB",
            minimum=1,
            option="max-file-group-size-bytes",
        ),
        Parameter(
            "max_group_files", Kind.LONG, "maximum files in one group", minimum=1, option="max-file-group-input-files"
        ),
        Parameter(
            "max_files", Kind.LONG, "maximum files that this call rewrites", minimum=1, option="max-files-to-rewrite"
        ),
        Parameter(
            "rewrite_all",
            Kind.BOOLEAN,
            "rewrite every file, regardless of its size",
            default=False,
            option="rewrite-all",
        ),
        Parameter(
            "job_order",
            Kind.CHOICE,
            "the order in which groups are rewritten",
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
            "maximum commits with partial_progress",
            default=10,
            minimum=1,
            option="partial-progress.max-commits",
        ),
        Parameter(
            "max_failed_commits",
            Kind.INT,
            "failed commits that are allowed with partial_progress",
            default_text="= max_commits",
            minimum=0,
            option="partial-progress.max-failed-commits",
        ),
        Parameter(
            "max_concurrent_groups",
            Kind.INT,
            "groups that are rewritten at the same time",
            default_text="as many as the cluster can run",
            minimum=1,
            option="max-concurrent-file-group-rewrites",
        ),
        Parameter(
            "use_starting_sequence_number",
            Kind.BOOLEAN,
            "give outputs the sequence number of the planned snapshot, so that concurrent equality deletes still apply",
            default=True,
            option="use-starting-sequence-number",
        ),
        Parameter(
            "remove_dangling_deletes",
            Kind.BOOLEAN,
            "remove delete files that no longer apply to any data file, in the same commit",
            default=True,
            option="remove-dangling-deletes",
        ),
        Parameter("idle", Kind.AGE, "skip partitions that were written within this duration", example="'1h'"),
        Parameter(
            "min_score",
            Kind.DOUBLE,
            "rewrite only partitions with at least this score",
            minimum=0,
            maximum=1,
            example="0.5",
        ),
        Parameter("max_bytes", Kind.SIZE, "rewrite the best groups first and stop at this many input bytes", minimum=1),
        Parameter(
            "max_cost", Kind.DOUBLE, "rewrite the best groups first and stop at this estimated cost in dollars", above=0
        ),
        Parameter(
            "time_budget",
            Kind.AGE,
            "start only groups that are expected to finish within this time",
            minimum=1,
            example="'30m'",
        ),
        Parameter(
            "copy",
            Kind.CHOICE,
            "auto: copy large row groups and splice columns of small ones where possible; never: decode everything",
            default="auto",
            choices=("auto", "never"),
        ),
        Parameter(
            "verify",
            Kind.CHOICE,
            "check before the commit; rows: row counts; checksum: row counts and row contents",
            default="checksum",
            choices=("checksum", "rows"),
        ),
        Parameter(
            "options",
            Kind.MAP,
            "options under Iceberg's names; `write.*` and `compression` apply to this run",
            default={},
            example="map('min-input-files', '2')",
        ),
        DRY_RUN,
        Parameter(
            "output_spec_id",
            Kind.INT,
            "partition spec of the output files",
            default_text="the table's current spec",
            minimum=0,
            option="output-spec-id",
        ),
        Parameter(
            "copy_min_row_group_size",
            Kind.SIZE,
            "copy row groups of at least this size; smaller ones are merged column by column",
            default=8 * 1024**2,
            default_text="8 MB",
            minimum=1,
            option="copy-min-row-group-bytes",
        ),
        Parameter(
            "claim",
            Kind.BOOLEAN,
            "hold a lease on the table, so that a second compaction with claim is refused",
            default=False,
        ),
        Parameter(
            "min_fragment_ratio",
            Kind.DOUBLE,
            "rewrite only partitions with at least this many delete files for each data file",
            minimum=0,
            example="0.1",
        ),
        Parameter(
            "compression_factor",
            Kind.DOUBLE,
            "clustering: scales the input size before the number of output files is worked out",
            default_text="the size is measured",
            above=0,
            option="compression-factor",
        ),
        Parameter(
            "shuffle_partitions_per_file",
            Kind.INT,
            "clustering: accepted for compatibility with Iceberg; ranges follow from the memory of a task",
            default=1,
            minimum=1,
            option="shuffle-partitions-per-file",
        ),
        Parameter(
            "max_output_size",
            Kind.INT,
            "zorder: bytes of a position on the curve",
            default_text="what the ranks need",
            minimum=1,
            option="max-output-size",
        ),
        Parameter(
            "var_length_contribution",
            Kind.INT,
            "zorder: leading bytes of strings and binaries that count",
            default_text="all",
            minimum=1,
            option="var-length-contribution",
        ),
    ),
    columns=columns(
        "rewritten_data_files_count int, added_data_files_count int, rewritten_bytes_count bigint, "
        "failed_data_files_count int, removed_delete_files_count int, added_bytes_count bigint, rows_count bigint, "
        "copied_row_groups_count bigint, groups_count int, commits_count int, snapshot_id bigint, elapsed_ms bigint, "
        "depth_before double, depth_after double, spliced_columns_count bigint"
    ),
    dry_run_columns=columns(
        "group_id int, partition string, spec_id int, action string, reason string, data_files int, delete_files int, "
        "input_bytes bigint, expected_files int, copied_row_groups bigint, estimated_seconds double, "
        "estimated_cost double, depth double, estimate_source string"
    ),
    run=run,
    changes_tables=True,
    example="CALL compact_table('db.events', target => '512MB')",
    iceberg=IcebergForm("rewrite_data_files", ("table", "strategy", "sort_order", "options", "where", "branch"), 5),
    table_function=True,
    option_prefixes=("write.",),
    option_names=("compression",),
)

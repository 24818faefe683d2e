"""`CALL compact_table(...)`: merge small files, apply deletes, cluster rows; the rows themselves never change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments, IcebergForm, Procedure, Row, columns
from iceberg_compact_sql.call.iceberg_errors import strategy_of, unknown_options
from iceberg_compact_sql.errors import IcebergError, InvalidArgumentError
from iceberg_compact_sql.plan.ways import ways_text
from iceberg_compact_sql.procedures.compact_parameters import PARAMETERS

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
    parameters=PARAMETERS,
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

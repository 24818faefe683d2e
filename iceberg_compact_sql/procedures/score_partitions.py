"""`CALL score_partitions(...)`: which partitions need maintenance, worst first."""

from __future__ import annotations

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import BRANCH, TABLE, Arguments, Kind, Parameter, Procedure, Row, columns


def run(context: Context, arguments: Arguments) -> list[Row]:
    """A row a partition; reads manifests only and changes nothing."""
    from iceberg_compact_sql.plan.cost import Prices
    from iceberg_compact_sql.plan.options import target_file_bytes
    from iceberg_compact_sql.plan.rows import score_rows
    from iceberg_compact_sql.table.inventory import read_inventory

    opened = context.open_table(arguments["table"])
    where = context.read_where(arguments["where"], opened.table)
    inventory = read_inventory(opened.table, arguments["branch"], where)
    target_bytes = target_file_bytes(arguments["target"], opened.table.metadata.properties)
    return score_rows(
        inventory,
        target_bytes=target_bytes,
        now_ms=context.now_ms,
        prices=Prices.from_settings(context.view.conf),
    )


PROCEDURE = Procedure(
    name="score_partitions",
    summary="Score every partition from 0 (healthy) to 1 (worst) with its file counts, gain and cost.",
    parameters=(
        TABLE,
        Parameter(
            "target",
            Kind.SIZE,
            "the size that files should have",
            default_text="`write.target-file-size-bytes`, else 512 MB",
            minimum=1,
        ),
        BRANCH,
        Parameter("where", Kind.STRING, "which files count: a boolean expression over the table's columns"),
    ),
    columns=columns(
        "partition string, spec_id int, data_files bigint, data_bytes bigint, rows bigint, small_files bigint, "
        "average_file_bytes bigint, delete_files bigint, deleted_rows_ratio double, fragment_ratio double, "
        "last_written_at timestamp, last_compacted_at timestamp, score double, health int, files_saved bigint, "
        "cost double, recommendation string"
    ),
    run=run,
    example="CALL score_partitions('db.events')",
    table_function=True,
)

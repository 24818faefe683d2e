"""`CALL score_partitions(...)`: which partitions need maintenance, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import BRANCH, TABLE, Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.units import utc_time

if TYPE_CHECKING:
    from iceberg_compact_sql.plan.partition_scores import PartitionScore


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return one row for each partition; reads only manifests and changes nothing."""
    from iceberg_compact_sql.actions.score import ScoreRequest, score

    request = ScoreRequest(
        table=arguments["table"],
        branch=arguments["branch"],
        target_bytes=arguments["target"],
        where=arguments["where"],
        cluster_by=arguments["cluster_by"],
    )
    return [score_row(partition) for partition in score(request, context).partitions]


def score_row(score: PartitionScore) -> Row:
    """Return a partition's score in the order of the columns."""
    return (
        score.partition,
        score.spec_id,
        score.data_files,
        score.data_bytes,
        score.rows,
        score.small_files,
        score.average_file_bytes,
        score.delete_files,
        score.deleted_rows_ratio,
        score.fragment_ratio,
        utc_time(score.last_written_ms),
        utc_time(score.last_compacted_ms),
        score.score,
        score.health,
        score.files_saved,
        score.cost_dollars,
        score.recommendation,
        score.clustering_depth,
        score.clustering_overlap,
    )


PROCEDURE = Procedure(
    name="score_partitions",
    summary="Score every partition from 0 (healthy) to 1 (worst) with its file counts, gain and cost.",
    parameters=(
        TABLE,
        Parameter(
            "target",
            Kind.SIZE,
            "the size that files should have; smaller files count as small",
            default_text="`write.target-file-size-bytes`, else 512 MB",
            minimum=1,
        ),
        BRANCH,
        Parameter("where", Kind.STRING, "a filter over the table's columns that selects the files to score"),
        Parameter(
            "cluster_by",
            Kind.STRING,
            "a sort_order over which the clustering of the files is measured",
            default_text="the table's own order",
            example="'user_id, at'",
        ),
    ),
    columns=columns(
        "partition string, spec_id int, data_files bigint, data_bytes bigint, rows bigint, small_files bigint, "
        "average_file_bytes bigint, delete_files bigint, deleted_rows_ratio double, fragment_ratio double, "
        "last_written_at timestamp, last_compacted_at timestamp, score double, health int, files_saved bigint, "
        "cost double, recommendation string, clustering_depth double, clustering_overlap double"
    ),
    run=run,
    example="CALL score_partitions('db.events')",
    table_function=True,
)

"""`CALL score_tables(...)`: which tables of a catalog need maintenance, worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import BRANCH, Arguments, Kind, Parameter, Procedure, Row, columns
from iceberg_compact_sql.units import utc_time

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.score_tables import ScoredTable

_MEASURES = (
    "partitions bigint, data_files bigint, data_bytes bigint, rows bigint, small_files bigint, "
    "average_file_bytes bigint, delete_files bigint, fragment_ratio double, snapshots bigint, "
    "last_written_at timestamp, last_compacted_at timestamp, score double, health int, files_saved bigint, "
    "cost double, recommendation string"
)


def run(context: Context, arguments: Arguments) -> list[Row]:
    """Return one row for each table; reads only metadata and changes nothing."""
    from iceberg_compact_sql.actions.score_tables import ScoreTablesRequest, score_tables

    request = ScoreTablesRequest(
        pattern=arguments["pattern"],
        target_bytes=arguments["target"],
        branch=arguments["branch"],
        max_tables=arguments["max_tables"],
        max_concurrent=arguments["max_concurrent"],
    )
    return [table_row(table) for table in score_tables(request, context).tables]


def table_row(table: ScoredTable) -> Row:
    """Return a table's score in the order of the columns; a table that cannot be read has only its error."""
    score = table.score
    if score is None:
        return (table.match.shown, *(None,) * len(columns(_MEASURES)), table.error, None)
    return (
        table.match.shown,
        score.partitions,
        score.data_files,
        score.data_bytes,
        score.rows,
        score.small_files,
        score.average_file_bytes,
        score.delete_files,
        score.fragment_ratio,
        score.snapshots,
        utc_time(score.last_written_ms),
        utc_time(score.last_compacted_ms),
        score.score,
        score.health,
        score.files_saved,
        score.cost_dollars,
        score.recommendation,
        None,
        score.metadata_bytes,
    )


def check(context: Context, arguments: Arguments) -> None:
    """Raise when no table matches the pattern, or when a catalog cannot be listed."""
    from iceberg_compact_sql.catalogs.matching_tables import matching_tables

    matching_tables(context.view, arguments["pattern"], catalog=context.catalog)


PATTERN = Parameter(
    "pattern",
    Kind.STRING,
    "names of tables, completed as a table name is: 'db.*', 'catalog.*', 'catalog.db.events_*'; "
    "'*' alone: all tables of the catalog",
    default="*",
    example="'db.*'",
)
TARGET = Parameter(
    "target",
    Kind.SIZE,
    "the size that files should have; smaller files count as small",
    default_text="`iceberg-compact.target`, else `write.target-file-size-bytes`, else 512 MB",
    minimum=1,
)
PROCEDURE = Procedure(
    name="score_tables",
    summary="Score every table of a catalog from 0 (healthy) to 1 (worst), worst first.",
    parameters=(
        PATTERN,
        TARGET,
        BRANCH,
        Parameter("max_tables", Kind.INT, "return at most this many rows, the worst ones", minimum=1),
        Parameter("max_concurrent", Kind.INT, "tables that are read at the same time", default=8, minimum=1),
    ),
    columns=columns(f"table string, {_MEASURES}, error string, metadata_bytes bigint"),
    run=run,
    example="CALL score_tables('db.*')",
    table_function=True,
    check=check,
)

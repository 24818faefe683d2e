"""The work of `score_tables`: scores every table whose name matches a pattern, several tables at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iceberg_compact_sql import events
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.past_runs import PastRuns
from iceberg_compact_sql.catalogs.matching_tables import MatchingTable, matching_tables
from iceberg_compact_sql.errors import IcebergCompactError, NotFoundError
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.options import target_file_bytes
from iceberg_compact_sql.plan.table_scores import MetadataSize, TableScore, score_table
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.stores import stores_of
from iceberg_compact_sql.table.inventory import read_inventory
from iceberg_compact_sql.table.properties import MAINTENANCE_TARGET_BYTES


@dataclass(frozen=True, kw_only=True)
class ScoreTablesRequest:
    """Scores of all tables that match. `target_bytes` None means the properties of each table, else the default."""

    pattern: str = "*"
    target_bytes: int | None = None
    branch: str = "main"
    max_tables: int | None = None
    max_concurrent: int = 8


@dataclass(frozen=True, kw_only=True)
class ScoredTable:
    """A table with its score, or with the error that stopped it from being read."""

    match: MatchingTable
    score: TableScore | None = None
    error: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    # None when the metadata no longer has the table's first snapshot.
    created_ms: int | None = None


@dataclass(frozen=True)
class ScoreTablesResult:
    """Tables that cannot be read, then the others, worst first."""

    tables: tuple[ScoredTable, ...]


def score_tables(request: ScoreTablesRequest, context: Context) -> ScoreTablesResult:
    """Score every matching table; reads only metadata and changes nothing. Views are left out.

    A table that cannot be read has its error in its place. Raises when no table matches or a catalog cannot be listed.
    """
    with context.run(lambda: (None, "Nothing was changed.")):
        matches = matching_tables(context.view, request.pattern, catalog=context.catalog)
        tables = [match for match in matches if not match.is_view]
        if not tables:
            raise NotFoundError(
                f"only views match the pattern {request.pattern!r}, such as {matches[0].shown}",
                argument="pattern",
                value=request.pattern,
                hint="Give a pattern that matches tables.",
            )
        scored = sorted(score_matches(tables, request, context), key=worst_first)
        return ScoreTablesResult(tuple(scored[: request.max_tables]))


def score_matches(tables: Sequence[MatchingTable], request: ScoreTablesRequest, context: Context) -> list[ScoredTable]:
    """Return the scores of these tables in the same order, read with `request.max_concurrent` threads."""
    # Wrong settings are an error of the call, not of each table.
    prices = Prices.from_settings(context.view.conf)
    runs = PastRuns(context)
    with events.ThreadPool(max_workers=min(request.max_concurrent, len(tables)) or 1) as pool:
        waiting = [pool.submit(score_match, table, request, context, prices, runs) for table in tables]
        try:
            return [future.result() for future in waiting]
        finally:
            # After a cancel the tables that wait are not read.
            for future in waiting:
                future.cancel()


def score_match(
    match: MatchingTable, request: ScoreTablesRequest, context: Context, prices: Prices, runs: PastRuns
) -> ScoredTable:
    """Return the score of one table, or the error that reading it raised."""
    try:
        events.stop_if_cancelled()
        return _scored(match, request, context, prices, runs)
    except IcebergCompactError as error:
        return ScoredTable(match=match, error=str(error))
    except Exception as error:
        # A damaged table must not hide the others.
        return ScoredTable(match=match, error=f"{type(error).__name__}: {redact(error)}")


def worst_first(table: ScoredTable) -> tuple[float, int, str]:
    """Return the sort key of the result: errors, then by score, then by the number of files saved."""
    if table.score is None:
        return -2.0, 0, table.match.shown
    return -table.score.score, -table.score.files_saved, table.match.shown


def _scored(
    match: MatchingTable, request: ScoreTablesRequest, context: Context, prices: Prices, runs: PastRuns
) -> ScoredTable:
    table = context.open_table(match.quoted).table
    properties = table.metadata.properties
    target_bytes = request.target_bytes
    if target_bytes is None:
        target_bytes = MAINTENANCE_TARGET_BYTES.of(properties)
    metadata_bytes = None
    # Some catalogs give no right to read the metadata file itself.
    with contextlib.suppress(Exception):
        stat = stores_of(table.io).stat(table.metadata_location)
        metadata_bytes = None if stat is None else stat.size_bytes
    snapshots = table.metadata.snapshots
    known = {snapshot.snapshot_id for snapshot in snapshots}
    first = min(snapshots, key=lambda snapshot: snapshot.timestamp_ms, default=None)
    cut = first is not None and first.parent_snapshot_id is not None and first.parent_snapshot_id not in known
    times = [table.metadata.last_updated_ms, *(entry.timestamp_ms for entry in table.metadata.metadata_log)]
    score = score_table(
        read_inventory(table, request.branch),
        target_bytes=target_file_bytes(target_bytes, properties),
        now_ms=context.now_ms,
        prices=prices,
        metadata=MetadataSize(len(snapshots), metadata_bytes),
        paces=runs.paces(match.quoted),
    )
    return ScoredTable(
        match=match,
        score=score,
        properties=properties,
        created_ms=None if cut else min([*times, *(snapshot.timestamp_ms for snapshot in snapshots)]),
    )

"""The scores of all tables, kept in memory: read every 5 minutes, and again after a job of a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.errors import NotFoundError
from iceberg_compact_sql.procedures.score_tables import PROCEDURE, table_row
from iceberg_compact_sql.redaction import mask_rows
from iceberg_compact_sql.service.jobs import plain_json
from iceberg_compact_sql.service.queue import WILDCARDS

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.score_tables import ScoredTable
    from iceberg_compact_sql.plan.table_scores import TableScore

EVERY_SECONDS = 300.0
# Orders of several columns, which take plain names of columns beside the strategy.
_CURVES = ("zorder", "hilbert")


class Scores:
    """The newest score of each table, worst first."""

    def __init__(self, context_of: Callable[[], Context], target_of: Callable[[], int | None]) -> None:
        self._context_of = context_of
        self._target_of = target_of
        self._lock = threading.Lock()
        self._scoring = threading.Lock()
        self._tables: tuple[ScoredTable, ...] = ()
        self._stale: set[str] = set()
        self._scored_at = 0.0
        self.scored_ms: int | None = None

    def refresh(self) -> None:
        """Score all tables when the last time is 5 minutes ago; before that, those that have changed since."""
        if time.monotonic() - self._scored_at > EVERY_SECONDS or self.scored_ms is None:
            self.score_now()
        elif self._stale:
            self._score_stale()

    def forget(self, table: str | None) -> None:
        """Score this table again soon, since it has changed; all tables for None or a pattern."""
        if table is None or not WILDCARDS.isdisjoint(table):
            self._scored_at = -EVERY_SECONDS
            return
        with self._lock:
            self._stale.add(table)

    def score_now(self) -> None:
        """Score all tables of the default catalog now."""
        # Imported late for start-up time: HTTP answers before pyiceberg is loaded.
        from iceberg_compact_sql.actions.score_tables import ScoreTablesRequest, score_tables

        with self._scoring:
            request = ScoreTablesRequest(target_bytes=self._target_of())
            with self._lock:
                self._stale.clear()
            try:
                tables = score_tables(request, self._context_of()).tables
            except NotFoundError:
                # A catalog without tables is not an error here.
                tables = ()
            finally:
                self._scored_at = time.monotonic()
            with self._lock:
                self._tables, self.scored_ms = tables, int(time.time() * 1000)

    def _score_stale(self) -> None:
        from iceberg_compact_sql.actions.score_tables import ScoreTablesRequest, score_matches, worst_first

        with self._scoring:
            with self._lock:
                stale, self._stale = self._stale, set()
            context = self._context_of()
            known = {scored.match.shown: scored for scored in self._tables}
            if not stale <= known.keys():
                # A new table: only a listing shows whether it is one of the default catalog.
                self._scored_at = -EVERY_SECONDS
            matches = [known[name].match for name in stale & known.keys()]
            request = ScoreTablesRequest(target_bytes=self._target_of())
            fresh = {scored.match.shown: scored for scored in score_matches(matches, request, context)}
            with self._lock:
                self._tables = tuple(sorted((known | fresh).values(), key=worst_first))
                self.scored_ms = int(time.time() * 1000)

    def tables(self) -> tuple[ScoredTable, ...]:
        with self._lock:
            return self._tables

    def estimate(self, table: str | None) -> TableScore | None:
        """The last score of a table; None where it is not known."""
        return next((scored.score for scored in self.tables() if scored.match.shown == table), None)


def deepest_partition(
    context: Context, table: str, arguments: Mapping[str, Any], *, target_bytes: int | None
) -> float | None:
    """The clustering depth of the deepest partition that a run with these arguments may take.

    Measured over their `sort_order`, else over the table's own order; None where there is neither.
    """
    from iceberg_compact_sql.actions.score import ScoreRequest, score

    order, strategy = arguments.get("sort_order"), str(arguments.get("strategy", "")).lower()
    if order is not None and strategy in _CURVES and not str(order).strip().lower().startswith(f"{strategy}("):
        order = f"{strategy}({order})"
    request = ScoreRequest(
        table=table,
        branch=arguments.get("branch") or "main",
        target_bytes=target_bytes,
        where=arguments.get("where"),
        cluster_by=order,
    )
    depths = (partition.clustering_depth for partition in score(request, context).partitions)
    return max((depth for depth in depths if depth is not None), default=None)


def score_json(scored: ScoredTable) -> dict[str, Any]:
    """A row of score_tables as the HTTP answers show it."""
    names = [column.name for column in PROCEDURE.columns]
    (row,) = mask_rows([table_row(scored)])
    return dict(zip(names, plain_json(row), strict=True))

"""The scores of all tables, kept in memory: read every 5 minutes, and again after a job of a table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.errors import NotFoundError
from iceberg_compact_sql.procedures.score_tables import PROCEDURE, table_row
from iceberg_compact_sql.redaction import mask_rows
from iceberg_compact_sql.service.jobs import plain_json

if TYPE_CHECKING:
    from iceberg_compact_sql.actions.score_tables import ScoredTable
    from iceberg_compact_sql.plan.table_scores import TableScore

EVERY_SECONDS = 300.0


class Scores:
    """The newest score of each table, worst first."""

    def __init__(self, context_of: Callable[[], Context], target_of: Callable[[], int | None]) -> None:
        self._context_of = context_of
        self._target_of = target_of
        self._lock = threading.Lock()
        self._scoring = threading.Lock()
        self._tables: tuple[ScoredTable, ...] = ()
        self._scored_at = 0.0
        self.scored_ms: int | None = None

    def refresh(self) -> None:
        """Score all tables when the last time is 5 minutes ago, or a job has ended since."""
        if time.monotonic() - self._scored_at > EVERY_SECONDS or self.scored_ms is None:
            self.score_now()

    def forget(self, table: str | None) -> None:
        """Score again soon: a job has changed this table."""
        self._scored_at = -EVERY_SECONDS

    def score_now(self) -> None:
        """Score all tables of the default catalog now."""
        # Imported late for start-up time: HTTP answers before pyiceberg is loaded.
        from iceberg_compact_sql.actions.score_tables import ScoreTablesRequest, score_tables

        with self._scoring:
            request = ScoreTablesRequest(target_bytes=self._target_of())
            try:
                tables = score_tables(request, self._context_of()).tables
            except NotFoundError:
                # A catalog without tables is not an error here.
                tables = ()
            finally:
                self._scored_at = time.monotonic()
            with self._lock:
                self._tables, self.scored_ms = tables, int(time.time() * 1000)

    def tables(self) -> tuple[ScoredTable, ...]:
        with self._lock:
            return self._tables

    def estimate(self, table: str | None) -> TableScore | None:
        """The last score of a table; None where it is not known."""
        return next((scored.score for scored in self.tables() if scored.match.shown == table), None)


def score_json(scored: ScoredTable) -> dict[str, Any]:
    """A row of score_tables as the HTTP answers show it."""
    names = [column.name for column in PROCEDURE.columns]
    (row,) = mask_rows([table_row(scored)])
    return dict(zip(names, plain_json(row), strict=True))

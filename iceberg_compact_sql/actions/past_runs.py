"""Reads past compactions from the history database, for estimates that learn."""

from __future__ import annotations

import threading

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.plan.learned_pace import LAST_RUNS, NOTHING_LEARNED, LearnedPaces, PastRun

# Enough for the last runs of each table of a usual catalog, in one request.
_RECENT_RUNS = 2000


class PastRuns:
    """The past compactions of all tables; read once, when the first table asks."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._url = context.view.setting("history")
        self._recent: list[tuple[str, PastRun]] | None = None
        self._lock = threading.Lock()

    def paces(self, table: str) -> LearnedPaces:
        """Return what is learned for a table, by its name in a CALL; nothing where no history is configured."""
        if not self._url:
            return NOTHING_LEARNED
        with self._lock:
            if self._recent is None:
                self._recent = self._read(self._url, None, _RECENT_RUNS)
        name = self._context.full_name(table)
        own = [run for of, run in self._recent if of == name]
        if len(own) < LAST_RUNS and len(self._recent) == _RECENT_RUNS:
            own = [run for _, run in self._read(self._url, name, _RECENT_RUNS)]
        return LearnedPaces(own, [run for of, run in self._recent if of != name])

    @staticmethod
    def _read(url: str, table: str | None, limit: int) -> list[tuple[str, PastRun]]:
        # Imported late for start-up time: most sessions have no history.
        from iceberg_compact_sql.report.history_store import read

        entries = read(url, table=table, procedure="compact_table", status="success", limit=limit)
        return [
            (entry.table, PastRun(entry.way, entry.elapsed_ms / 1000, entry.base_seconds))
            for entry in entries
            if entry.way is not None and entry.base_seconds
        ]

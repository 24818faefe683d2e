"""What a procedure gets besides its arguments: the session, the clock, and the way to tables."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.catalogs.session_view import SessionView

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

    from iceberg_compact_sql.catalogs.open_table import OpenTable


class Context:
    """One call's surroundings. `spark` is None inside a table function, which only ever plans."""

    def __init__(
        self,
        view: SessionView | Callable[[], SessionView],
        *,
        spark: Any = None,
        now_ms: int | None = None,
        catalog: str | None = None,
    ) -> None:
        self._view = view
        self.spark = spark
        self.now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        # The catalog of `CALL catalog.system.procedure(...)`.
        self.catalog = catalog

    @cached_property
    def view(self) -> SessionView:
        """The session's catalogs and names, asked for once and only if somebody needs them."""
        return self._view() if callable(self._view) else self._view

    def open_table(self, name: str) -> OpenTable:
        """The table that Spark would find under this name, freshly loaded."""
        from iceberg_compact_sql.catalogs.open_table import open_table

        return open_table(self.view, name, catalog=self.catalog)

    def read_where(self, text: str | None, table: Table) -> BooleanExpression | None:
        """A `where` argument as a filter over the columns that the table has now; None where none was given."""
        if text is None:
            return None
        from iceberg_compact_sql.plan.filters.parse import parse_where

        return parse_where(text, table.schema(), time_zone=self.view.time_zone, now_ms=self.now_ms)

    def refresh(self, opened: OpenTable) -> None:
        """Let Spark forget what it cached of a table that was changed, so that this session reads the new state."""
        if self.spark is None or not opened.in_spark:
            return
        # A catalog that Spark itself cannot load has nothing cached.
        with contextlib.suppress(Exception):
            self.spark.catalog.refreshTable(opened.spark_name)

    @property
    def cores(self) -> int:
        """Cores of this machine that the driver process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

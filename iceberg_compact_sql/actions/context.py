"""The inputs of an action besides its request: the session, the clock, access to tables, and the observer."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.catalogs.session_view import SETTING_PREFIX, SessionView
from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import Observer, RunCancelled, observed
from iceberg_compact_sql.storage.kept_metadata import keeping_metadata
from iceberg_compact_sql.storage.request_limit import limited_requests, requests_setting
from iceberg_compact_sql.storage.silent_stores import remembering_silence
from iceberg_compact_sql.version import VERSION

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

    from iceberg_compact_sql.catalogs.open_table import OpenTable
    from iceberg_compact_sql.engine.shipping import SparkWorkers

_PACKAGE = "iceberg-compact-sql"


class Context:
    """The context of one call. `spark` is None where there is no session (yet).

    `start_spark` starts one when the work needs it; a table function, which only plans, has neither. `observer`
    receives the events of the run, knows its id and can cancel it.
    """

    def __init__(
        self,
        view: SessionView | Callable[[], SessionView],
        *,
        spark: Any = None,
        now_ms: int | None = None,
        catalog: str | None = None,
        observer: Observer | None = None,
        start_spark: Callable[[], Any] | None = None,
    ) -> None:
        self._view = view
        self.spark = spark
        self.start_spark = start_spark
        self.now_ms = int(time.time() * 1000) if now_ms is None else now_ms
        # The catalog of `CALL catalog.system.procedure(...)`.
        self.catalog = catalog
        self.observer = Observer() if observer is None else observer

    def at(self, now_ms: int) -> Context:
        """Return the same context with a later time, for the steps of a long run."""
        return Context(
            self.view,
            spark=self.spark,
            now_ms=now_ms,
            catalog=self.catalog,
            observer=self.observer,
            start_spark=self.start_spark,
        )

    def needed_spark(self) -> Any:
        """Return the session; starts it if there is none yet. None if this context can have none."""
        if self.spark is None and self.start_spark is not None:
            self.spark = self.start_spark()
        return self.spark

    @contextlib.contextmanager
    def run(self, done: Callable[[], tuple[object, str]]) -> Iterator[None]:
        """Make the block a run of the observer; the observer receives its events, gives its id and can cancel it.

        `done` returns the result so far and a sentence about it. A cancelled run ends in RunCancelledError with both.
        """
        try:
            with (
                observed(self.observer),
                limited_requests(self.requests),
                keeping_metadata(),
                remembering_silence(),
            ):
                yield
        except RunCancelled:
            result, sentence = done()
            error = RunCancelledError(f"the run {self.observer.run_id} was cancelled", hint=sentence)
            error.result = result
            raise error from None

    @property
    def requests(self) -> int:
        """Requests to stores that one process of the run may have in flight: `spark.iceberg_compact_sql.requests`."""
        return requests_setting(f"{SETTING_PREFIX}requests", self.view.setting("requests"))

    @cached_property
    def view(self) -> SessionView:
        """The session's catalogs and names, read once when first needed."""
        return self._view() if callable(self._view) else self._view

    def open_table(self, name: str) -> OpenTable:
        """Load the table that Spark would find under this name."""
        # Imported late for start-up time: pyiceberg is not needed to start a session.
        from iceberg_compact_sql.catalogs.open_table import open_table
        from iceberg_compact_sql.table.encryption import refuse_encrypted

        opened = open_table(self.view, name, catalog=self.catalog)
        refuse_encrypted(opened.table.metadata, name)
        return opened

    def full_name(self, name: str) -> str:
        """Return `catalog.namespace.table` of a name; the name itself where it means no table."""
        from iceberg_compact_sql.catalogs.names import parse_table_name, resolve_name, show_name
        from iceberg_compact_sql.catalogs.open_table import known_catalogs

        try:
            resolved = resolve_name(self.view, parse_table_name(name), known_catalogs(self.view), catalog=self.catalog)
        except IcebergCompactError:
            # Opening the table raises the same error, with its explanation.
            return name
        return show_name((resolved.catalog, *resolved.identifier))

    @cached_property
    def user(self) -> str | None:
        """Who runs the call: the session's user where there is one, else the user of this process."""
        with contextlib.suppress(Exception):
            if self.spark is not None:
                return str(self.spark.sql("SELECT current_user()").first()[0])
        with contextlib.suppress(Exception):
            return getpass.getuser()
        return None

    @property
    def ignored_tables(self) -> frozenset[str]:
        """Tables that share no files with others, by the setting `spark.iceberg_compact_sql.ignored_tables`."""
        setting = self.view.setting("ignored_tables") or ""
        return frozenset(filter(None, (name.strip() for name in setting.split(","))))

    def read_where(self, text: str | None, table: Table) -> BooleanExpression | None:
        """Parse a `where` argument into a filter on the table's current columns; None if there is none."""
        if text is None:
            return None
        from iceberg_compact_sql.plan.filters.parse import parse_where

        return parse_where(
            text,
            table.schema(),
            time_zone=self.view.time_zone,
            now_ms=self.now_ms,
            case_sensitive=self.view.case_sensitive,
        )

    def refresh(self, opened: OpenTable) -> None:
        """Clear Spark's cache of a changed table, so that this session reads the new state."""
        if self.spark is None or not opened.in_spark:
            return
        # If Spark cannot load the catalog, it has nothing cached.
        with contextlib.suppress(Exception):
            self.spark.catalog.refreshTable(opened.spark_name)

    def workers(self) -> SparkWorkers | None:
        """Return the Python workers of the session's executors; None where there can be no session."""
        spark = self.needed_spark()
        if spark is None:
            return None
        # Imported late for start-up time: most calls use no workers.
        from iceberg_compact_sql.engine.shipping import SparkWorkers

        return SparkWorkers(spark)

    @cached_property
    def engine_summary(self) -> dict[str, str]:
        """What the summary of every snapshot says about engine and application."""
        if self.spark is None:
            application = {"app-id": self.observer.run_id, "app-name": _PACKAGE}
            return {"engine-name": _PACKAGE, "engine-version": VERSION, **application}
        # Late, for start-up time: only commits need it.
        from iceberg_compact_sql.engine.cluster import engine_summary

        return engine_summary(self.spark)

    @property
    def cores(self) -> int:
        """Cores of this machine that the driver process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

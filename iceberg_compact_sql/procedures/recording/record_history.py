"""Writes what a call changed, and its failures, to the history database that the session names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments, Procedure
from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import listening
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.report.action_outcome import ActionOutcome

_log = masked_logger(__name__)


@contextlib.contextmanager
def recorded(procedure: Procedure, context: Context, arguments: Arguments) -> Iterator[None]:
    """Record every action of the block. Raises before the block when the database cannot be written to.

    A row that cannot be written afterwards is logged: the change itself is done, and its result counts.
    """
    url = context.view.setting("history")
    if not url or not procedure.changes_tables or arguments.get("dry_run"):
        yield
        return
    # Imported late for start-up time: sessions without a history need no SQLAlchemy.
    from iceberg_compact_sql.report.history_store import HistoryEntry, record, require_writable

    require_writable(url)
    given = {name: arguments[name] for name in arguments.given}
    entries = 0

    def write(outcome: ActionOutcome) -> None:
        nonlocal entries
        entries += 1
        entry = HistoryEntry(**asdict(outcome), run_id=context.observer.run_id, user=context.user, arguments=given)
        try:
            record(url, entry)
        except IcebergCompactError as error:
            _log.warning(
                "%s %s ended as %s and is not in the history: %s", entry.procedure, entry.table, entry.status, error
            )

    def listener(event: str, facts: Mapping[str, Any]) -> None:
        if event == "action.done":
            write(ActionOutcome(**facts["outcome"]))

    try:
        with listening(listener):
            yield
    except IcebergCompactError as error:
        if not entries:
            # No action began, for example because the table is missing.
            status = "cancelled" if isinstance(error, RunCancelledError) else "failed"
            table = context.full_name(given["table"]) if "table" in given else str(arguments.get("pattern", ""))
            write(
                ActionOutcome(
                    procedure=procedure.name,
                    table=table,
                    status=status,
                    started_ms=context.now_ms,
                    elapsed_ms=0,
                    error=str(error),
                )
            )
        raise

"""Writes the report of a table to a file, for the command line."""

from __future__ import annotations

from pathlib import Path

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.table_report import ReportRequest, table_report
from iceberg_compact_sql.doors.command_session import CommandSession
from iceberg_compact_sql.doors.session import session_view
from iceberg_compact_sql.doors.session_errors import guarded
from iceberg_compact_sql.errors import InvalidArgumentError


def write_report(session: CommandSession, table: str, path: Path, queries: str | None = None) -> int:
    """Write the report of a table and return its bytes; an existing file is replaced when the report is complete."""
    context = Context(session_view(session.spark()) if session.needs_spark() else session.view)
    text = guarded("report", lambda: table_report(ReportRequest(table=table, queries=queries), context))
    content = text.encode("utf-8")
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InvalidArgumentError(
            f"report: {path} cannot be written: {error.strerror or error}",
            argument="output",
            value=str(path),
            hint="Give a file in a folder that exists and may be written to.",
        ) from None
    return len(content)

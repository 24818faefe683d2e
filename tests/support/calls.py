"""Procedures called as users call them, without a JVM: small plans run in this process.

row = call(lake, "CALL compact_table('db.t', target => '1MB')")[0]
row["rewritten_data_files_count"]
"""

from __future__ import annotations

from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.binding import bind
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.procedures.registry import names
from tests.support.plain import PlainLake


def call(lake: PlainLake, sql: str, *, now_ms: int | None = None) -> list[dict[str, Any]]:
    """The rows of a CALL on a plain lake, as dicts."""
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    context = Context(view, now_ms=now_ms)
    parsed = parse_call(sql, now_ms=context.now_ms)
    assert parsed is not None
    procedure = names()[parsed.procedure]
    try:
        arguments = bind(
            procedure, parsed.arguments, now_ms=context.now_ms, time_zone=lambda: "UTC", called_as=parsed.procedure
        )
        rows = procedure.run(context, arguments)
    except IcebergCompactError as error:
        raise error.with_procedure(parsed.procedure)  # noqa: B904 - the same error, named
    columns = [column.name for column in procedure.result_columns(arguments)]
    return [dict(zip(columns, row, strict=True)) for row in rows]

"""Procedures called as users call them, without a JVM: small plans run in this process.

row = call(lake, "CALL compact_table('db.t', target => '1MB')")[0]
row["rewritten_data_files_count"]
"""

from __future__ import annotations

from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.grammar import parse_call
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.procedures.run_procedure import bind_call, run_procedure
from tests.support.plain import PlainLake


def call(
    lake: PlainLake, sql: str, *, now_ms: int | None = None, observer: Observer | None = None
) -> list[dict[str, Any]]:
    """The rows of a CALL on a plain lake, as dicts."""
    view = SessionView(conf=lake.conf, current_catalog=lake.name, current_namespace=("db",))
    context = Context(view, now_ms=now_ms, observer=observer)
    parsed = parse_call(sql, now_ms=context.now_ms)
    assert parsed is not None
    procedure = names()[parsed.procedure]
    arguments = bind_call(procedure, context, parsed.arguments, parsed.procedure, qualified=parsed.qualified)
    rows = run_procedure(procedure, context, arguments, parsed.procedure)
    columns = [column.name for column in procedure.result_columns(arguments)]
    return [dict(zip(columns, row, strict=True)) for row in rows]

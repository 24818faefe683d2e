"""SQL text of a parsed CALL, to check that it parses back to the same call."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from iceberg_compact_sql.call.grammar import Call


def print_call(call: Call) -> str:
    """Return SQL text that parses back to the same call."""
    parts = ".".join("`" + part.replace("`", "``") + "`" for part in call.parts)
    arguments = (
        (f"`{a.name.replace('`', '``')}` => " if a.name is not None else "") + sql_literal(a.value)
        for a in call.arguments
    )
    return f"CALL {parts}({', '.join(arguments)})"


def sql_literal(value: Any) -> str:
    """A Python value as SQL text that reads back as the same value."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''").replace("\n", "\\n").replace("\r", "\\r") + "'"
    if isinstance(value, float):
        text = repr(value)
        return text if "e" in text else f"{text}e0"
    if isinstance(value, dt.datetime):
        return (
            f"TIMESTAMP '{value.isoformat(sep=' ')}'" if value.tzinfo else f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        )
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return f"INTERVAL '{value // dt.timedelta(microseconds=1)}' MICROSECOND"
    if isinstance(value, Mapping):
        return f"map({', '.join(f'{sql_literal(k)}, {sql_literal(v)}' for k, v in value.items())})"
    if isinstance(value, (list, tuple)):
        return f"array({', '.join(map(sql_literal, value))})"
    return f"{value:f}BD" if isinstance(value, Decimal) else str(value)

"""The columns that a filter may name: primitive values, also inside structs, by their full name."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import PrimitiveType, StructType

from iceberg_compact_sql.plan.filters.comparisons import Unusable


def find_column(schema: Schema, name: str, *, case_sensitive: bool) -> tuple[str, PrimitiveType] | None:
    """Return the full name and the type of a column; None if there is no such column.

    Raises Unusable for a name of several columns, and for a column that a filter cannot compare.
    """
    try:
        field = schema.find_field(name, case_sensitive=case_sensitive)
    except ValueError:
        return None
    if not case_sensitive:
        alike = [other for other in schema.column_names if other.lower() == name.lower()]
        if len(alike) > 1:
            raise Unusable(f"'{name}' may be any of {', '.join(alike)}; set spark.sql.caseSensitive to true")
    full = schema.find_column_name(field.field_id)
    if full is None or not _is_inside_structs_only(schema, full):
        raise Unusable(f"{name} is inside a list or a map")
    if not isinstance(field.field_type, PrimitiveType):
        raise Unusable(f"{name} is of type {field.field_type}; name a field inside it")
    return full, field.field_type


def _is_inside_structs_only(schema: Schema, full: str) -> bool:
    above = full
    while "." in above:
        above = above.rpartition(".")[0]
        try:
            if not isinstance(schema.find_type(above), StructType):
                return False
        except ValueError:
            # The dot is part of a name and does not separate levels.
            continue
    return True

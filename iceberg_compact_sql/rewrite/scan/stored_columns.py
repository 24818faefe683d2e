"""The columns of a table's schema that data files store, and those whose types cannot be rewritten."""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import GeographyType, GeometryType, NestedField, StructType, UnknownType

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.pyiceberg_internals.opaque_types import OpaqueType


def stored_schema(schema: Schema) -> Schema:
    """Return the schema without columns of type unknown: they are null in every row, and no file stores them.

    Raise UnsupportedError for a column whose type cannot be rewritten.
    """
    _refuse_opaque(schema)
    return Schema(*_stored(schema.fields), schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _stored(fields: tuple[NestedField, ...]) -> list[NestedField]:
    kept = []
    for field in fields:
        kind = field.field_type
        if isinstance(kind, UnknownType):
            continue
        if isinstance(kind, StructType):
            children = _stored(kind.fields)
            if not children:
                raise _unsupported(field, "a struct with unknown fields only")
            if len(children) < len(kind.fields):
                field = field.model_copy(update={"field_type": StructType(*children)})
        kept.append(field)
    return kept


def _refuse_opaque(schema: Schema) -> None:
    for field_id in sorted(schema.field_ids):
        field = schema.find_field(field_id)
        inside = field.name in ("element", "key", "value") and isinstance(field.field_type, UnknownType)
        if inside or isinstance(field.field_type, OpaqueType | GeometryType | GeographyType):
            name = schema.find_column_name(field_id) or field.name
            raise _unsupported(field.model_copy(update={"name": name}), str(field.field_type))


def _unsupported(field: NestedField, kind: str) -> UnsupportedError:
    return UnsupportedError(
        f"column '{field.name}' has the type {kind}, whose values cannot be rewritten yet",
        argument="table",
        hint="The other procedures work on this table.",
    )

"""Whether row groups of a file may be copied: its columns must be the table's current ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.rewrite.scan.fields import FileField, is_list, plain_type

_PHYSICAL: dict[type[IcebergType], str] = {
    BooleanType: "BOOLEAN",
    IntegerType: "INT32",
    LongType: "INT64",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    DateType: "INT32",
    TimeType: "INT64",
    TimestampType: "INT64",
    TimestamptzType: "INT64",
    StringType: "BYTE_ARRAY",
    BinaryType: "BYTE_ARRAY",
    UUIDType: "FIXED_LEN_BYTE_ARRAY",
    FixedType: "FIXED_LEN_BYTE_ARRAY",
}
_LOGICAL: dict[type[IcebergType], str] = {DateType: "Date", StringType: "String", UUIDType: "UUID"}


def no_copy_reason(
    table: Schema,
    fields: Sequence[FileField],
    parquet: pq.ParquetSchema,
    *,
    own_ids: bool,
    identity: Mapping[int, Any],
) -> str | None:
    """Return why row groups of the file may not be copied, or None if they may.

    They may if every column of the file is one of the table's, with its id, name and exact Parquet type, and if
    columns that the file lacks read as null. Dropped columns do not fit, so that dropped data goes.
    """
    if not own_ids:
        return "the file carries no field ids"
    leaves = iter(range(len(parquet)))
    reason = _struct_misfit(table.fields, fields, (), parquet, leaves, identity)
    if reason is None and next(leaves, None) is not None:
        return "the file's columns are laid out in an unusual way"
    return reason


def _struct_misfit(
    wanted: Sequence[NestedField],
    fields: Sequence[FileField],
    path: tuple[str, ...],
    parquet: pq.ParquetSchema,
    leaves: Iterator[int],
    identity: Mapping[int, Any],
) -> str | None:
    by_id = {field.field_id: field for field in wanted}
    for source in fields:
        field = by_id.pop(source.field_id, None) if source.field_id is not None else None
        if field is None:
            return f"column '{source.name}' of the file is no longer in the table"
        if field.name != source.name:
            return f"column '{field.name}' is named '{source.name}' in the file"
        reason = _field_misfit(field, source, (*path, source.name), parquet, leaves, identity)
        if reason is not None:
            return reason
    for field in by_id.values():
        if field.required or field.initial_default is not None or identity.get(field.field_id) is not None:
            return f"column '{field.name}' is missing in the file and does not read as null"
    return None


def _field_misfit(
    field: NestedField,
    source: FileField,
    path: tuple[str, ...],
    parquet: pq.ParquetSchema,
    leaves: Iterator[int],
    identity: Mapping[int, Any],
) -> str | None:
    kind, stored = field.field_type, plain_type(source.type)
    if field.required and source.arrow.nullable:
        return f"column '{field.name}' is required by the table and optional in the file"
    if isinstance(kind, StructType) and pa.types.is_struct(stored):
        return _struct_misfit(kind.fields, source.children, path, parquet, leaves, identity)
    if isinstance(kind, ListType) and is_list(stored):
        return _below_misfit((kind.element_field,), source, path, parquet, leaves, identity)
    if isinstance(kind, MapType) and pa.types.is_map(stored):
        return _below_misfit((kind.key_field, kind.value_field), source, path, parquet, leaves, identity)
    if isinstance(kind, StructType | ListType | MapType) or source.children:
        return f"column '{field.name}' is stored as {stored}"
    index = next(leaves, None)
    if index is None:
        return "the file's columns are laid out in an unusual way"
    column = parquet.column(index)
    # A path of another depth means a list without its middle level, or a name with dots: decode both.
    parts = column.path.split(".")
    if len(parts) != len(path) or any(want not in ("*", part) for want, part in zip(path, parts, strict=True)):
        return f"column '{field.name}' is laid out in an unusual way"
    if not _type_fits(kind, column):
        return f"column '{field.name}' is stored as {column.physical_type} ({column.logical_type}), not as {kind}"
    return None


def _below_misfit(
    wanted: Sequence[NestedField],
    source: FileField,
    path: tuple[str, ...],
    parquet: pq.ParquetSchema,
    leaves: Iterator[int],
    identity: Mapping[int, Any],
) -> str | None:
    for field, child in zip(wanted, source.children, strict=True):
        if child.field_id != field.field_id:
            return f"the {field.name} of column '{source.name}' lacks its field id"
        # Writers choose the names of the repeated group and of its members.
        reason = _field_misfit(field, child, (*path, "*", "*"), parquet, leaves, identity)
        if reason is not None:
            return reason
    return None


def _type_fits(kind: IcebergType, column: Any) -> bool:
    """Return the physical and logical Parquet type that Iceberg's specification gives for the type."""
    logical = json.loads(column.logical_type.to_json())
    name = logical.get("Type")
    if isinstance(kind, DecimalType):
        stored = name == "Decimal" and (logical["precision"], logical["scale"]) == (kind.precision, kind.scale)
        return stored and column.physical_type in ("INT32", "INT64", "FIXED_LEN_BYTE_ARRAY")
    if column.physical_type != _PHYSICAL.get(type(kind)):
        return False
    if isinstance(kind, TimestampType | TimestamptzType):
        wanted = isinstance(kind, TimestamptzType)
        return name == "Timestamp" and logical["timeUnit"] == "microseconds" and logical["isAdjustedToUTC"] is wanted
    if isinstance(kind, TimeType):
        return name == "Time" and bool(logical["timeUnit"] == "microseconds")
    if isinstance(kind, IntegerType | LongType):
        width = 32 if isinstance(kind, IntegerType) else 64
        return name == "None" or (name == "Int" and (logical["bitWidth"], logical["isSigned"]) == (width, True))
    if isinstance(kind, FixedType) and column.length != len(kind):
        return False
    return bool(name == _LOGICAL.get(type(kind), "None"))

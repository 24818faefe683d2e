"""The table's schema in Arrow, with field ids at every level."""

from __future__ import annotations

import pyarrow as pa
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
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError

FIELD_ID_KEY = b"PARQUET:field_id"

_PLAIN: dict[type[IcebergType], pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", tz="UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    UUIDType: pa.uuid(),
}


def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the schema in Arrow; strings, binaries and lists with 32-bit offsets, since batches are small."""
    return pa.schema([arrow_field(field) for field in schema.fields])


def arrow_field(field: NestedField, name: str | None = None) -> pa.Field:
    """Return a field with its Parquet field id, required exactly where the table's field is."""
    return pa.field(
        name or field.name,
        arrow_type(field.field_type),
        nullable=not field.required,
        metadata={FIELD_ID_KEY: str(field.field_id).encode()},
    )


def arrow_type(iceberg_type: IcebergType) -> pa.DataType:
    """Return the Arrow type of an Iceberg type; raise `ProjectionError` for types of later format versions."""
    if isinstance(iceberg_type, StructType):
        return pa.struct([arrow_field(child) for child in iceberg_type.fields])
    if isinstance(iceberg_type, ListType):
        return pa.list_(arrow_field(iceberg_type.element_field, "element"))
    if isinstance(iceberg_type, MapType):
        return pa.map_(arrow_field(iceberg_type.key_field, "key"), arrow_field(iceberg_type.value_field, "value"))
    if isinstance(iceberg_type, DecimalType):
        return pa.decimal128(iceberg_type.precision, iceberg_type.scale)
    if isinstance(iceberg_type, FixedType):
        return pa.binary(len(iceberg_type))
    plain = _PLAIN.get(type(iceberg_type))
    if plain is None:
        raise ProjectionError(f"columns of type {iceberg_type} are not supported")
    return plain

"""Whether a row group stores its identity partition values, so that a copy reads the same under any spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, PrimitiveType

from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import Struct
from iceberg_compact_sql.rewrite.write.metrics import chunk_extremes, chunk_nulls, chunk_values


def holds_identity_values(footer: ParquetFooter, index: int, schema: Schema, identity: Mapping[int, Any]) -> bool:
    """Whether statistics prove that each identity column of a row group has its partition value in every row.

    Readers use the partition value instead of the column while the file's spec has the identity field. A copied row
    group may be written under another spec, and its statistics become bounds: then the stored values count. A column
    that the row group lacks is not checked here.
    """
    if not identity:
        return True
    columns = zip(footer.leaves, footer.column_trees(index), strict=True)
    return all(
        _holds(footer, leaf, meta, schema, identity[leaf.field_id])
        for leaf, (_, meta) in columns
        if leaf.field_id is not None and leaf.field_id in identity
    )


def _holds(footer: ParquetFooter, leaf: LeafColumn, chunk: Struct, schema: Schema, value: Any) -> bool:
    nulls = chunk_nulls(chunk, leaf)
    if value is None:
        return nulls == chunk_values(chunk)
    assert leaf.field_id is not None
    kind = schema.find_type(leaf.field_id)
    if not isinstance(kind, PrimitiveType) or isinstance(kind, (FloatType, DoubleType)):
        # Statistics of floats leave NaN out.
        return False
    extremes = chunk_extremes(footer, leaf, chunk, kind) if nulls == 0 else None
    if extremes is None:
        return False
    try:
        return extremes == (to_bytes(kind, value),) * 2
    except (TypeError, ValueError, ArithmeticError, AttributeError):
        # The value is damaged, or has the type from before a promotion: decode the rows.
        return False

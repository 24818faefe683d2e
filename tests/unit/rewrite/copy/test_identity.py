"""Row groups that hold their identity partition value in every row, as their statistics prove it."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, PrimitiveType, StringType, UUIDType

from iceberg_compact_sql.parquet.footer import read_footer
from iceberg_compact_sql.rewrite.copy.identity import holds_identity_values

NAN = float("nan")
ID = uuid.UUID("f0000000-0000-0000-8000-000000000001")


@pytest.mark.parametrize(
    ("kind", "arrow", "partition", "stored", "holds"),
    [
        (LongType(), pa.int64(), 7, [7, 7], True),
        (LongType(), pa.int32(), 7, [7, 7], True),
        (LongType(), pa.int64(), 7, [7, 8], False),
        (LongType(), pa.int64(), 7, [7, None], False),
        (LongType(), pa.int64(), None, [None, None], True),
        (LongType(), pa.int64(), None, [None, 7], False),
        (StringType(), pa.string(), "a" * 40, ["a" * 40] * 2, True),
        (StringType(), pa.string(), "a", ["a", "a\x00"], False),
        (UUIDType(), pa.uuid(), ID, [ID.bytes] * 2, True),
        (UUIDType(), pa.uuid(), ID, [ID.bytes, bytes(16)], False),
        # Statistics leave NaN out, and writers differ in which zero they keep.
        (FloatType(), pa.float32(), 1.5, [1.5, NAN], False),
        (DoubleType(), pa.float64(), 1.5, [1.5, NAN], False),
        (DoubleType(), pa.float64(), NAN, [NAN, 1.5], False),
        (DoubleType(), pa.float64(), 0.0, [0.0, -0.0], False),
        (DoubleType(), pa.float64(), -0.0, [0.0, 0.0], False),
    ],
)
def test_only_proved_values_count(
    kind: PrimitiveType, arrow: pa.DataType, partition: Any, stored: list[Any], holds: bool
) -> None:
    field = pa.field("p", arrow, metadata={"PARQUET:field_id": "1"})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table([pa.array(stored, arrow)], schema=pa.schema([field])), sink)
    buffer = sink.getvalue()
    footer = read_footer(pa.BufferReader(buffer), buffer.size)
    assert holds_identity_values(footer, 0, Schema(NestedField(1, "p", kind)), {1: partition}) is holds

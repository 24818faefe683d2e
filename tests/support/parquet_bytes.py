"""Parquet files in memory for the tests of the footer and the row-group copy."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_compact_sql.parquet.footer import ParquetFooter, read_footer
from iceberg_compact_sql.parquet.joiner import CopiedRange, RowGroupJoiner

EPOCH = dt.datetime(1960, 5, 17, 3, 4, 5, 678901)


def with_id(name: str, kind: pa.DataType, field_id: int, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {"PARQUET:field_id": str(field_id)})


WIDE_SCHEMA = pa.schema(
    [
        with_id("id", pa.int64(), 1, nullable=False),
        with_id("word", pa.string(), 2),
        with_id("price", pa.decimal128(20, 2), 3),
        with_id("seen", pa.timestamp("us", tz="UTC"), 4),
        with_id("flag", pa.bool_(), 5),
        with_id("score", pa.float64(), 6),
        with_id("tags", pa.list_(with_id("element", pa.string(), 8)), 7),
        with_id(
            "spots",
            pa.list_(with_id("element", pa.struct([with_id("x", pa.int32(), 11), with_id("y", pa.date32(), 12)]), 10)),
            9,
        ),
        with_id("props", pa.map_(with_id("key", pa.string(), 14, False), with_id("value", pa.int32(), 15)), 13),
        with_id("point", pa.struct([with_id("lat", pa.float32(), 17), with_id("note", pa.binary(), 18)]), 16),
    ]
)


def wide_table(rows: int, first: int = 0) -> pa.Table:
    """Rows of every kind, nulls and empty collections included; `id` counts from `first`."""
    numbers = range(first, first + rows)
    columns: list[list[Any]] = [
        list(numbers),
        [None if n % 11 == 3 else f"word-{n % 97:03d}-{'é' * (n % 5)}" for n in numbers],
        [None if n % 7 == 0 else Decimal(n * (-1) ** n).scaleb(-2) for n in numbers],
        [EPOCH.replace(tzinfo=dt.timezone.utc) + dt.timedelta(seconds=n * 977) for n in numbers],
        [None if n % 5 == 0 else n % 2 == 0 for n in numbers],
        [None if n % 13 == 0 else (-0.0 if n % 3 == 0 else n / 7) for n in numbers],
        [None if n % 4 == 0 else [None if i == 1 else f"t{i}" for i in range(n % 4 - 1)] for n in numbers],
        [None if n % 5 == 1 else [{"x": n, "y": None}, None][: n % 3] for n in numbers],
        [None if n % 6 == 0 else [(f"k{i}", n if i else None) for i in range(n % 3)] for n in numbers],
        [None if n % 8 == 0 else {"lat": n / 2, "note": None if n % 3 else bytes([n % 256])} for n in numbers],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, WIDE_SCHEMA, strict=True)]
    return pa.table(arrays, schema=WIDE_SCHEMA)


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def footer_of(data: bytes) -> ParquetFooter:
    return read_footer(pa.BufferReader(data))


def footer_bytes(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def joined(files: Sequence[bytes], **options: Any) -> tuple[bytes, ParquetFooter, list[CopiedRange]]:
    """All row groups of all files in one."""
    sink = io.BytesIO()
    footers = [footer_of(data) for data in files]
    joiner = RowGroupJoiner(sink, footers[0], **options)
    ranges = [
        joiner.copy(pa.BufferReader(data), footer, range(len(footer.row_groups)))
        for data, footer in zip(files, footers, strict=True)
    ]
    footer = joiner.finish()
    return sink.getvalue(), footer, ranges


def duck_rows(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """The rows of a DuckDB query, on a connection of its own."""
    with duckdb.connect() as connection:
        rows: list[tuple[Any, ...]] = connection.execute(query, parameters).fetchall()
        return rows

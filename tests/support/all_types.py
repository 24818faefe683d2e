"""Rows with a column of every kind that a splice can meet, and readers that compare files."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datafusion import SessionContext
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
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
)

from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema

_DEEP = ListType(31, StructType(NestedField(32, "x", ListType(33, LongType(), False))), False)
ALL_TYPES = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "rnd", LongType()),
    NestedField(3, "i4", IntegerType()),
    NestedField(4, "f4", FloatType()),
    NestedField(5, "f8", DoubleType()),
    NestedField(6, "hex", StringType()),
    NestedField(7, "low", StringType()),
    NestedField(8, "bin", BinaryType()),
    NestedField(9, "fix", FixedType(16)),
    NestedField(10, "ok", BooleanType()),
    NestedField(11, "d9", DecimalType(9, 2)),
    NestedField(12, "d18", DecimalType(18, 4)),
    NestedField(13, "d38", DecimalType(38, 10)),
    NestedField(14, "ts", TimestampType()),
    NestedField(15, "tz", TimestamptzType()),
    NestedField(16, "day", DateType()),
    NestedField(17, "tm", TimeType()),
    NestedField(18, "blank", StringType()),
    NestedField(19, "li", ListType(20, LongType(), False)),
    NestedField(21, "ls", ListType(22, StringType(), False)),
    NestedField(23, "mp", MapType(24, StringType(), 25, DoubleType(), False)),
    NestedField(
        26,
        "st",
        StructType(
            NestedField(27, "a", LongType()), NestedField(28, "b", StringType()), NestedField(29, "c", DoubleType())
        ),
    ),
    NestedField(30, "deep", _DEEP),
)
FILTERS = (
    "id between 410 and 503",
    "low = 'b'",
    "hex > 'c'",
    "f8 > 1",
    "f4 < -1",
    "d9 < 0",
    "d38 > 0",
    "blank is not null",
    "ok",
    "i4 = 3",
    "day > date '2000-01-01'",
)


def all_type_rows(seed: int, count: int, *, nulls: bool = True) -> pa.Table:
    """Rows of `ALL_TYPES`, the same for the same seed: NaN, -0.0, empty strings, columns of nulls, nested nulls."""
    random = np.random.default_rng(seed)
    schema = arrow_schema(ALL_TYPES)

    def holes(values: pa.Array, share: float = 0.1) -> pa.Array:
        if not nulls:
            return values
        return pc.if_else(pa.array(random.random(len(values)) < share), pa.scalar(None, values.type), values)

    def decimals(precision: int, scale: int) -> pa.Array:
        limit = 10 ** min(precision, 17)
        numbers = [decimal.Decimal(int(x)).scaleb(-scale) for x in random.integers(-limit, limit, count)]
        return pa.array(numbers, pa.decimal128(precision, scale))

    low = pa.array(["aa", "b", "", "\u00e9t\u00e9", "zz" * 40])
    wide = random.integers(0, 2**62, count)
    floats = random.normal(size=count)
    floats[::97], floats[1::89], floats[2::83] = np.nan, -0.0, 0.0
    lengths = random.integers(0, 4, count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype("i4"))
    items = int(lengths.sum())
    inner = pa.ListArray.from_arrays(
        pa.array(np.arange(items + 1, dtype="i4")), holes(pa.array(random.integers(0, 9, items)))
    )
    deep = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays([holes(inner)], ["x"]))
    columns = [
        pa.array(np.arange(count) + count * seed),
        holes(pa.array(wide)),
        holes(pa.array(random.integers(-9, 9, count).astype("i4"))),
        holes(pa.array(floats.astype("f4"))),
        holes(pa.array(floats)),
        pa.array([f"{x:016x}" for x in wide]),
        holes(low.take(pa.array(random.integers(0, 5, count)))),
        holes(pa.array([int(x).to_bytes(8, "big")[: x % 9] for x in wide])),
        holes(pa.array([int(x).to_bytes(8, "big") * 2 for x in wide], pa.binary(16))),
        holes(pa.array(random.random(count) < 0.9)),
        holes(decimals(9, 2)),
        decimals(18, 4),
        holes(decimals(38, 10)),
        holes(pa.array(wide % 10**15, pa.timestamp("us"))),
        pa.array(wide % 10**15, pa.timestamp("us", "UTC")),
        holes(pa.array((wide % 20000).astype("i4"), pa.date32())),
        holes(pa.array(wide % 86_400_000_000, pa.time64("us"))),
        pa.nulls(count, pa.string()) if seed % 2 else holes(pa.array([f"v{x % 7}" for x in wide]), 0.99),
        holes(pa.ListArray.from_arrays(offsets, holes(pa.array(random.integers(0, 2**40, items))))),
        pa.ListArray.from_arrays(offsets, low.take(pa.array(random.integers(0, 5, items)))),
        pa.MapArray.from_arrays(
            offsets, pa.array([f"k{j}" for j in range(items)]), holes(pa.array(random.normal(size=items)))
        ),
        pa.StructArray.from_arrays(
            [holes(pa.array(wide)), holes(low.take(pa.array(random.integers(0, 5, count)))), holes(pa.array(floats))],
            ["a", "b", "c"],
        ),
        holes(deep),
    ]
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(cast, schema=schema)


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables have the same rows in the same order, NaN and -0.0 included."""
    return left.num_rows == right.num_rows and repr(left.to_pylist()) == repr(right.to_pylist())


def check_readers(inputs: Sequence[Path], outputs: Sequence[Path], filters: Sequence[str] = FILTERS) -> None:
    """Every reader must find the rows of the inputs in the outputs, all of them and those of each filter."""
    before, after = [str(path) for path in inputs], [str(path) for path in outputs]
    expected = pa.concat_tables([pq.ParquetFile(path).read() for path in before])
    stored = pa.concat_tables([pq.ParquetFile(path).read() for path in after])
    assert same_rows(expected.cast(stored.schema), stored)
    with duckdb.connect() as duck:
        for where in ("true", *filters):
            sides: list[Any] = []
            for paths in (before, after):
                duck.execute(
                    f"select count(*), sum(hash(to_json(t)::varchar)) from read_parquet({paths!r}) t where {where}"
                )
                sides.append(duck.fetchall())
            assert sides[0] == sides[1], f"DuckDB: {where}"
    assert polars.read_parquet(before).equals(polars.read_parquet(after))
    for condition in (polars.col("id").is_between(410, 503), polars.col("low") == "b", polars.col("d9") < 0):
        wanted, found = (polars.scan_parquet(paths).filter(condition).collect() for paths in (before, after))
        assert wanted.equals(found), f"polars: {condition}"
    sides = []
    for paths in (before, after):
        context = SessionContext()
        total: list[int] = [0] * len(filters)
        for path in paths:
            context.register_parquet("t", path)
            for number, where in enumerate(filters):
                total[number] += context.sql(f"select count(*) from t where {where}").to_pydict()["count(*)"][0]
            context.deregister_table("t")
        sides.append(total)
    assert sides[0] == sides[1], "DataFusion"

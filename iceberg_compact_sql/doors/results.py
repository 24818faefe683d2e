"""The rows of a call, as a DataFrame that holds them: showing it runs nothing again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.call.declaration import Column, Row
from iceberg_compact_sql.doors.session_errors import is_connect


@dataclass(frozen=True)
class Answer:
    """What a call gave: typed columns and rows in their order."""

    procedure: str
    columns: tuple[Column, ...]
    rows: list[Row]

    @property
    def ddl(self) -> str:
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)


def spark_schema(columns: tuple[Column, ...]) -> Any:
    """Columns as a StructType, made without a JVM: `analyze` runs in a worker."""
    from pyspark.sql import types

    by_name = {
        "int": types.IntegerType(),
        "bigint": types.LongType(),
        "double": types.DoubleType(),
        "boolean": types.BooleanType(),
        "string": types.StringType(),
        "timestamp": types.TimestampType(),
    }
    return types.StructType([types.StructField(column.name, by_name[column.type]) for column in columns])


def as_dataframe(spark: Any, answer: Answer) -> Any:
    """A DataFrame over the rows themselves (a local relation): no job, and never a second run of the call."""
    import pyarrow as pa

    if not answer.rows and is_connect(spark):
        # Connect's client reads no schema off a table without rows.
        return spark.createDataFrame([], spark_schema(answer.columns))
    types = {
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    schema = pa.schema([pa.field(column.name, types[column.type]) for column in answer.columns])
    by_column = zip(*answer.rows, strict=True) if answer.rows else ([] for _ in answer.columns)
    arrays = [pa.array(list(values), type=field.type) for values, field in zip(by_column, schema, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))

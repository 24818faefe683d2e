"""The result of a call as a DataFrame that holds its rows, so that showing it runs nothing again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.call.declaration import Column, Row
from iceberg_compact_sql.engine.cluster import is_connect


@dataclass(frozen=True)
class Answer:
    """The result of a call: typed columns, and rows in order."""

    procedure: str
    columns: tuple[Column, ...]
    rows: list[Row]


def spark_schema(columns: tuple[Column, ...]) -> Any:
    """The StructType of the columns. Needs no JVM: `analyze` of a table function runs in a Python worker."""
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
    """Return a DataFrame over a local relation of the rows: it starts no job and never runs the call again.

    Scores and dry runs have charts in a notebook: an attribute of this one DataFrame, which those made from it lack.
    """
    frame = _local_dataframe(spark, answer)
    plain_html = frame._repr_html_

    def html() -> str | None:
        # Imported late for start-up time: only notebooks ask. With eager evaluation the user wants Spark's own table.
        from iceberg_compact_sql.report.notebook import answer_html

        names = [column.name for column in answer.columns]
        shown: str | None = plain_html()
        return shown if shown is not None else answer_html(answer.procedure, names, answer.rows)

    frame._repr_html_ = html
    return frame


def _local_dataframe(spark: Any, answer: Answer) -> Any:
    import pyarrow as pa

    if not answer.rows and is_connect(spark):
        # The Connect client cannot derive a schema from an Arrow table without rows.
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
    column_values = zip(*answer.rows, strict=True) if answer.rows else ([] for _ in answer.columns)
    arrays = [pa.array(list(values), type=field.type) for values, field in zip(column_values, schema, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema))

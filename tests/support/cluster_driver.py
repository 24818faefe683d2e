"""A user's driver program, started as a process of its own: `python cluster_driver.py MASTER SETTINGS_AS_JSON`.

It has this package by pip and no Iceberg jar. The first line it prints says which packages the executors' Python finds
before anything was shipped to it; after that it takes a statement a line and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

import iceberg_compact_sql

LOOKED_FOR = ("iceberg_compact_sql", "pyarrow", "pyiceberg")


def looked_up(batches: Iterator[Any]) -> Iterator[Any]:
    """Runs on the executors: which of the packages could be imported there."""
    import importlib.util

    import pyarrow as pa

    for _ in batches:
        found = [name for name in LOOKED_FOR if importlib.util.find_spec(name) is not None]
        yield pa.RecordBatch.from_arrays([pa.array([found], pa.list_(pa.string()))], names=["found"])


def main() -> None:
    master, settings = sys.argv[1:]
    builder = SparkSession.builder.master(master)
    for key, value in json.loads(settings).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    iceberg_compact_sql.register(spark)
    found = spark.range(0, 8, 1, 8).mapInArrow(looked_up, "found array<string>").collect()
    tell({"executors_find": sorted({tuple(row["found"]) for row in found})})
    for statement in sys.stdin:
        try:
            tell({"rows": [row.asDict() for row in spark.sql(statement).collect()]})
        except iceberg_compact_sql.IcebergCompactError as error:
            tell({"error": str(error)})
    spark.stop()


def tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()

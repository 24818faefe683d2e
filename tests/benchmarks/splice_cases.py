"""Compaction of small files that Java or pyarrow wrote, ours next to Iceberg's: what a splice has to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyiceberg.schema import Schema

from tests.benchmarks.compaction_cases import Bench, run_twins
from tests.benchmarks.data import EVENTS, SCHEMA, event_rows, rows, write_files
from tests.benchmarks.measuring import Measurement
from tests.benchmarks.twins import data_files, make_twins
from tests.support.handmade import make_table

SHAPES: dict[str, tuple[Schema, Callable[[int, int], pa.Table]]] = {
    "events": (EVENTS, event_rows),
    "shop": (SCHEMA, rows),
}


def splice_case(bench: Bench) -> Iterator[Measurement]:
    """Sixty files of about 1.7 MB: events and shop, of Java's writer and of pyarrow's; and a thousand of 10 KB."""
    count, per_file = (6, 10_000) if bench.quick else (60, 50_000)
    for shape, (schema, make) in SHAPES.items():
        home = bench.folder / "inputs" / f"{shape}-{count}x{per_file}"
        bench.say(f"making {count} files of {shape}")
        arrow = write_files(home, count, per_file, make)
        for writer, paths in (("java", java_files(bench, shape, schema, arrow)), ("arrow", arrow)):
            name = f"{shape} {writer}"
            tables = make_twins(bench.lake, name.replace(" ", "_"), paths, untouched=True, schema=schema)
            yield from run_twins(bench, name, tables)
    tiny = bench.files("tenkb", 20 if bench.quick else 1000, 150)
    yield from run_twins(bench, "10 KB", make_twins(bench.lake, "tenkb", tiny))


def java_files(bench: Bench, shape: str, schema: Schema, paths: Sequence[Path]) -> list[Path]:
    """The same rows in as many files, written by Iceberg's Java writer."""
    lake, name = bench.lake, f"db.java_{shape}"
    make_table(lake.catalog, name, schema)
    spark = lake.spark
    # One partition for each file, so that each becomes one file again.
    spark.conf.set("spark.sql.files.openCostInBytes", str(1024**3))
    try:
        view = spark.read.parquet(*map(str, paths))
        columns = ", ".join(
            f"CAST({field.name} AS TIMESTAMP_NTZ) AS {field.name}" if field.name == "at" else field.name
            for field in schema.fields
        )
        view.createOrReplaceTempView("small_files")
        lake.sql(f"INSERT INTO {lake.full(name)} SELECT {columns} FROM small_files")
    finally:
        spark.conf.unset("spark.sql.files.openCostInBytes")
    return sorted(data_files(lake, name))

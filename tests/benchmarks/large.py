"""One large table, compacted once on Spark tasks: `python -m tests.benchmarks.large --gb 20`.

The table has files of 10 MB. They are hard links to a few distinct files, so that making it takes seconds. Two such
runs show how time grows with size: `--gb 5` and `--gb 20`. `--cluster` uses a standalone cluster of two workers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.console import Console

import iceberg_compact_sql
from tests.benchmarks import report
from tests.benchmarks.data import write_files
from tests.benchmarks.measuring import Measurement, measure
from tests.benchmarks.twins import data_files, data_mb, fingerprint, table_of
from tests.support.cluster import standalone_cluster
from tests.support.java import open_lake, start_session

_DISTINCT_FILES = 8
_ROWS_PER_FILE = 330_000
_FILE_BYTES = 10 * 1024**2


def run(folder: Path, gigabytes: float, session: dict[str, str], copy: str) -> Measurement:
    """Compact a table of this size; Java counts and sums its rows before and after."""
    spark = start_session(folder / "scratch", session)
    try:
        iceberg_compact_sql.register(spark)
        spark.conf.set("spark.iceberg_compact_sql.driver_bytes", "0")
        lake = open_lake(spark, folder / "lake", "bench")
        name = table_of(lake, "db.large", _linked_files(folder, gigabytes))
        before = fingerprint(lake, name)
        call = f"CALL compact_table('{lake.full(name)}', copy => '{copy}')"
        cost, rows = measure(f"{gigabytes:g} GB, copy {copy}", "ours", lambda: lake.sql(call).collect())
        if fingerprint(lake, name) != before:
            raise SystemExit("the rows have changed")
        files = len(data_files(lake, name))
        print(rows[0].asDict())
        lake.catalog.close()
        return replace(cost, output_mb=data_mb(lake, name), files=files)
    finally:
        iceberg_compact_sql.unregister(spark)
        spark.stop()


def _linked_files(folder: Path, gigabytes: float) -> list[Path]:
    distinct = write_files(folder / "distinct", _DISTINCT_FILES, _ROWS_PER_FILE)
    links = folder / "links"
    links.mkdir()
    count = round(gigabytes * 1024**3 / _FILE_BYTES)
    paths = [links / f"{number:06d}.parquet" for number in range(count)]
    for number, path in enumerate(paths):
        os.link(distinct[number % _DISTINCT_FILES], path)
    return paths


@contextlib.contextmanager
def _masters(folder: Path, *, cluster: bool) -> Iterator[dict[str, str]]:
    if not cluster:
        yield {}
        return
    with standalone_cluster(folder) as made:
        yield {"spark.master": made.url, "spark.executor.memory": "1g"}


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.large", description=__doc__)
    parser.add_argument("--gb", type=float, default=20)
    parser.add_argument("--copy", default="auto", choices=("auto", "never"))
    parser.add_argument("--cluster", action="store_true")
    given = parser.parse_args()
    # The executors of a cluster use the packages of this environment.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    folder = Path(tempfile.mkdtemp(prefix="benchmarks-large-"))
    try:
        with _masters(folder, cluster=given.cluster) as session:
            cost = run(folder, given.gb, session, given.copy)
        report.show(Console(width=150), [cost], [])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Requests and seconds on S3 beside Iceberg, with 30 ms for each request: `python -m tests.benchmarks.requests`.

A real S3 server on loopback, behind a proxy in a process of its own that counts and delays. Small: 200 files of some KB
in 20 snapshots and 10 partitions. Large: 6 files of 18 MB. Both sides are warm, in one session. `--tasks` lets our
side run as Spark tasks instead of threads of the driver.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import iceberg_compact_sql
from tests.support.counting_proxy import RemoteCounts
from tests.support.jars import Jar, fetch
from tests.support.java import ICEBERG_VERSION, RUNTIME, start_session
from tests.support.s3 import S3Server, free_port, running_s3, stop_process, wait_for_port

SIDES = ("ours", "iceberg")
SMALL = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", LongType()), NestedField(3, "text", StringType())
)
LARGE = Schema(NestedField(1, "id", LongType()), NestedField(2, "content", BinaryType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
CATALOG = "bench"


@dataclass(frozen=True)
class Traffic:
    """What one call cost."""

    work: str
    side: str
    requests: int
    most_in_flight: int
    read_mb: float
    wall_s: float
    by_kind: dict[str, int]


def calls(side: str, table: str) -> dict[str, str]:
    """Return the statements of a side."""
    full = f"{CATALOG}.{table}"
    if side == "ours":
        return {
            "compaction": f"CALL compact_table('{full}', rewrite_all => true)",
            "rewrite_manifests": f"CALL rewrite_manifests('{full}')",
            "expire_snapshots": f"CALL expire_snapshots('{full}', TIMESTAMP '2100-01-01', 1)",
        }
    system = f"CALL {CATALOG}.system"
    return {
        "compaction": f"{system}.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))",
        "rewrite_manifests": f"{system}.rewrite_manifests('{table}')",
        "expire_snapshots": f"{system}.expire_snapshots('{table}', TIMESTAMP '2100-01-01', 1)",
    }


def measured(spark: SparkSession, counts: RemoteCounts, size: str, table: str) -> Iterator[Traffic]:
    """Run all calls of both sides on twin tables."""
    for side in SIDES:
        for work, statement in calls(side, f"db.{table}_{side}").items():
            counts.take()
            start = time.perf_counter()
            spark.sql(statement).collect()
            wall_s = time.perf_counter() - start
            facts = counts.take()
            yield Traffic(
                f"{size}: {work}",
                side,
                sum(facts["requests"].values()),
                facts["most"],
                round(facts["read"] / 1e6, 1),
                round(wall_s, 2),
                facts["requests"],
            )


def make_small(catalog: SqlCatalog, name: str, snapshots: int) -> None:
    for side in SIDES:
        table = catalog.create_table(f"db.{name}_{side}", SMALL, partition_spec=SPEC)
        for number in range(snapshots):
            random = np.random.default_rng(number)
            ids = np.arange(number * 2000, number * 2000 + 2000)
            texts = [random.bytes(16).hex() for _ in ids]
            columns = [pa.array(ids), pa.array(ids % 10), pa.array(texts)]
            table.append(pa.Table.from_arrays(columns, schema=SMALL.as_arrow()))


def make_large(catalog: SqlCatalog, name: str, files: int) -> None:
    for side in SIDES:
        table = catalog.create_table(f"db.{name}_{side}", LARGE)
        for number in range(files):
            random = np.random.default_rng(number)
            contents = [random.bytes(1024) for _ in range(18 * 1024)]
            columns = [pa.array(range(len(contents))), pa.array(contents, LARGE.as_arrow().field(1).type)]
            table.append(pa.Table.from_arrays(columns, schema=LARGE.as_arrow()))


@contextlib.contextmanager
def delaying_proxy(server: S3Server, delay_ms: float) -> Iterator[RemoteCounts]:
    port = free_port()
    command = [sys.executable, "-m", "tests.support.counting_proxy", server.endpoint, str(port), str(delay_ms)]
    process = subprocess.Popen(command)
    try:
        wait_for_port(port, process)
        yield RemoteCounts(f"http://127.0.0.1:{port}")
    finally:
        stop_process(process)


def run(folder: Path, delay_ms: float, *, as_tasks: bool) -> list[Traffic]:
    with running_s3() as server, delaying_proxy(server, delay_ms) as counts:
        bundle = Jar("org.apache.iceberg", "iceberg-aws-bundle", ICEBERG_VERSION)
        jars = ",".join(str(jar) for jar in [*fetch("runtime", RUNTIME), *fetch("aws-bundle", [bundle])])
        spark = start_session(folder / "scratch", {"spark.jars": jars, "spark.driver.extraJavaOptions": "-XX:+UseG1GC"})
        database, warehouse = folder / "catalog.db", f"s3://{server.bucket}/bench"
        settings: dict[str, Any] = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{database}",
            ".jdbc.schema-version": "V1",
            ".warehouse": warehouse,
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".cache-enabled": "false",
            **{f".{name}": value for name, value in server.properties.items()},
            ".s3.endpoint": counts.endpoint,
        }
        for name, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{CATALOG}{name}", value)
        if as_tasks:
            spark.conf.set("spark.iceberg_compact_sql.driver_bytes", "0")
        iceberg_compact_sql.register(spark)
        catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{database}", warehouse=warehouse, **server.properties)
        catalog.create_namespace("db")
        make_small(catalog, "warm", 3)
        make_small(catalog, "small", 20)
        make_large(catalog, "large", 6)
        list(measured(spark, counts, "warm", "warm"))
        traffic = [*measured(spark, counts, "small", "small"), *measured(spark, counts, "large", "large")]
        for name in ("small", "large"):
            rows = [spark.sql(f"SELECT count(*), sum(id) FROM {CATALOG}.db.{name}_{side}").collect() for side in SIDES]
            if rows[0] != rows[1]:
                raise SystemExit(f"{name}: the sides have different rows: {rows}")
        catalog.close()
        spark.stop()
        return traffic


def main() -> None:
    parser = argparse.ArgumentParser("python -m tests.benchmarks.requests", description=__doc__)
    parser.add_argument("--delay-ms", type=float, default=30)
    parser.add_argument("--tasks", action="store_true", help="our side as Spark tasks")
    parser.add_argument("--kinds", action="store_true", help="also show the requests by kind")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmarks-requests-") as folder:
        traffic = run(Path(folder), given.delay_ms, as_tasks=given.tasks)
    table = Table(title=f"S3 with {given.delay_ms:g} ms for each request")
    for column in ("work", "side", "requests", "most at once", "read MB", "wall s", "times faster"):
        table.add_column(column, justify="left" if column in ("work", "side") else "right")
    seconds = {(row.work, row.side): row.wall_s for row in traffic}
    for row in traffic:
        faster = f"{seconds[row.work, 'iceberg'] / row.wall_s:.1f}" if row.side == "ours" else ""
        figures = (row.requests, row.most_in_flight, row.read_mb, row.wall_s)
        table.add_row(row.work, row.side, *map(str, figures), faster)
    console = Console(width=120)
    console.print(table)
    if given.kinds:
        for row in traffic:
            console.print(row.work, row.side, row.by_kind)


if __name__ == "__main__":
    main()

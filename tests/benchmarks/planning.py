"""How long inventory and planning take: `python -m tests.benchmarks.planning [--java]`.

Tables exist in the metadata only: manifests with 20 columns of statistics an entry. Each size runs in a process of
its own, so that the peak memory is its own. `--java` plans the same table with Iceberg's planner, warm, in one session.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from iceberg_compact_sql.plan.compaction import plan_compaction
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.plan.options import resolve_options
from iceberg_compact_sql.plan.partition_scores import score_partitions
from iceberg_compact_sql.procedures.compact_table import dry_run_rows
from iceberg_compact_sql.table.inventory import read_inventory
from iceberg_compact_sql.table.model import DeleteKind
from tests.support.handmade import commit_manifests, make_catalog, make_table
from tests.support.planning import MB, NOW_MS, data_file, delete_file, inventory_of, plan_for

COLUMNS = 20
PARTITIONS = 200
DAY_ID = COLUMNS + 1
SCHEMA = Schema(
    *(NestedField(n, f"c{n}", LongType() if n % 2 else StringType(), required=False) for n in range(1, DAY_ID)),
    NestedField(DAY_ID, "ts", TimestampType(), required=False),
)
BY_DAY = PartitionSpec(PartitionField(DAY_ID, 1000, DayTransform(), "day"))


def make_big_table(folder: Path, files: int, manifests: int) -> Table:
    """A table of many small files that exist in the metadata only."""
    return fill_big_table(make_catalog(folder), files, manifests)


def fill_big_table(catalog: Catalog, files: int, manifests: int) -> Table:
    """The same in a catalog that has the namespace `db`."""
    table = make_table(catalog, "db.big", SCHEMA, BY_DAY)
    snapshot_id = table.metadata.new_snapshot_id()
    written = [_manifest(table, snapshot_id, number, files // manifests) for number in range(manifests)]
    commit_manifests(table, written, snapshot_id, Operation.APPEND, {}, "main")
    return table


def _manifest(table: Table, snapshot_id: int, number: int, entries: int) -> ManifestFile:
    output = table.io.new_output(f"{table.location()}/metadata/big-{number}.avro")
    columns = range(1, DAY_ID + 1)
    with write_manifest(2, table.spec(), table.schema(), output, snapshot_id, "deflate") as writer:
        for position in range(entries):
            key = number * entries + position
            bound = to_bytes(LongType(), key)
            file = DataFile.from_args(
                content=DataFileContent.DATA,
                file_path=f"{table.location()}/data/day={key % PARTITIONS}/00000-{key:08d}-f00dcafe.parquet",
                file_format=FileFormat.PARQUET,
                partition=Record(20_000 + key % PARTITIONS),
                record_count=1000,
                file_size_in_bytes=(1 + key % 300) * MB,
                column_sizes=dict.fromkeys(columns, 1000),
                value_counts=dict.fromkeys(columns, 1000),
                null_value_counts=dict.fromkeys(columns, 0),
                nan_value_counts={},
                lower_bounds=dict.fromkeys(columns, bound),
                upper_bounds=dict.fromkeys(columns, bound),
                split_offsets=[4],
                sort_order_id=0,
            )
            file.spec_id = 0
            writer.add_entry(
                ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
            )
    return writer.to_manifest_file()


def measure_table(folder: Path, files: int, manifests: int, where: str | None = None) -> dict[str, Any]:
    """Wall and CPU seconds of reading and planning a table with so many files, and this process's peak memory."""
    table = make_big_table(folder, files, manifests)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    expression = parse_where(where, table.schema(), time_zone="UTC") if where else None
    wall, cpu = time.perf_counter(), time.process_time()
    inventory = read_inventory(table, "main", expression)
    read_cpu = time.process_time() - cpu
    plan = plan_compaction(inventory, resolve_options(), now_ms=NOW_MS, prices=Prices())
    rows = len(dry_run_rows(plan))
    total_wall, total_cpu = time.perf_counter() - wall, time.process_time() - cpu
    scoring = time.process_time()
    score_partitions(inventory, target_bytes=512 * MB, now_ms=NOW_MS, prices=Prices())
    return {
        "files": len(inventory.files),
        "manifests": manifests,
        "where": where,
        "groups": rows,
        "inventory_cpu_s": round(read_cpu, 3),
        "total_wall_s": round(total_wall, 3),
        "total_cpu_s": round(total_cpu, 3),
        "score_cpu_s": round(time.process_time() - scoring, 3),
        "memory_before_mb": round(before_mb),
        "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def measure_numbers(files: int) -> dict[str, Any]:
    """CPU seconds of planning an inventory of numbers, a thousandth of them partition-wide deletes."""
    live = [data_file(1 + n % 300, partition=(n % PARTITIONS,), sequence_number=1 + n % 9) for n in range(files)]
    deletes = [
        delete_file(
            DeleteKind.EQUALITY if n % 2 else DeleteKind.POSITION,
            partition=(n % PARTITIONS,),
            sequence_number=1 + n % 9,
        )
        for n in range(files // 1000)
    ]
    spec = {0: PartitionSpec(PartitionField(1, 1000, DayTransform(), "day"))}
    cpu = time.process_time()
    inventory = inventory_of(live, deletes, specs=spec)
    plan = plan_for(inventory, delete_file_threshold=3)
    seconds = time.process_time() - cpu
    return {
        "files": files,
        "deletes": len(deletes),
        "groups": len(plan.groups),
        "plan_cpu_s": round(seconds, 3),
        "memory_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def measure_java(folder: Path, files: int, manifests: int) -> dict[str, Any]:
    """Iceberg's planner on the same table, third of three plans, beside ours in the same process."""
    from tests.support.java import open_lake, start_session

    spark = start_session(folder / "scratch")
    try:
        lake = open_lake(spark, folder / "lake", "lake")
        table = make_big_table(folder / "lake", files, manifests)
        jvm: Any = spark._jvm
        seconds = 0.0
        for _ in range(3):
            java = lake.java_table("db.big")
            start = time.perf_counter()
            expressions = jvm.org.apache.iceberg.expressions.Expressions
            planner = jvm.org.apache.iceberg.actions.BinPackRewriteFilePlanner(
                java, expressions.alwaysTrue(), java.currentSnapshot().snapshotId(), False
            )
            planner.init(jvm.java.util.HashMap())
            groups = planner.plan().totalGroupCount()
            seconds = time.perf_counter() - start
        ours = 0.0
        for _ in range(3):
            start = time.perf_counter()
            plan = plan_compaction(read_inventory(table, "main"), resolve_options(), now_ms=NOW_MS, prices=Prices())
            ours = time.perf_counter() - start
        return {
            "files": files,
            "java_groups": groups,
            "our_groups": len(plan.rewrites),
            "java_warm_wall_s": round(seconds, 3),
            "our_warm_wall_s": round(ours, 3),
        }
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--java", action="store_true", help="also plan with Iceberg's own planner")
    parser.add_argument("--only", help="one measurement as JSON, for the processes that this script starts")
    arguments = parser.parse_args()
    if arguments.only:
        kind, *parts = json.loads(arguments.only)
        with tempfile.TemporaryDirectory(prefix="planning-") as folder:
            measures = {"table": measure_table, "java": measure_java}
            result = measure_numbers(*parts) if kind == "numbers" else measures[kind](Path(folder), *parts)
        print(json.dumps(result))
        return
    jobs: list[list[Any]] = [["table", 10_000, 100], ["table", 10_000, 100, "c1 > 5000"], ["table", 100_000, 100]]
    jobs += [["numbers", 10_000], ["numbers", 100_000], ["numbers", 1_000_000]]
    jobs += [["java", 10_000, 100]] if arguments.java else []
    for job in jobs:
        command = [sys.executable, "-m", "tests.benchmarks.planning", "--only", json.dumps(job)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        print(job[0], done.stdout.strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()

"""Compaction on a real cluster: executors are processes of their own, one of them dies, and attempts race."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.support.cluster import Cluster, standalone_cluster
from tests.support.handmade import add_position_deletes, data_paths, make_table
from tests.support.oracle import assert_readable, entries, plain
from tests.support.plain import PlainLake

ROOT = Path(__file__).parents[2]
PARTITIONS = 12
FILES = 5
ROWS = 12_000
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", IntegerType()), NestedField(3, "text", StringType())
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="part"))

# The driver of a user: a plain pip install, no Iceberg jar. It kills an executor when the first output is there.
DRIVER = """
import json, os, signal, sys, threading, time
from pathlib import Path
import psutil
from pyspark.sql import SparkSession
import iceberg_compact_sql
from iceberg_compact_sql import events
from iceberg_compact_sql.rewrite import spread

master, warehouse, conf, worker = sys.argv[1:]
builder = SparkSession.builder.master(master)
for key, value in json.loads(conf).items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spread.IN_PROCESS_BYTES = 0
iceberg_compact_sql.register(spark)
killed = []

def kill_an_executor():
    while not [path for path in written() if path not in before]:
        time.sleep(0.01)
    for child in psutil.Process(int(worker)).children():
        child.send_signal(signal.SIGKILL)
        killed.append(child.pid)

def written():
    return [os.path.join(home, name) for home, _, names in os.walk(warehouse) for name in names if "parquet" in name]

before = set(written())

def watch(point, facts):
    if point == "rewrite.start" and worker != "0":
        threading.Thread(target=kill_an_executor, daemon=True).start()

with events.listening(watch):
    [row] = spark.sql("CALL compact_table('plain.db.t')").collect()
print(json.dumps({"row": row.asDict(), "killed": bool(killed)}), flush=True)
spark.stop()
"""


def fragmented(lake: PlainLake) -> tuple[Table, pa.Table]:
    """Many partitions of small files, one with deletes; and the rows that are live."""
    table = make_table(lake.catalog, "db.t", SCHEMA, SPEC)
    total = PARTITIONS * FILES * ROWS
    random = np.random.default_rng(1)
    texts = pa.array([f"{value:016x}" for value in random.integers(0, 2**62, total)])
    ids = np.arange(total)
    whole = pa.table({"id": pa.array(ids), "part": pa.array((ids % PARTITIONS).astype("int32")), "text": texts})
    for number in range(FILES):
        table.append(whole.slice(number * PARTITIONS * ROWS, PARTITIONS * ROWS))
    victims = [path for path in data_paths(table) if "part=3/" in path]
    dead: list[int] = []
    for path in victims:
        dead += pq.read_table(plain(path), columns=["id"])["id"].to_pylist()[:100]
    add_position_deletes(table, {path: range(100) for path in victims}, scoped=False)
    keep = pa.array(~np.isin(ids, dead))
    return table, whole.filter(keep)


def live_rows(table: Table) -> pa.Table:
    live = entries(table)
    assert {entry["data_file"]["content"] for entry in live} == {0}
    parts = [pq.ParquetFile(plain(entry["data_file"]["file_path"])).read() for entry in live]
    return pa.concat_tables([part.select(["id", "part", "text"]).cast(parts[0].schema) for part in parts]).sort_by("id")


def drive(lake: PlainLake, cluster: Cluster, folder: Path, *, kill: bool, speculate: bool) -> dict[str, object]:
    conf = {
        **lake.conf,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
        "spark.local.dir": str(folder),
    }
    if speculate:
        # As eager as Spark lets it be: nearly every task gets a second attempt.
        conf |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "20ms",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.multiplier": "1.0001",
            "spark.speculation.minTaskRuntime": "20ms",
        }
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    worker = str(cluster.worker_pids[0]) if kill else "0"
    program = folder / "driver.py"
    program.write_text(DRIVER)
    done = subprocess.run(
        [sys.executable, str(program), cluster.url, str(lake.folder), json.dumps(conf), worker],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    answer: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    answer["told"] = done.stderr[-4000:]
    return answer


def files_on_disk(lake: PlainLake) -> set[str]:
    return {str(path) for path in lake.folder.rglob("*.parquet")}


def files_of_snapshots(table: Table) -> set[str]:
    metadata = table.refresh().metadata
    live = [entries(table, snapshot_id=snapshot.snapshot_id) for snapshot in metadata.snapshots]
    return {plain(entry["data_file"]["file_path"]) for snapshot in live for entry in snapshot}


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("kill", "speculate"), [(True, False), (False, True)], ids=["executor killed", "speculation"])
def test_lost_attempts_leave_no_double_rows_and_no_files(
    plain_lake: PlainLake, tmp_path: Path, kill: bool, speculate: bool
) -> None:
    table, expected = fragmented(plain_lake)
    home = tmp_path / "cluster"
    home.mkdir()
    with standalone_cluster(home) as cluster:
        answer = drive(plain_lake, cluster, home, kill=kill, speculate=speculate)
        assert all(psutil.pid_exists(pid) for pid in cluster.worker_pids)
    row = answer["row"]
    assert isinstance(row, dict)
    assert answer["killed"] is kill, answer["told"]
    assert (row["rewritten_data_files_count"], row["groups_count"]) == (PARTITIONS * FILES, PARTITIONS)
    assert (row["failed_data_files_count"], row["rows_count"]) == (0, expected.num_rows)
    assert len(entries(table)) == row["added_data_files_count"] == PARTITIONS
    found = live_rows(table)
    assert found.equals(expected.cast(found.schema))
    assert_readable(table)
    assert files_on_disk(plain_lake) == files_of_snapshots(table)

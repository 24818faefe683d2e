"""Blobs on Spark's shuffle: every value arrives once and in order, also when workers die; a cancelled run stops."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading
from pathlib import Path
from pyspark.sql import SparkSession
from iceberg_compact_sql import events
from iceberg_compact_sql.engine.blob_shuffle import shuffle_blobs
from iceberg_compact_sql.engine.shipping import SparkWorkers
from tests.support.shuffle_stages import BUCKETS, gather_numbers, scatter_numbers

folder = Path(sys.argv[1])
spark = (
    SparkSession.builder.master("local[2, 4]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", str(folder / "spark-warehouse"))
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
workers = SparkWorkers(spark)

def run(argument, items, buckets=BUCKETS, **options):
    return shuffle_blobs(
        workers, scatter_numbers, items, gather_numbers, buckets, argument=argument, text="test", **options
    )

items = [{"number": n, "values": list(range(100 * n, 100 * n + 100))} for n in range(5)]
wanted = {bucket: [v for v in reversed(range(500)) if v % BUCKETS == bucket] for bucket in range(BUCKETS)}

results = run({}, items)
assert {r.bucket: r.value for r in results} == wanted and not any(r.repeated for r in results)
assert len(results) == BUCKETS
few = run({}, items, tasks=2)
assert {r.bucket: r.value for r in few} == wanted

# Items that are too large for a closure travel as rows.
filler = [{"number": n, "values": [n], "filler": list(range(n, n + 300_000, 7))} for n in range(30)]
assert sorted(v for r in run({}, filler) for v in r.value) == list(range(30))

# Stopping early in one bucket does not lose the next one of the same task.
heads = run({"stop_early": True}, items, tasks=1)
assert {r.bucket: r.value for r in heads} == {bucket: values[:1] for bucket, values in wanted.items()}

assert run({}, []) == []
assert [r.value for r in run({}, [{"number": 0, "values": [8]}])] == [[8]]

for stage in ("kill_scatter", "kill_gather"):
    place = folder / stage
    place.mkdir()
    again = run({stage: str(place)}, items)
    assert (place / "died").exists() and {r.bucket: r.value for r in again} == wanted
    assert any(r.repeated for r in again) == (stage == "kill_gather")

try:
    run({"large_blob": True}, items)
    raise SystemExit("a blob above the limit was taken")
except Exception as error:
    assert "is above the limit" in str(error), error
assert spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch") == "10000"
print("shuffled")
"""


def test_every_blob_arrives_once_and_in_order(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=300,
    )
    assert "shuffled" in done.stdout, done.stderr[-4000:]

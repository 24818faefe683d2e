"""Tasks in Spark's Python workers: the same outcomes as in this process, and nothing left of lost attempts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys, threading, time
from pathlib import Path
from pyspark.sql import SparkSession
from tests.support.rewriting import Bench, local, rows
from iceberg_compact_sql.engine import run_groups as spread
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupRewritten
from dataclasses import replace
import pyarrow.parquet as pq

folder = Path(sys.argv[1])
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", str(folder / "spark-warehouse"))
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spread.IN_PROCESS_BYTES = 0

bench = Bench(folder)
for number in range(8):
    bench.add(rows(1000, first=1000 * number))
bench.delete(0, [7])
job = bench.job(threads=2)
whole = bench.group(job)
parts = [
    replace(whole, group_id=n, files=whole.files[2 * n : 2 * n + 2], deletes=whole.deletes[2 * n : 2 * n + 2])
    for n in range(4)
]
parts[2] = replace(parts[2], files=(replace(whole.files[4], path=whole.files[4].path + ".gone"), whole.files[5]))

def check(label, **options):
    outcomes = {o.group_id: o for o in spread.rewrite_groups(spark, job, parts, description="test", **options)}
    assert sorted(outcomes) == [0, 1, 2, 3], outcomes
    failed = outcomes.pop(2)
    assert isinstance(failed, GroupFailed) and ".gone" in failed.reason, failed
    kept = {local(f.path) for o in outcomes.values() for f in o.outputs}
    assert set(bench.written()) == kept, (bench.written(), kept)
    ids = sorted(i for path in kept for i in pq.read_table(path)["id"].to_pylist())
    assert ids == [i for i in range(8000) if i != 7 and not 4000 <= i < 6000]
    for path in kept:
        path.unlink()
    print(label, "ok", flush=True)

check("jobs of many groups")
check("a job a group", max_concurrent_groups=2)

# A job group of the caller reaches our jobs: cancelling it stops the run, and nothing stays.
spark.sparkContext.setJobGroup("mine", "caller")
slow = replace(job, copy="never")
outcomes = spread.rewrite_groups(spark, slow, parts[:2], description="test")
from iceberg_compact_sql import events
started = threading.Event()
def started_job(point, facts):
    if point == "rewrite.job":
        started.set()
def cancel():
    started.wait(60)
    for _ in range(400):
        if spark.sparkContext.statusTracker().getJobIdsForGroup("mine"):
            break
        time.sleep(0.01)
    spark.sparkContext.cancelJobGroup("mine")
with events.listening(started_job):
    thread = threading.Thread(target=cancel)
    thread.start()
    found = list(outcomes)
    thread.join()
assert len(found) == 2
kept = {local(f.path) for o in found if isinstance(o, GroupRewritten) for f in o.outputs}
assert set(bench.written()) == kept, (bench.written(), kept)
print("cancelled ok", flush=True)

# Closing the iterator cancels what runs.
outcomes = spread.rewrite_groups(spark, slow, parts, description="test", max_concurrent_groups=1)
first = next(outcomes)
outcomes.close()
kept |= {local(f.path) for f in first.outputs}
assert set(bench.written()) == kept, (bench.written(), kept)
print("closed ok", flush=True)

# A worker that cannot import the package gets it with the task.
from iceberg_compact_sql.engine.shipping import worker_function
import iceberg_compact_sql.engine.shipping as shipping
from iceberg_compact_sql.rewrite.slicing import cut_group
tasks = [shipping.packed(task) for task in cut_group(parts[1], job)]
inner = worker_function(shipping.packed(job), tasks, prefer_shipped=True)
def in_bare_worker(batches):
    import sys
    for name in [name for name in sys.modules if name.split(".")[0] == "iceberg_compact_sql"]:
        del sys.modules[name]
    for batch in inner(batches):
        import iceberg_compact_sql
        assert ".zip" in iceberg_compact_sql.__file__, iceberg_compact_sql.__file__
        yield batch
rows_back = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(in_bare_worker, shipping.RESULT_SCHEMA).collect()
results = [shipping.unpacked_result(bytes(row["payload"])) for row in rows_back]
assert [result.live_rows for result in results] == [2000], results
print("shipped ok", flush=True)
spark.stop()
"""


@pytest.mark.timeout(240)
def test_tasks_run_on_spark(tmp_path: Path) -> None:
    """In a process of its own: a plain session, without the Iceberg jar of the other tests."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable}
    folder = tmp_path / "table"
    folder.mkdir()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(folder)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    labels = [line.removesuffix(" ok") for line in done.stdout.splitlines() if line.endswith(" ok")]
    assert labels == ["jobs of many groups", "a job a group", "cancelled", "closed", "shipped"]

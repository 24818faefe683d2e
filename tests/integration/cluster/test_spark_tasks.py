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
from tests.support.rewriting import Bench, local, numbered_rows
from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.engine.runner import RewriteRun
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

def on_spark(job, groups, **options):
    run = RewriteRun(spark=spark, job=job, description="test", driver_bytes=0, **options)
    return rewrite_groups(run, groups)

bench = Bench(folder)
for number in range(8):
    bench.add(numbered_rows(1000, first=1000 * number))
bench.delete(0, [7])
job = bench.job(threads=2)
whole = bench.group(job)
parts = [
    replace(whole, group_id=n, files=whole.files[2 * n : 2 * n + 2], deletes=whole.deletes[2 * n : 2 * n + 2])
    for n in range(4)
]
parts[2] = replace(parts[2], files=(replace(whole.files[4], path=whole.files[4].path + ".gone"), whole.files[5]))

def check(label, **options):
    outcomes = {o.group_id: o for o in on_spark(job, parts, **options)}
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
outcomes = on_spark(slow, parts[:2])
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
outcomes = on_spark(slow, parts, max_concurrent_groups=1)
first = next(outcomes)
outcomes.close()
kept |= {local(f.path) for f in first.outputs}
assert set(bench.written()) == kept, (bench.written(), kept)
print("closed ok", flush=True)

# A worker that cannot import the package gets it with the task.
from iceberg_compact_sql.engine.shipping import packed, shipped, unpacked
from iceberg_compact_sql.engine.worker import RESULT_SCHEMA, TaskBatch, run_task_batch
from iceberg_compact_sql.rewrite.slicing import cut_group
tasks = tuple(packed(task) for task in cut_group(parts[1], job))
inner = shipped(run_task_batch, TaskBatch(packed(job), tasks), prefer_shipped=True)
def in_bare_worker(batches):
    import sys
    for name in [name for name in sys.modules if name.split(".")[0] == "iceberg_compact_sql"]:
        del sys.modules[name]
    for batch in inner(batches):
        import iceberg_compact_sql
        assert ".zip" in iceberg_compact_sql.__file__, iceberg_compact_sql.__file__
        yield batch
rows_back = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(in_bare_worker, RESULT_SCHEMA).collect()
results = [unpacked(bytes(row["payload"])) for row in rows_back]
assert [result.live_rows for result in results] == [2000], results
print("shipped ok", flush=True)

# An observer cancels a whole compaction from another thread, while a task reads. The worker is stopped at that moment,
# as one that waits for its store: the run ends without it, and what the worker does afterwards leaves no file.
import numpy as np
import psutil
import pyarrow as pa
from iceberg_compact_sql.actions.compact import compact
from iceberg_compact_sql.actions.compact_request import CompactRequest
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.doors.session import session_view
from iceberg_compact_sql.errors import RunCancelledError
from tests.support.plain import open_plain

with open_plain(folder / "plain") as lake:
    for key, value in {**lake.conf, "spark.iceberg_compact_sql.driver_bytes": "0"}.items():
        spark.conf.set(key, value)
    random = np.random.default_rng(1)
    table = lake.create("db.t", *[pa.table({"id": np.arange(200_000), "x": random.random(200_000)}) for _ in range(8)])
    before, inputs = table.metadata_location, {str(path) for path in lake.folder.rglob("*.parquet")}
    observer = events.Observer()
    stopped = []
    def reads(worker):
        try:
            return any(file.path in inputs for file in worker.open_files())
        except psutil.Error:
            return False
    def cancel_while_reading():
        while not stopped:
            for worker in psutil.Process().children(recursive=True):
                if reads(worker):
                    worker.suspend()
                    stopped.append(worker)
            time.sleep(0.002)
        observer.cancel()
    thread = threading.Thread(target=cancel_while_reading, daemon=True)
    thread.start()
    try:
        done = compact(
            CompactRequest(table="plain.db.t", copy="never", min_input_files=2),
            Context(session_view(spark), spark=spark, observer=observer),
        )
        raise AssertionError(f"not cancelled: {done}")
    except RunCancelledError as error:
        assert "Nothing was committed" in str(error), error
    thread.join()
    assert {str(path) for path in lake.folder.rglob("*.parquet")} == inputs
    # Spark kills the worker of a cancelled task some seconds later, also one that is stopped.
    _, alive = psutil.wait_procs(stopped, timeout=30)
    assert not [worker for worker in alive if worker.status() != psutil.STATUS_ZOMBIE], alive
    assert {str(path) for path in lake.folder.rglob("*.parquet")} == inputs
    assert lake.load("db.t").metadata_location == before
print("cancelled by its observer ok", flush=True)

# An observer cancels a search for orphans while its Spark job lists a folder: the job fails at once.
from iceberg_compact_sql.engine.shipping import SparkWorkers
workers, observer = SparkWorkers(spark), events.Observer()
def wait_for_ever(argument, batches):
    import time
    for batch in batches:
        open(argument, "w").close()
        time.sleep(600)
        yield batch
def cancel_while_waiting():
    while not (folder / "waiting").exists():
        time.sleep(0.01)
    observer.cancel()
thread = threading.Thread(target=cancel_while_waiting, daemon=True)
thread.start()
ended = None
try:
    with events.observed(observer):
        try:
            with workers.jobs("waiting"):
                frame = spark.range(1).mapInArrow(
                    lambda batches: wait_for_ever(str(folder / "waiting"), batches), "id bigint"
                )
                frame.collect()
        except Exception as error:
            raise workers.failure("listing", error, "Nothing was deleted.") from error
except events.RunCancelled as cancelled:
    ended = cancelled
assert ended is not None
print("jobs end with their run ok", flush=True)
spark.stop()
"""


@pytest.mark.timeout(240)
def test_tasks_run_on_spark(tmp_path: Path) -> None:
    """In a process of its own: a plain session, without the Iceberg jar of the other tests."""
    root = Path(__file__).parents[3]
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
    assert labels == [
        "jobs of many groups",
        "a job a group",
        "cancelled",
        "closed",
        "shipped",
        "cancelled by its observer",
        "jobs end with their run",
    ]

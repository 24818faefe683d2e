"""Groups sorted on Spark's shuffle: the same rows in order, even files, failures and cancelled runs leave nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import itertools, sys, threading, time
from dataclasses import replace
from pathlib import Path
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, StringType
from pyspark.sql import SparkSession
from iceberg_compact_sql import events
from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupRewritten
from tests.support.rewriting import KB, MB, Bench, local, numbered_rows

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

def new_bench(name, schema=None):
    (folder / name).mkdir()
    return Bench(folder / name) if schema is None else Bench(folder / name, schema)

def on_shuffle(bench, job, partition=(), strategy="sort"):
    run = RewriteRun(spark=spark, job=job, description="test", driver_bytes=0, shuffle_bytes=0)
    return rewrite_groups(run, [bench.group(job, partition=partition)], strategy)

def rows_of(outcome):
    assert isinstance(outcome, GroupRewritten), outcome
    return [pq.ParquetFile(local(output.path)).read().to_pylist() for output in outcome.outputs]

def even(sizes):
    assert len(sizes) > 2 and max(sizes) <= 1.1 * min(sizes), sizes

# Deletes, nulls, a descending key: the rows that are live, in order over all files.
by_name = ClusterOrder("sort", (OrderField(2, nulls_first=False), OrderField(1, descending=True)), sort_order_id=3)
bench = new_bench("sorted")
whole = numbered_rows(120_000).take(pa.array(np.random.default_rng(5).permutation(120_000)))
for number in range(6):
    bench.add(whole.slice(number * 20_000, 20_000), row_group_size=4_000)
bench.delete(1, range(100, 300))
bench.delete(3, range(20_000))
gone = {*range(20_100, 20_300), *range(60_000, 80_000)}
expected = sorted(
    (row for position, row in enumerate(whole.to_pylist()) if position not in gone),
    key=lambda row: (row["name"] is None, row["name"] or "", -row["id"]),
)
job = bench.job(order=by_name, target_bytes=sum(file.size_bytes for file in bench.files) // 9, memory_bytes=8 * MB)
[outcome] = on_shuffle(bench, job)
files = rows_of(outcome)
assert [row for file in files for row in file] == expected
even([len(file) for file in files])
assert {output.sort_order_id for output in outcome.outputs} == {3}
assert outcome.live_rows == len(expected)
assert set(bench.written()) == {local(output.path) for output in outcome.outputs}
print("sorted ok", flush=True)

# A missing file fails the group once, by name, and nothing is left.
broken = replace(bench, files=[*bench.files[:5], replace(bench.files[5], path=bench.files[5].path + ".gone")])
before = set(bench.written())
[failed] = on_shuffle(broken, job)
assert isinstance(failed, GroupFailed) and ".gone" in failed.reason, failed
assert set(bench.written()) == before
local(bench.files[2].path).rename(folder / "away")
local(bench.files[2].path).write_bytes(b"PAR1 not a file PAR1")
[failed] = on_shuffle(bench, job)
assert isinstance(failed, GroupFailed) and "input-0002" in failed.reason, failed
assert set(bench.written()) == before
(folder / "away").rename(local(bench.files[2].path))
print("failed ok", flush=True)

# A row that changes on the way fails the group.
from iceberg_compact_sql.engine import sort_shuffle
real = sort_shuffle._result
def one_bit_off(sort, task, results):
    from iceberg_compact_sql.rewrite.clustering.bucket_files import BucketFiles
    changed = [
        replace(r, value=replace(r.value, digest=r.value.digest ^ 1)) if isinstance(r.value, BucketFiles) else r
        for r in results
    ]
    return real(sort, task, changed)
sort_shuffle._result = one_bit_off
[failed] = on_shuffle(bench, job)
assert isinstance(failed, GroupFailed) and "the sums of their digests differ" in failed.reason, failed
sort_shuffle._result = real
assert set(bench.written()) == before
print("proof ok", flush=True)

# Skew.
schema = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "key", LongType()), NestedField(3, "payload", FixedType(30))
)
rows = 60_000
random = np.random.default_rng(2)
skewed = {
    "often": pa.array(np.where(random.random(rows) < 0.4, 7, np.arange(rows) % 997)),
    "equal": pa.array(np.zeros(rows, np.int64)),
    "nulls": pa.array(np.arange(rows) % 997, mask=np.arange(rows) % 10 != 0),
}
for name, keys in skewed.items():
    bench = new_bench(name, schema)
    columns = [
        pa.array(random.permutation(rows)),
        keys.take(pa.array(random.permutation(rows))),
        pa.array([random.bytes(30) for _ in range(rows)], pa.binary(30)),
    ]
    table = pa.Table.from_arrays(columns, schema=arrow_schema(schema))
    for number in range(5):
        bench.add(table.slice(number * 12_000, 12_000))
    strategy = {"often": "sort", "equal": "sort", "nulls": "hilbert"}[name]
    fields = (OrderField(2),) if strategy == "sort" else (OrderField(2), OrderField(1))
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(order=ClusterOrder(strategy, fields), target_bytes=total_bytes // 5, memory_bytes=4 * MB)
    [outcome] = on_shuffle(bench, job, strategy=strategy)
    files = rows_of(outcome)
    even([output.size_bytes for output in outcome.outputs])
    assert sorted(row["id"] for file in files for row in file) == list(range(rows))
    if strategy == "sort":
        keys_of = [[row["key"] for row in file] for file in files]
        assert all(keys == sorted(keys) for keys in keys_of)
        assert all(left[-1] <= right[0] for left, right in itertools.pairwise(keys_of))
print("skew ok", flush=True)

# A group of an old spec is spread over new partitions: a large one over several files, small ones in one each.
new = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
bench = replace(new_bench("spread"), specs=(UNPARTITIONED_PARTITION_SPEC, new))
names = np.where(random.random(60_000) < 0.7, "large", np.char.add("small-", (np.arange(60_000) % 9).astype(str)))
table = numbered_rows(60_000).set_column(1, numbered_rows(1).schema.field(1), pa.array(names))
for number in range(4):
    bench.add(table.slice(number * 15_000, 15_000))
total_bytes = sum(file.size_bytes for file in bench.files)
job = bench.job(
    order=ClusterOrder("sort", (OrderField(1, descending=True),)), target_bytes=total_bytes // 6, memory_bytes=4 * MB
)
[outcome] = on_shuffle(bench, job, partition=None)
files = rows_of(outcome)
assert {output.partition for output in outcome.outputs} == {(name,) for name in set(names.tolist())}
large = [file for output, file in zip(outcome.outputs, files) if output.partition == ("large",)]
assert len(files) == len(large) + 9 and len(large) > 1, [len(file) for file in files]
for output, file in zip(outcome.outputs, files):
    assert {(row["name"],) for row in file} == {output.partition}
    assert [row["id"] for row in file] == sorted((row["id"] for row in file), reverse=True)
assert [row["id"] for file in large for row in file] == sorted(np.flatnonzero(names == "large").tolist(), reverse=True)
assert sorted(row["id"] for file in files for row in file) == list(range(60_000))
print("spread ok", flush=True)

# A row larger than a blob of the shuffle, and a group without live rows.
text = Schema(NestedField(1, "id", LongType()), NestedField(2, "text", StringType()))
bench = new_bench("wide", text)
wide = [random.bytes(18 * MB).hex() if number == 2 else str(number) for number in range(4)]
bench.add(pa.Table.from_arrays([pa.array(range(4)), pa.array(wide)], schema=arrow_schema(text)))
[outcome] = on_shuffle(bench, bench.job(order=ClusterOrder("sort", (OrderField(1, descending=True),))))
assert [row["text"] for file in rows_of(outcome) for row in file] == wide[::-1]
bench.delete(0, range(4))
[outcome] = on_shuffle(bench, bench.job(order=ClusterOrder("sort", (OrderField(1),))))
assert (outcome.outputs, outcome.live_rows) == ((), 0), outcome
print("wide and empty ok", flush=True)

# Closing the iterator while the shuffle runs cancels its jobs and leaves nothing.
bench = new_bench("cancelled")
for number in range(4):
    bench.add(numbered_rows(50_000, first=50_000 * number))
observer = events.Observer()
def cancel(point, facts):
    if point == "rewrite.job":
        threading.Timer(0.5, observer.cancel).start()
stopped = None
with events.observed(observer), events.listening(cancel):
    try:
        list(on_shuffle(bench, bench.job(order=by_name, target_bytes=100 * KB, memory_bytes=MB)))
    except events.RunCancelled as error:
        stopped = error
assert stopped is not None
assert bench.written() == []
print("cancelled ok", flush=True)
spark.stop()
"""


@pytest.mark.timeout(240)
def test_groups_are_sorted_on_the_shuffle(tmp_path: Path) -> None:
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
    assert labels == ["sorted", "failed", "proof", "skew", "spread", "wide and empty", "cancelled"]

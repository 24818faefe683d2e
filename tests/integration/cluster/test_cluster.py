"""Procedures on a real cluster: executors are processes of their own, one of them dies, and attempts race."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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

from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from tests.support.cluster import Cluster, executor_python, running_driver, standalone_cluster, task_ends
from tests.support.handmade import add_position_deletes, data_paths, make_table
from tests.support.oracle import assert_readable, entries, plain
from tests.support.plain import PlainLake
from tests.support.reclaim import needed, on_disk

# More outputs than the driver makes by itself. The last one is much more work than the others: when they are done, an
# executor is idle, and Spark has it try the last one too if it may.
PARTITIONS = 36
FILES = 5
ROWS = 1_000
LARGE = PARTITIONS - 1
LARGE_ROWS = 400_000
# Small row groups: the large output is open and half written for most of its task.
CALL = (
    "CALL compact_table('plain.db.t', copy => 'never', options => map('write.parquet.row-group-size-bytes', '1000000'))"
)
CALL_AGAIN = CALL.replace("copy => 'never'", "copy => 'never', rewrite_all => true")
ON_CLUSTER = {"spark.iceberg_compact_sql.driver_files": "0"}
ORPHANS = (
    "data/part=3/left.parquet",
    "data/part=7/a b%20c+d.parquet",
    "data/left behind/deep/er.parquet",
    "metadata/left.avro",
)
SPARED = ("data/part=5/young.parquet", "data/_running/task.parquet")
CLEAN = "CALL remove_orphans('plain.db.t', dry_run => {})"
MISSING_CALLS = {"compact_table": CALL, "remove_orphans": CLEAN.format("false")}
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", IntegerType()), NestedField(3, "text", StringType())
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="part"))
# As eager as Spark lets it be: whatever runs longer than the others gets a second attempt.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "20ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.0001",
    "spark.speculation.minTaskRuntime": "20ms",
    "spark.speculation.efficiency.enabled": "false",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def fragmented(lake: PlainLake) -> tuple[Table, pa.Table]:
    """Many partitions of small files, one large and one with deletes; and the rows that are live."""
    table = make_table(lake.catalog, "db.t", SCHEMA, SPEC)
    parts = np.concatenate([np.repeat(np.arange(PARTITIONS), ROWS), np.repeat(LARGE, LARGE_ROWS)]).astype("int32")
    random = np.random.default_rng(1)
    appended = []
    for number in range(FILES):
        texts = pa.array([f"{value:016x}" for value in random.integers(0, 2**62, len(parts))])
        ids = pa.array(np.arange(len(parts)) + number * len(parts))
        appended.append(pa.table({"id": ids, "part": pa.array(parts), "text": texts}))
        table.append(appended[-1])
    victims = [path for path in data_paths(table) if "part=3/" in path]
    dead: list[int] = []
    for path in victims:
        dead += pq.read_table(plain(path), columns=["id"])["id"].to_pylist()[:100]
    add_position_deletes(table, {path: range(100) for path in victims}, scoped=False)
    whole = pa.concat_tables(appended)
    return table, whole.filter(pa.array(~np.isin(whole["id"].to_numpy(), dead)))


def live_rows(table: Table) -> pa.Table:
    live = entries(table)
    assert {entry["data_file"]["content"] for entry in live} == {0}
    parts = [pq.ParquetFile(plain(entry["data_file"]["file_path"])).read() for entry in live]
    return pa.concat_tables([part.select(["id", "part", "text"]).cast(parts[0].schema) for part in parts]).sort_by("id")


def files_on_disk(lake: PlainLake) -> set[str]:
    return {str(path) for path in lake.folder.rglob("*.parquet")}


def files_of_snapshots(table: Table) -> set[str]:
    metadata = table.refresh().metadata
    live = [entries(table, snapshot_id=snapshot.snapshot_id) for snapshot in metadata.snapshots]
    return {plain(entry["data_file"]["file_path"]) for snapshot in live for entry in snapshot}


class Killer:
    """Kills, once, the executor that writes the large output, while it does so."""

    def __init__(self, cluster: Cluster, inputs: set[str]) -> None:
        self._cluster = cluster
        self._inputs = inputs
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.half_written: set[str] = set()

    def _watch(self) -> None:
        while not self.half_written and not self._ended.is_set():
            for executor in self._cluster.executors():
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._kill_if_writing(executor)
            time.sleep(0.005)

    def _kill_if_writing(self, executor: psutil.Process) -> None:
        if not self._outputs(executor):
            return
        # Stopped, it can finish no task any more: what is open now belongs to one that must run again.
        executor.suspend()
        self.half_written = self._outputs(executor)
        executor.send_signal(signal.SIGKILL if self.half_written else signal.SIGCONT)

    def _outputs(self, executor: psutil.Process) -> set[str]:
        found = set()
        for worker in executor.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                found |= {file.path for file in worker.open_files() if f"part={LARGE}/" in file.path}
        return found - self._inputs

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()


def assert_compacted(lake: PlainLake, table: Table, expected: pa.Table, answer: dict[str, Any]) -> None:
    """Every row once, as one file a partition, and no file that nobody knows."""
    assert "error" not in answer, answer
    [row] = answer["rows"]
    assert (row["rewritten_data_files_count"], row["groups_count"]) == (PARTITIONS * FILES, PARTITIONS)
    assert (row["failed_data_files_count"], row["rows_count"]) == (0, expected.num_rows)
    table.refresh()
    assert len(entries(table)) == row["added_data_files_count"] == PARTITIONS
    found = live_rows(table)
    assert found.equals(expected.cast(found.schema))
    assert_readable(table)
    assert files_on_disk(lake) == files_of_snapshots(table)


def test_a_killed_executors_tasks_run_again(plain_lake: PlainLake, tmp_path: Path, cluster: Cluster) -> None:
    table, expected = fragmented(plain_lake)
    python = executor_python(tmp_path / "executor")
    with running_driver(cluster, tmp_path / "driver", plain_lake.conf, python) as driver:
        # Our code reaches the executors with the tasks, and in no other way.
        assert driver.executors_find == [["pyarrow", "pyiceberg"]]
        with Killer(cluster, files_on_disk(plain_lake)) as killer:
            answer = driver.call(CALL)
    assert killer.half_written
    attempts = task_ends(tmp_path / "driver", "compact_table")
    lost = [end for end in attempts if end["Task End Reason"]["Reason"] == "ExecutorLostFailure"]
    assert lost
    for end in lost:
        again = [other for other in attempts if _work(other) == _work(end) and other["Task Info"]["Attempt"] > 0]
        assert [other["Task End Reason"]["Reason"] for other in again] == ["Success"]
    assert_compacted(plain_lake, table, expected, answer)


def test_speculative_attempts_leave_no_double_rows(plain_lake: PlainLake, tmp_path: Path, cluster: Cluster) -> None:
    table, expected = fragmented(plain_lake)
    python = executor_python(tmp_path / "executor")
    with running_driver(cluster, tmp_path / "driver", plain_lake.conf | SPECULATION, python) as driver:
        answer = driver.call(CALL)
        # A second attempt needs an idle executor at the right moment: on a busy machine one chance is not enough.
        for _ in range(2):
            assert "error" not in driver.call(CALL_AGAIN)
    attempts = task_ends(tmp_path / "driver", "compact_table")
    raced = {_work(end) for end in attempts if end["Task Info"]["Speculative"]}
    assert raced
    for work in raced:
        reasons = [end["Task End Reason"]["Reason"] for end in attempts if _work(end) == work]
        assert len(reasons) > 1
        assert reasons.count("Success") == 1
    assert_compacted(plain_lake, table, expected, answer)


def test_remove_orphans_ships_its_code_to_executors(plain_lake: PlainLake, tmp_path: Path, cluster: Cluster) -> None:
    table = make_table(plain_lake.catalog, "db.t", SCHEMA, SPEC)
    for number in range(3):
        parts = pa.array(range(10), pa.int32())
        table.append(pa.table({"id": pa.array(range(10)), "part": parts, "text": [str(number)] * 10}))
    add_position_deletes(table, {data_paths(table)[0]: [0]}, scoped=False)
    home = Path(plain(table.location()))
    leave_files(home)
    live = needed(table)
    with running_driver(
        cluster, tmp_path / "driver", plain_lake.conf | ON_CLUSTER, executor_python(tmp_path / "executor")
    ) as driver:
        assert driver.executors_find == [["pyarrow", "pyiceberg"]]
        planned = driver.call(CLEAN.format("true"))
        assert all((home / name).exists() for name in ORPHANS)
        removed = driver.call(CLEAN.format("false"))
        again = driver.call(CLEAN.format("true"))
    expected = sorted(str(home / name) for name in ORPHANS)
    for answer, deleted in ((planned, False), (removed, True)):
        assert "error" not in answer, answer
        assert [(plain(row["orphan_file_location"]), row["deleted"]) for row in answer["rows"]] == [
            (path, deleted) for path in expected
        ]
    assert again == {"rows": []}
    ran = task_ends(tmp_path / "driver", "remove_orphans")
    assert {end["Task End Reason"]["Reason"] for end in ran} == {"Success"}
    assert len({end["Task Info"]["Executor ID"] for end in ran}) == len(cluster.worker_pids)
    assert not any((home / name).exists() for name in ORPHANS)
    assert all((home / name).exists() for name in SPARED)
    assert live <= on_disk(table)
    assert_readable(table.refresh())


def test_table_functions_ship_their_code_to_executors(plain_lake: PlainLake, tmp_path: Path, cluster: Cluster) -> None:
    """A hadoop catalog: a worker opens it with the packages that executors are asked to have, and no other."""
    hadoop = HadoopCatalog("folder", warehouse=str(tmp_path / "warehouse"))
    hadoop.create_namespace("db")
    table = hadoop.create_table("db.t", SCHEMA)
    for number in range(FILES):
        ids = pa.array([number], pa.int64())
        table.append(pa.table({"id": ids, "part": pa.array([1], pa.int32()), "text": ["x"]}))
    leave_files(Path(plain(table.location())))
    plain_lake.create("db.in_sqlite", pa.table({"id": pa.array([1], pa.int64())}))
    before = on_disk(table)
    conf = plain_lake.conf | {
        "spark.sql.catalog.folder": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.folder.type": "hadoop",
        "spark.sql.catalog.folder.warehouse": str(tmp_path / "warehouse"),
    }
    with running_driver(cluster, tmp_path / "driver", conf, executor_python(tmp_path / "executor")) as driver:
        assert driver.executors_find == [["pyarrow", "pyiceberg"]]
        for name in ("compact_table", "expire_snapshots", "remove_orphans"):
            called = driver.call(f"CALL {name}('folder.db.t', dry_run => true)")
            assert driver.call(f"SELECT * FROM {name}('folder.db.t')") == called
            assert called["rows"] or name == "expire_snapshots", called
        # On every executor, with an argument that is known only when the function runs.
        each = "SELECT s.data_files FROM range(0, 4, 1, 4) n, LATERAL score_partitions(concat('folder.db.', 't')) s"
        assert driver.call(each) == {"rows": [{"data_files": FILES}] * 4}
        wrong = driver.call("SELECT * FROM compact_table('folder.db.t', targt => 1)")
        not_shipped = driver.call("SELECT * FROM compact_table('plain.db.in_sqlite')")
    assert wrong == {"error": "compact_table: unknown argument 'targt'. Did you mean 'target'?"}
    assert not_shipped == {
        "error": "compact_table: the Python package 'sqlalchemy' is missing on the Spark workers. "
        "Install iceberg-compact-sql in the Python that spark.pyspark.python or PYSPARK_PYTHON names there."
    }
    assert on_disk(table) == before


def leave_files(home: Path) -> None:
    """Files that no metadata names: old ones, one that was just written, and one of a running job."""
    for name in (*ORPHANS, *SPARED):
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"orphan")
    old = time.time() - 4 * 86_400
    for path in home.rglob("*"):
        if path.is_file() and path.name != "young.parquet":
            os.utime(path, (old, old))


def test_executors_without_pyiceberg(plain_lake: PlainLake, tmp_path: Path, cluster: Cluster) -> None:
    table, _ = fragmented(plain_lake)
    leave_files(Path(plain(table.location())))
    before, files = table.current_snapshot(), files_on_disk(plain_lake)
    python = executor_python(tmp_path / "executor", without=["pyiceberg"])
    with running_driver(cluster, tmp_path / "driver", plain_lake.conf | ON_CLUSTER, python) as driver:
        assert driver.executors_find == [["pyarrow"]]
        answers = {name: driver.call(sql) for name, sql in MISSING_CALLS.items()}
        selected = driver.call("SELECT * FROM compact_table('plain.db.t')")
    assert selected == {"error": answers["compact_table"]["error"].removeprefix("compact_table: ")}
    for name, answer in answers.items():
        assert answer == {
            "error": f"{name}: the Python package 'pyiceberg' is missing on the Spark workers. "
            "Install pyiceberg[pyarrow,pyiceberg-core] and numpy in the Python environment of the executors."
        }
    assert table.refresh().current_snapshot() == before
    assert files_on_disk(plain_lake) == files


def _work(end: dict[str, Any]) -> tuple[int, int]:
    """What a task is about, whichever attempt it is."""
    return end["Stage ID"], end["Task Info"]["Index"]

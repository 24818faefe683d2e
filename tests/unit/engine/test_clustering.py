"""The strategies that order rows, from files to files: order, even sizes, the same rows, bounded memory, proof."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, LongType, NestedField, StringType

from iceberg_compact_sql.engine.run_groups import rewrite_groups
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, Layout, OrderField
from iceberg_compact_sql.rewrite.clustering import batches, layout
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.task import GroupFailed, GroupOutcome, GroupRewritten, RewriteJob
from tests.support.rewriting import KB, MB, Bench, in_this_process, local, numbered_rows

BY_NAME = ClusterOrder("sort", (OrderField(2, nulls_first=False), OrderField(1, descending=True)), sort_order_id=3)


def filled(folder: Path, files: int = 6, rows: int = 4000) -> Bench:
    bench = Bench(folder)
    shuffled = np.random.default_rng(5).permutation(files * rows)
    whole = numbered_rows(files * rows).take(pa.array(shuffled))
    for number in range(files):
        bench.add(whole.slice(number * rows, rows), row_group_size=1000)
    return bench


def run_one(
    bench: Bench, job: RewriteJob, partition: tuple[Any, ...] | None = (), strategy: str = "sort"
) -> GroupOutcome:
    (outcome,) = rewrite_groups(in_this_process(job), [bench.group(job, partition=partition)], strategy)
    return outcome


def written(outcome: GroupOutcome) -> list[list[dict[str, Any]]]:
    assert isinstance(outcome, GroupRewritten), outcome
    return [pq.ParquetFile(local(output.path)).read().to_pylist() for output in outcome.outputs]


def by_name(row: dict[str, Any]) -> tuple[bool, str, int]:
    return row["name"] is None, row["name"] or "", -row["id"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("memory_bytes", [512 * MB, 400 * KB], ids=["in memory", "spilled"])
def test_files_are_sorted_even_and_hold_the_rows_that_were_there(
    tmp_path: Path, memory_bytes: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spilled: list[int] = []

    class Watched(batches.RangeStore):
        def __exit__(self, *error: Any) -> None:
            spilled.append(self.spilled_bytes)
            super().__exit__(*error)

    monkeypatch.setattr("iceberg_compact_sql.rewrite.clustering.sorted_task.RangeStore", Watched)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    bench = filled(tmp_path)
    bench.delete(1, range(100, 300))
    bench.delete(3, range(4000))
    expected = [row for f in bench.files for row in pq.ParquetFile(local(f.path)).read().to_pylist()]
    gone = {*range(4100, 4300), *range(12_000, 16_000)}
    expected = [row for position, row in enumerate(expected) if position not in gone]
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(order=BY_NAME, target_bytes=total_bytes // 8, memory_bytes=memory_bytes, threads=threads)
    outcome = run_one(bench, job)
    files = written(outcome)
    assert isinstance(outcome, GroupRewritten)
    rows = [row for file in files for row in file]
    assert rows == sorted(expected, key=by_name)
    assert len(files) > 2
    sizes = [len(file) for file in files]
    assert max(sizes) - min(sizes) <= 0.1 * max(sizes), sizes
    assert {output.sort_order_id for output in outcome.outputs} == {3}
    assert outcome.live_rows == len(expected)
    assert bool(spilled[0]) == (memory_bytes < MB)
    assert not list((tmp_path / "spill").iterdir())


def _often_seven(rows: int) -> pa.Array:
    return pa.array(np.where(np.random.default_rng(1).random(rows) < 0.4, 7, np.arange(rows) % 997))


def _equal(rows: int) -> pa.Array:
    return pa.array(np.zeros(rows, np.int64))


def _mostly_null(rows: int) -> pa.Array:
    return pa.array(np.arange(rows) % 997, mask=np.arange(rows) % 10 != 0)


@pytest.mark.parametrize("keys", [_often_seven, _equal, _mostly_null])
@pytest.mark.parametrize("memory_bytes", [512 * MB, MB], ids=["in memory", "spilled"])
@pytest.mark.parametrize("strategy", ["sort", "zorder", "hilbert"])
def test_skewed_keys_make_even_files(
    tmp_path: Path, keys: Callable[[int], pa.Array], memory_bytes: int, strategy: Layout
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "key", LongType()), NestedField(3, "payload", FixedType(30))
    )
    bench = Bench(tmp_path, schema)
    rows = 60_000
    random = np.random.default_rng(2)
    columns = [
        pa.array(random.permutation(rows)),
        keys(rows).take(pa.array(random.permutation(rows))),
        pa.array([random.bytes(30) for _ in range(rows)], pa.binary(30)),
    ]
    whole = pa.Table.from_arrays(columns, schema=arrow_schema(schema))
    for number in range(5):
        bench.add(whole.slice(number * 12_000, 12_000))
    fields = (OrderField(2),) if strategy == "sort" else (OrderField(2), OrderField(1))
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(order=ClusterOrder(strategy, fields), target_bytes=total_bytes // 5, memory_bytes=memory_bytes)
    outcome = run_one(bench, job, strategy=strategy)
    files = written(outcome)
    assert isinstance(outcome, GroupRewritten)
    sizes = [output.size_bytes for output in outcome.outputs]
    assert len(sizes) > 2
    assert max(sizes) <= 1.1 * min(sizes), sizes
    assert sorted(row["id"] for file in files for row in file) == list(range(rows))
    if strategy == "sort":
        ends = [(file[0]["key"], file[-1]["key"]) for file in files]
        for (_, before), (after, _) in itertools.pairwise(ends):
            assert before is None or before <= after


def test_a_group_of_an_old_spec_is_sorted_in_each_new_partition(tmp_path: Path) -> None:
    new = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"), spec_id=1)
    bench = filled(tmp_path)
    bench = replace(bench, specs=(UNPARTITIONED_PARTITION_SPEC, new))
    job = bench.job(order=ClusterOrder("sort", (OrderField(1, descending=True),)), memory_bytes=400 * KB)
    outcome = run_one(bench, job, partition=None)
    files = written(outcome)
    assert isinstance(outcome, GroupRewritten)
    assert len({output.partition for output in outcome.outputs}) == len(outcome.outputs) == 98
    for output, rows in zip(outcome.outputs, files, strict=True):
        assert {(row["name"],) for row in rows} == {output.partition}
        ids = [row["id"] for row in rows]
        assert ids == sorted(ids, reverse=True)
    assert sorted(row["id"] for rows in files for row in rows) == list(range(24_000))


def test_a_row_that_changes_between_reading_and_writing_fails_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = layout.RowOrder.sorted

    def doubling(self: layout.RowOrder, batch: pa.RecordBatch, found: layout.Layout | None) -> pa.RecordBatch:
        rows = real(self, batch, found)
        return rows.take(pa.array([0, *range(rows.num_rows - 1)]))

    monkeypatch.setattr(layout.RowOrder, "sorted", doubling)
    bench = filled(tmp_path, 2)
    outcome = run_one(bench, bench.job(order=BY_NAME))
    assert isinstance(outcome, GroupFailed)
    assert "the sums of their digests differ" in outcome.reason
    assert bench.written() == []


def test_a_lost_row_fails_the_group_without_checksums_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = layout.RowOrder.sorted
    monkeypatch.setattr(layout.RowOrder, "sorted", lambda *args: real(*args).slice(1))
    bench = filled(tmp_path, 2)
    outcome = run_one(bench, bench.job(order=BY_NAME, verify="rows"))
    assert isinstance(outcome, GroupFailed)
    assert "8000 live rows were read, 7999 were written" in outcome.reason
    assert bench.written() == []


def test_a_file_that_cannot_be_read_fails_its_group_and_leaves_nothing(tmp_path: Path) -> None:
    bench = filled(tmp_path)
    local(bench.files[4].path).write_bytes(b"PAR1 not a file PAR1")
    outcome = run_one(bench, bench.job(order=BY_NAME, threads=2, memory_bytes=400 * KB))
    assert isinstance(outcome, GroupFailed)
    assert "input-0004" in outcome.reason
    assert bench.written() == []


def test_a_group_without_live_rows_has_no_outputs(tmp_path: Path) -> None:
    bench = filled(tmp_path, 2)
    for number in range(2):
        bench.delete(number, range(4000))
    for memory_bytes in (512 * MB, 100 * KB):
        outcome = run_one(bench, bench.job(order=BY_NAME, memory_bytes=memory_bytes))
        assert isinstance(outcome, GroupRewritten)
        assert (outcome.outputs, outcome.live_rows) == ((), 0)


def test_a_strategy_without_an_order_is_refused(tmp_path: Path) -> None:
    bench = filled(tmp_path, 2)
    with pytest.raises(InvalidArgumentError, match="needs an order of rows"):
        run_one(bench, bench.job())


def test_text_columns_of_files_with_and_without_dictionaries(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
    bench = Bench(tmp_path, schema)
    expected = []
    for number in range(4):
        rows = numbered_rows(3000, first=3000 * number, schema=schema)
        expected += rows.to_pylist()
        bench.add(rows, use_dictionary=number % 2 == 0)
    for memory_bytes in (512 * MB, 200 * KB):
        files = written(run_one(bench, bench.job(order=BY_NAME, memory_bytes=memory_bytes)))
        assert [row for file in files for row in file] == sorted(expected, key=by_name)

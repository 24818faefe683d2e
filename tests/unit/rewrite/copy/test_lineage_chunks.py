"""Row groups that are copied or spliced in format version 3: every row keeps its id and its last change."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql.events import listening
from iceberg_compact_sql.rewrite.copy import splice
from iceberg_compact_sql.rewrite.scan.lineage import LAST_UPDATED, ROW_ID, with_lineage
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteResult
from iceberg_compact_sql.table.model import LiveFile
from tests.support.rewriting import SCHEMA, Bench, local, numbered_rows, outputs

Lineage = tuple[int | None, int | None]
COPY, SPLICE = 1, 2**40


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splice, "MIN_PAGE_ROWS", 1)


class LineageBench(Bench):
    """Input files with lineage, and what a reader must return for each row: an oracle that knows only the rules."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, schema=with_lineage(SCHEMA))
        self.expected: dict[int, Lineage] = {}
        self.rows = 0

    def add_rows(
        self,
        count: int,
        *,
        first_row_id: int | None = 0,
        sequence_number: int = 1,
        row_ids: list[int | None] | None = None,
        last_updated: list[int | None] | None = None,
        **options: Any,
    ) -> None:
        """Add a file; a column of lineage that is None is not stored."""
        table = numbered_rows(count, first=self.rows, schema=SCHEMA)
        for column, values in ((ROW_ID, row_ids), (LAST_UPDATED, last_updated)):
            if values is not None:
                metadata = {b"PARQUET:field_id": str(column.field_id).encode()}
                table = table.append_column(
                    pa.field(column.name, pa.int64(), metadata=metadata), pa.array(values, pa.int64())
                )
        file = self.add(table, **{"row_group_size": max(1, count // 2), "write_page_index": True, **options})
        self.files[-1] = replace(file, first_row_id=first_row_id, sequence_number=sequence_number)
        for position in range(count):
            row_id = row_ids[position] if row_ids else None
            changed = last_updated[position] if last_updated else None
            self.expected[self.rows + position] = (
                (None, None)
                if first_row_id is None
                else (
                    first_row_id + position if row_id is None else row_id,
                    sequence_number if changed is None else changed,
                )
            )
        self.rows += count

    def delete_rows(self, number: int, positions: list[int]) -> None:
        first = sum(file.rows for file in self.files[:number])
        self.delete(number, positions)
        for position in positions:
            del self.expected[first + position]

    def job(self, **changes: Any) -> RewriteJob:
        return super().job(**{"format_version": 3, **changes})


def stored_lineage(results: list[RewriteResult]) -> dict[int, Lineage]:
    """Lineage as pyarrow and DuckDB read it, the latter through the page indexes too."""
    found: dict[int, Lineage] = {}
    for output in outputs(results):
        path = local(output.path)
        table = pq.ParquetFile(path).read()
        columns = [table.column(name).to_pylist() for name in ("id", ROW_ID.name, LAST_UPDATED.name)]
        for row, row_id, changed in zip(*columns, strict=True):
            assert row not in found
            found[row] = (row_id, changed)
        assert table.select(["id", "name", "value"]).sort_by("id").to_pylist() == [
            row for row in numbered_rows(max(columns[0]) + 1).to_pylist() if row["id"] in set(columns[0])
        ]
        known = [row_id for row_id in columns[1] if row_id is not None]
        if known:
            wanted = known[len(known) // 2]
            query = f"SELECT id FROM '{path}' WHERE {ROW_ID.name} = {wanted}"
            duck = sorted(row[0] for row in duckdb.sql(query).fetchall())
            assert duck == sorted(row for row, row_id in zip(columns[0], columns[1], strict=True) if row_id == wanted)
    return found


def check_metrics(results: list[RewriteResult]) -> None:
    """The metrics under the ids of lineage are those of the values."""
    for output in outputs(results):
        table = pq.ParquetFile(local(output.path)).read(columns=[ROW_ID.name, LAST_UPDATED.name])
        metadata = pq.read_metadata(local(output.path))
        for column in (ROW_ID, LAST_UPDATED):
            values = [value for value in table.column(column.name).to_pylist() if value is not None]
            key = column.field_id
            assert output.value_counts[key] == table.num_rows
            assert output.null_value_counts[key] == table.num_rows - len(values)
            bounds = output.lower_bounds.get(key), output.upper_bounds.get(key)
            expected = (None, None)
            if values:
                expected = tuple(value.to_bytes(8, "little", signed=True) for value in (min(values), max(values)))
            assert bounds == expected
            index = metadata.schema.names.index(column.name)
            chunks = [metadata.row_group(group).column(index) for group in range(metadata.num_row_groups)]
            assert output.column_sizes[key] == sum(chunk.total_compressed_size for chunk in chunks)
            assert all(chunk.has_offset_index and chunk.has_column_index for chunk in chunks)
        for group in range(metadata.num_row_groups):
            row_group = metadata.row_group(group)
            sizes = [row_group.column(index).total_uncompressed_size for index in range(row_group.num_columns)]
            assert row_group.total_byte_size == sum(sizes)


def test_copied_row_groups_get_both_columns_and_no_data_column_is_decoded(tmp_path: Path) -> None:
    bench = LineageBench(tmp_path)
    for number in range(3):
        bench.add_rows(100, first_row_id=1000 * number, sequence_number=number + 1, use_dictionary=False)
    paths = [local(file.path) for file in bench.files]
    for path in paths:
        # A damaged page of a data column: decoding it fails, copying does not look at it.
        chunk = pq.read_metadata(path).row_group(0).column(0)
        content = bytearray(path.read_bytes())
        end = chunk.data_page_offset + chunk.total_compressed_size
        content[end - 20 : end] = bytes(20)
        path.write_bytes(content)
    seen: list[str] = []
    with listening(lambda name, _: seen.append(name)):
        results = bench.rewrite(bench.job())
    assert "rewrite.read" not in seen and "rewrite.read_lineage" not in seen
    assert results[0].copied_row_groups == 6
    (output,) = outputs(results)
    table = pq.ParquetFile(local(output.path)).read(columns=[ROW_ID.name, LAST_UPDATED.name])
    assert dict(enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True))) == bench.expected
    check_metrics(results)


def test_stored_columns_without_nulls_are_copied_as_they_are(tmp_path: Path) -> None:
    bench = LineageBench(tmp_path)
    for number in range(3):
        bench.add_rows(90, row_ids=list(range(90, 0, -1)), last_updated=[number] * 90, first_row_id=5000)
    seen: list[str] = []
    with listening(lambda name, _: seen.append(name)):
        results = bench.rewrite(bench.job())
    assert "rewrite.read_lineage" not in seen and results[0].copied_row_groups == 6
    assert stored_lineage(results) == bench.expected


def test_what_a_file_without_a_first_row_id_stores_does_not_count(tmp_path: Path) -> None:
    for minimum in (COPY, SPLICE):
        folder = tmp_path / str(minimum)
        folder.mkdir()
        bench = LineageBench(folder)
        for _ in range(2):
            bench.add_rows(50, row_ids=list(range(50)), last_updated=[3] * 50, first_row_id=None)
        results = bench.rewrite(bench.job(copy_min_row_group_bytes=minimum))
        assert set(stored_lineage(results).values()) == {(None, None)}
        check_metrics(results)


def test_columns_of_lineage_that_are_not_last_are_decoded(tmp_path: Path) -> None:
    bench = LineageBench(tmp_path)
    bench.add_rows(20, row_ids=[7] * 20, last_updated=[8] * 20)
    path = local(bench.files[0].path)
    table = pq.read_table(path).select([ROW_ID.name, "id", "name", "value", LAST_UPDATED.name])
    pq.write_table(table, path, compression="zstd")
    bench.files[0] = replace(bench.files[0], size_bytes=path.stat().st_size, split_offsets=())
    bench.add_rows(20, first_row_id=100)
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 2
    assert stored_lineage(results) == bench.expected


def test_a_row_group_whose_lineage_needs_too_much_memory_is_decoded(
    tmp_path: Path,
) -> None:
    for minimum in (COPY, SPLICE):
        folder = tmp_path / str(minimum)
        folder.mkdir()
        bench = LineageBench(folder)
        bench.add_rows(4000, row_group_size=4000)
        bench.add_rows(1000, first_row_id=9000)
        results = bench.rewrite(bench.job(copy_min_row_group_bytes=minimum, memory_bytes=3 * 8 * 1000))
        assert results[0].copied_row_groups == (2 if minimum == COPY else 0)
        assert stored_lineage(results) == bench.expected


def _mixture(rng: random.Random, count: int, first: int) -> dict[str, Any]:
    """One of the ways in which engines store lineage: not at all, one column, both, with nulls or without."""
    ids: list[int | None] = rng.sample(range(first, first + 10 * count), count)
    changes: list[int | None] = [rng.randrange(1, 9) for _ in range(count)]
    kind = rng.choice(["none", "ids", "changes", "both", "some", "nulls", "halves"])
    if kind == "some":
        ids = [None if rng.random() < 0.4 else value for value in ids]
        changes = [None if rng.random() < 0.4 else value for value in changes]
    elif kind == "nulls":
        changes = [None] * count
    elif kind == "halves":
        # One row group has nulls, the other has none.
        ids = [None] * (count // 2) + ids[count // 2 :]
    stored: dict[str, Any] = {}
    if kind not in ("none", "changes"):
        stored["row_ids"] = ids
    if kind not in ("none", "ids"):
        stored["last_updated"] = changes
    return stored


@pytest.mark.parametrize("seed", range(12))
def test_every_mixture_of_stored_null_and_inferred_lineage_stays(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    bench = LineageBench(tmp_path)
    for number in range(rng.randrange(3, 8)):
        count = rng.randrange(2, 120)
        first = None if rng.random() < 0.15 else 10_000 * number
        stored = _mixture(rng, count, 10_000_000 + 10_000 * number)
        options = {"data_page_version": rng.choice(["1.0", "2.0"]), "use_dictionary": rng.random() < 0.5}
        bench.add_rows(count, first_row_id=first, sequence_number=rng.randrange(1, 20), **stored, **options)
    for number, file in enumerate(bench.files):
        if rng.random() < 0.3:
            bench.delete_rows(number, rng.sample(range(file.rows), rng.randrange(1, file.rows + 1)))
    expected = dict(bench.expected)
    for turn in range(3):
        sizes = [file.size_bytes // 3 for file in bench.files]
        job = bench.job(
            copy_min_row_group_bytes=rng.choice([COPY, SPLICE, sorted(sizes)[len(sizes) // 2]]),
            copy=rng.choice(["auto", "auto", "auto", "never"]),
            threads=rng.choice([1, 2]),
            target_bytes=rng.choice([1500, 512 * 1024**2]),
            properties={"write.parquet.page-version": rng.choice(["v1", "v2"])},
        )
        results = bench.rewrite(job)
        found = stored_lineage(results)
        assert found == expected, (seed, turn)
        check_metrics(results)
        # The outputs get ranges of ids of their own, which only rows without lineage use.
        bench.files, bench.deletes = [], []
        expected = {}
        for number, output in enumerate(outputs(results)):
            first = 50_000_000 + turn * 1_000_000 + 10_000 * number
            bench.files.append(_live(output, first, sequence_number=30 + turn))
            bench.deletes.append(())
            ids = pq.ParquetFile(local(output.path)).read(columns=["id"]).column(0).to_pylist()
            for position, row in enumerate(ids):
                row_id, changed = found[row]
                expected[row] = (
                    first + position if row_id is None else row_id,
                    30 + turn if changed is None else changed,
                )


def _live(output: Any, first_row_id: int, sequence_number: int) -> LiveFile:
    return LiveFile(
        output.path,
        "PARQUET",
        output.spec_id,
        (),
        output.size_bytes,
        output.rows,
        sequence_number,
        sequence_number,
        split_offsets=output.split_offsets,
        first_row_id=first_row_id,
    )


def test_ids_in_order_cost_few_bytes(tmp_path: Path) -> None:
    bench = LineageBench(tmp_path)
    bench.add_rows(100_000, first_row_id=12_345)
    bench.add_rows(100_000, first_row_id=2**40)
    output = outputs(bench.rewrite(bench.job(copy_min_row_group_bytes=SPLICE)))[0]
    assert output.column_sizes[ROW_ID.field_id] + output.column_sizes[LAST_UPDATED.field_id] < 20_000
    ids = pq.ParquetFile(local(output.path)).read(columns=[ROW_ID.name]).column(0).to_numpy()
    assert np.array_equal(ids, np.concatenate([np.arange(100_000) + 12_345, np.arange(100_000) + 2**40]))

"""A rewrite task on real files: the rows of the inputs, no more and no less, in files of the right kind."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UUIDType,
)

from iceberg_compact_sql import events
from iceberg_compact_sql.rewrite.copy.plan import written_signature
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteTask
from iceberg_compact_sql.rewrite.write.settings import writer_settings
from tests.support.rewriting import KB, SCHEMA, Bench, local, numbered_rows, outputs, read_back


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def only_task(bench: Bench, **changes: Any) -> tuple[Any, RewriteTask]:
    job = bench.job(**changes)
    (task,) = cut_group(bench.group(job), job)
    return job, task


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("copy", ["auto", "never"])
def test_many_files_become_one_with_the_same_rows(bench: Bench, copy: str, threads: int) -> None:
    tables = [numbered_rows(500, first=500 * number) for number in range(8)]
    for table in tables:
        bench.add(table)
    results = bench.rewrite(bench.job(copy=copy, threads=threads))
    assert len(outputs(results)) == 1
    assert read_back(results) == pa.concat_tables(tables).to_pylist()
    assert [result.live_rows for result in results] == [4000]
    assert results[0].copied_row_groups == (8 if copy == "auto" else 0)


def test_row_order_is_the_order_of_the_inputs(bench: Bench) -> None:
    for number in range(6):
        bench.add(numbered_rows(300, first=300 * number), row_group_size=100)
    results = bench.rewrite(bench.job(copy="never", threads=3))
    ids = pq.read_table(local(outputs(results)[0].path)).column("id").to_pylist()
    assert ids == list(range(1800))


def test_copied_and_decoded_row_groups_share_an_output(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    bench.add(numbered_rows(1000, first=1000), row_group_size=500)
    bench.delete(1, [0, 499])
    results = bench.rewrite(bench.job())
    assert len(outputs(results)) == 1
    assert results[0].copied_row_groups == 2
    expected = [row for row in numbered_rows(2000).to_pylist() if row["id"] not in (1000, 1499)]
    assert read_back(results) == expected
    assert results[0].live_rows == 1998


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("row_group_bytes", ["2000", "134217728"])
def test_inputs_may_begin_with_row_groups_that_have_no_live_row(
    bench: Bench, row_group_bytes: str, threads: int
) -> None:
    for number in range(6):
        bench.add(numbered_rows(500, first=500 * number), row_group_size=100)
        if number < 3:
            bench.delete(number, range(500))
    job = bench.job(
        copy="never",
        threads=threads,
        target_bytes=20 * KB,
        properties={"write.parquet.row-group-size-bytes": row_group_bytes},
    )
    results = bench.rewrite(job)
    assert read_back(results) == numbered_rows(1500, first=1500).to_pylist()


def test_small_row_groups_are_gathered_instead_of_copied(bench: Bench) -> None:
    for number in range(5):
        bench.add(numbered_rows(100, first=100 * number))
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=8 * KB))
    assert results[0].copied_row_groups == 0
    assert pq.read_metadata(local(outputs(results)[0].path)).num_row_groups == 1


def test_row_groups_with_uuids_inside_structs_lists_and_maps_are_copied(bench: Bench) -> None:
    kinds = (
        StructType(NestedField(10, "u", UUIDType())),
        ListType(11, UUIDType(), element_required=False),
        MapType(12, StringType(), 13, UUIDType(), value_required=False),
    )
    nested = Schema(SCHEMA.fields[0], *(NestedField(2 + i, f"c{i}", kind) for i, kind in enumerate(kinds)))
    bench.schema = nested
    schema = arrow_schema(nested)
    for number in range(3):
        ids = pa.array(range(100 * number, 100 * number + 100), pa.int64())
        columns = [ids, *(null_array(field.type, 100) for field in list(schema)[1:])]
        bench.add(pa.Table.from_arrays(columns, schema=schema))
    assert written_signature(schema, writer_settings({}, nested)) is not None
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 3
    assert read_back(results) == [{"id": i, "c0": None, "c1": None, "c2": None} for i in range(300)]


def test_another_codec_is_not_copied(bench: Bench) -> None:
    bench.add(numbered_rows(1000), compression="snappy")
    bench.add(numbered_rows(1000, first=1000))
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 1
    metadata = pq.read_metadata(local(outputs(results)[0].path))
    assert {metadata.row_group(i).column(0).compression for i in range(metadata.num_row_groups)} == {"ZSTD"}
    assert read_back(results) == numbered_rows(2000).to_pylist()


def test_files_without_a_column_added_later_are_copied_under_their_own_schema(bench: Bench) -> None:
    older = Schema(*SCHEMA.fields[:2])
    bench.add(numbered_rows(1000, schema=older))
    bench.add(numbered_rows(1000, first=1000, schema=older))
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 2
    assert pq.read_schema(local(outputs(results)[0].path)).names == ["id", "name"]
    assert read_back(results) == numbered_rows(2000, schema=older).to_pylist()


def test_mixed_schemas_are_decoded_where_they_would_leave_small_files(bench: Bench) -> None:
    bench.add(numbered_rows(1000, schema=Schema(*SCHEMA.fields[:2])))
    bench.add(numbered_rows(1000, first=1000))
    results = bench.rewrite(bench.job())
    assert len(outputs(results)) == 1
    expected = numbered_rows(2000).to_pylist()
    assert read_back(results) == [{**row, "value": None} if row["id"] < 1000 else row for row in expected]


def test_mixed_schemas_keep_files_of_their_own_where_those_are_large_enough(bench: Bench) -> None:
    older = Schema(*SCHEMA.fields[:2])
    bench.add(numbered_rows(4000, schema=older), use_dictionary=False)
    bench.add(numbered_rows(4000, first=4000), use_dictionary=False)
    smallest = min(file.size_bytes for file in bench.files)
    job = bench.job(min_file_bytes=smallest // 2)
    (task,) = cut_group(replace(bench.group(job), expected_files=1), job)
    result = run_task(job, task)
    assert not isinstance(result, RewriteFailure)
    assert sorted(len(pq.read_schema(local(o.path)).names) for o in result.outputs) == [2, 3]
    assert result.copied_row_groups == 2


def test_decimals_are_encoded_as_the_copied_files_store_them(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "price", DecimalType(9, 2)))
    bench = Bench(tmp_path, schema)
    arrow = pa.schema(
        [
            pa.field("id", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
            pa.field("price", pa.decimal128(9, 2), metadata={b"PARQUET:field_id": b"2"}),
        ]
    )
    table = pa.table([list(range(100)), [Decimal(n) / 100 for n in range(100)]], schema=arrow)
    bench.add(table, store_decimal_as_integer=False)
    bench.add(table, store_decimal_as_integer=False)
    bench.delete(1, [5])
    results = bench.rewrite(bench.job())
    assert len(outputs(results)) == 1
    assert results[0].copied_row_groups == 1
    assert len(read_back(results)) == 199


def test_rows_join_copied_files_whose_columns_are_required(bench: Bench) -> None:
    """Spark marks a column REQUIRED in a file when the inserted expression cannot be null."""
    required = pa.schema(
        [field.with_nullable(False) if field.name == "id" else field for field in numbered_rows(0).schema]
    )
    for number in range(2):
        bench.add(numbered_rows(200, first=200 * number).cast(required), row_group_size=100)
    bench.delete(1, [5])
    results = bench.rewrite(bench.job())
    assert (len(outputs(results)), results[0].copied_row_groups) == (1, 3)
    assert read_back(results) == [row for row in numbered_rows(400).to_pylist() if row["id"] != 205]


def test_files_that_differ_in_what_may_be_null_are_decoded_together(bench: Bench) -> None:
    required = pa.schema(
        [field.with_nullable(False) if field.name == "id" else field for field in numbered_rows(0).schema]
    )
    holes = numbered_rows(100, first=500)
    nulls = pa.nulls(100, pa.int64())
    bench.add(numbered_rows(200).cast(required), row_group_size=100)
    bench.add(holes.set_column(holes.schema.get_field_index("id"), holes.schema.field("id"), nulls))
    bench.delete(0, [5])
    results = bench.rewrite(bench.job())
    assert len(outputs(results)) == 1
    ids = pq.read_table(local(outputs(results)[0].path)).column("id")
    assert (len(ids), ids.null_count) == (299, 100)


def test_nothing_is_written_when_nothing_is_left(bench: Bench) -> None:
    bench.add(numbered_rows(0))
    bench.add(numbered_rows(10))
    bench.delete(1, range(10))
    results = bench.rewrite(bench.job())
    assert outputs(results) == []
    assert results[0].live_rows == 0
    assert bench.written() == []


def test_small_targets_give_small_files(bench: Bench) -> None:
    bench.add(numbered_rows(200_000), use_dictionary=False, compression="none")
    target_bytes = 200 * KB
    job = bench.job(target_bytes=target_bytes, properties={"write.parquet.compression-codec": "uncompressed"})
    results = bench.rewrite(job)
    sizes = [output.size_bytes for output in outputs(results)]
    assert len(sizes) > 5
    assert all(job.min_file_bytes <= size <= job.max_file_bytes for size in sizes)
    assert read_back(results) == numbered_rows(200_000).to_pylist()


def test_a_task_does_not_leave_a_needless_tail(bench: Bench) -> None:
    for number in range(10):
        bench.add(numbered_rows(2000, first=2000 * number))
    total_bytes = sum(file.size_bytes for file in bench.files)
    job = bench.job(target_bytes=int(total_bytes / 1.05), copy="never")
    assert len(outputs(bench.rewrite(job))) == 1


def test_one_large_row_group_is_cut_within_bounded_memory(bench: Bench) -> None:
    bench.add(numbered_rows(300_000))
    job = bench.job(copy="never", threads=2, memory_bytes=6 * KB * KB)
    results = bench.rewrite(job)
    assert len(outputs(results)) == 1
    assert pq.read_metadata(local(outputs(results)[0].path)).num_row_groups >= 3
    assert read_back(results) == numbered_rows(300_000).to_pylist()


def test_metrics_and_split_offsets_are_those_of_the_file(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    (output,) = outputs(bench.rewrite(bench.job(copy="never")))
    assert output.rows == 1000
    assert output.size_bytes == local(output.path).stat().st_size
    assert output.value_counts == {1: 1000, 2: 1000, 3: 1000}
    assert output.null_value_counts == {1: 0, 2: 91, 3: 143}
    assert output.nan_value_counts == {3: 0}
    assert from_bytes(LongType(), output.lower_bounds[1]) == 0
    assert from_bytes(LongType(), output.upper_bounds[1]) == 999
    assert from_bytes(StringType(), output.lower_bounds[2]) == "name-0"
    chunk = pq.read_metadata(local(output.path)).row_group(0).column(0)
    assert output.split_offsets == (min(chunk.data_page_offset, chunk.dictionary_page_offset or 1 << 60),)


def test_nan_is_counted_where_rows_are_decoded_and_unknown_where_they_are_copied(bench: Bench) -> None:
    table = numbered_rows(10).set_column(2, SCHEMA_ARROW_VALUE, pa.array([float("nan")] * 3 + [1.0] * 7))
    bench.add(table)
    (decoded,) = outputs(bench.rewrite(bench.job(copy="never")))
    assert decoded.nan_value_counts == {3: 3}
    (copied,) = outputs(bench.rewrite(bench.job()))
    assert copied.nan_value_counts == {}
    assert 3 not in copied.lower_bounds


def _with_nan(bench: Bench, nans: int, rows: int, first: int, **options: Any) -> None:
    values = pa.array([float("nan") if n < nans else float(first + n) for n in range(rows)])
    bench.add(numbered_rows(rows, first=first).set_column(2, SCHEMA_ARROW_VALUE, values), **options)


def test_copied_files_keep_the_nan_counts_of_their_manifests_and_so_their_bounds(bench: Bench) -> None:
    # The first file has two row groups: its count holds because both are in the output.
    _with_nan(bench, 3, 100, 0, row_group_size=60, nan_counts=((3, 3),))
    _with_nan(bench, 2, 100, 100, nan_counts=((3, 2),))
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 3
    (output,) = outputs(results)
    assert output.nan_value_counts == {3: 5}
    assert from_bytes(DoubleType(), output.lower_bounds[3]) == 3.0
    assert from_bytes(DoubleType(), output.upper_bounds[3]) == 199.0


def test_the_nan_count_of_a_file_that_ends_in_two_outputs_is_dropped(bench: Bench) -> None:
    _with_nan(bench, 3, 4000, 0, row_group_size=2000, nan_counts=((3, 3),))
    job = bench.job(target_bytes=bench.files[0].size_bytes // 2)
    found = outputs(bench.rewrite(job))
    assert len(found) == 2
    assert [output.nan_value_counts for output in found] == [{}, {}]
    assert [3 in output.lower_bounds for output in found] == [False, False]


def test_a_nan_count_of_zero_holds_for_every_row_group_of_the_file(bench: Bench) -> None:
    _with_nan(bench, 0, 4000, 0, row_group_size=2000, nan_counts=((3, 0),))
    found = outputs(bench.rewrite(bench.job(target_bytes=bench.files[0].size_bytes // 2)))
    assert [output.nan_value_counts for output in found] == [{3: 0}, {3: 0}]
    assert all(3 in output.lower_bounds for output in found)


def test_one_file_without_a_nan_count_leaves_the_output_without(bench: Bench) -> None:
    _with_nan(bench, 3, 100, 0, nan_counts=((3, 3),))
    _with_nan(bench, 0, 100, 100)
    (output,) = outputs(bench.rewrite(bench.job()))
    assert output.nan_value_counts == {}
    assert 3 not in output.lower_bounds


def test_the_nan_count_of_a_file_with_deleted_rows_is_dropped(bench: Bench) -> None:
    # The deleted row with NaN is in the first row group, which is decoded; the second one is copied.
    _with_nan(bench, 3, 100, 0, row_group_size=60, nan_counts=((3, 3),))
    bench.delete(0, [0])
    results = bench.rewrite(bench.job())
    assert results[0].copied_row_groups == 1
    (output,) = outputs(results)
    assert output.rows == 99
    assert output.nan_value_counts == {}
    assert 3 not in output.lower_bounds


SCHEMA_ARROW_VALUE = numbered_rows(0).schema.field("value")


def test_the_file_is_what_the_properties_ask_for(bench: Bench) -> None:
    bench.add(numbered_rows(5000), compression="snappy")
    properties = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "9",
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.parquet.bloom-filter-fpp.column.name": "0.05",
        "write.parquet.page-row-limit": "100",
        "write.parquet.stats-enabled.column.value": "false",
        "write.metadata.metrics.column.id": "counts",
        "write.parquet.unheard-of": "1",
    }
    results = bench.rewrite(bench.job(properties=properties))
    (output,) = outputs(results)
    group = pq.read_metadata(local(output.path)).row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {chunk.compression for chunk in chunks.values()} == {"GZIP"}
    assert chunks["name"].bloom_filter_offset is not None
    assert chunks["id"].bloom_filter_offset is None
    assert chunks["value"].statistics is None
    assert 1 not in output.lower_bounds
    assert 2 in output.lower_bounds
    assert results[0].notes == ("'write.parquet.unheard-of' is not known to this writer and was not used.",)
    found = duckdb.sql(f"select count(*) from '{local(output.path)}' where name = 'name-5'").fetchall()
    assert found == [(sum(row["name"] == "name-5" for row in numbered_rows(5000).to_pylist()),)]


def test_row_groups_without_a_wanted_bloom_filter_are_not_copied(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    bench.add(numbered_rows(1000, first=1000), bloom_filter_options={"name": True})
    job = bench.job(properties={"write.parquet.bloom-filter-enabled.column.name": "true"})
    assert bench.rewrite(job)[0].copied_row_groups == 1


def test_small_row_group_size_makes_several_row_groups(bench: Bench) -> None:
    bench.add(numbered_rows(50_000), use_dictionary=False)
    job = bench.job(copy="never", properties={"write.parquet.row-group-size-bytes": str(100 * KB)})
    (output,) = outputs(bench.rewrite(job))
    count = pq.read_metadata(local(output.path)).num_row_groups
    assert abs(count - output.size_bytes / (100 * KB)) <= 2


def test_names_are_in_the_table_layout_and_never_the_same_twice(bench: Bench) -> None:
    bench.add(numbered_rows(10))
    job, task = only_task(bench)
    first, second = run_task(job, task), run_task(job, task)
    assert not isinstance(first, RewriteFailure)
    assert not isinstance(second, RewriteFailure)
    assert first.outputs[0].path != second.outputs[0].path
    assert first.outputs[0].path.startswith(f"{bench.folder.as_uri()}/data/00000-0-run1-")
    other = bench.job(properties={"write.data.path": f"{bench.folder.as_uri()}/elsewhere"})
    assert "/elsewhere/00000-0-run1-" in outputs(bench.rewrite(other))[0].path
    older = bench.job(properties={"write.folder-storage.path": f"{bench.folder.as_uri()}/folder"})
    assert "/folder/00000-0-run1-" in outputs(bench.rewrite(older))[0].path
    hashed = bench.job(properties={"write.object-storage.enabled": "true"})
    assert outputs(bench.rewrite(hashed))[0].path.count("/") > first.outputs[0].path.count("/")


def test_a_corrupt_input_is_named_and_nothing_is_left(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    bad = bench.add(numbered_rows(1000))
    content = bytearray(local(bad.path).read_bytes())
    content[len(content) // 4] ^= 0xFF
    content[len(content) // 3] ^= 0xFF
    local(bad.path).write_bytes(content[: len(content) // 2])
    job, task = only_task(bench, copy="never")
    failure = run_task(job, task)
    assert isinstance(failure, RewriteFailure)
    assert bad.path in failure.reason
    assert failure.created == ()
    assert bench.written() == []


def test_a_missing_input_is_named(bench: Bench) -> None:
    gone = bench.add(numbered_rows(10))
    local(gone.path).unlink()
    job, task = only_task(bench)
    failure = run_task(job, task)
    assert isinstance(failure, RewriteFailure)
    assert gone.path in failure.reason


@pytest.mark.parametrize("copy", ["auto", "never"])
@pytest.mark.parametrize("point", [f"rewrite.{step}" for step in ("open", "read", "write", "close", "verify_file")])
def test_storage_errors_at_any_point_leave_nothing_behind(bench: Bench, point: str, copy: str) -> None:
    bench.add(numbered_rows(1000))
    bench.add(numbered_rows(1000, first=1000))
    job, task = only_task(bench, copy=copy, threads=2)
    hits = []

    def full(reached: str, _: Mapping[str, object]) -> None:
        if reached == point:
            hits.append(point)
            raise OSError(errno.ENOSPC, "No space left on device")

    with events.listening(full):
        failure = run_task(job, task)
    if point == "rewrite.read" and copy == "auto":
        assert hits == []
        return
    assert isinstance(failure, RewriteFailure)
    assert "No space left on device" in failure.reason
    assert bench.written() == []


def test_an_output_that_changes_on_storage_is_refused(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    job, task = only_task(bench)

    def damage(point: str, facts: Mapping[str, object]) -> None:
        if point == "rewrite.verify_file":
            path = local(str(facts["path"]))
            content = bytearray(path.read_bytes())
            content[200] ^= 1
            path.write_bytes(content)

    with events.listening(damage):
        failure = run_task(job, task)
        assert isinstance(failure, RewriteFailure)
        assert "CRC-32" in failure.reason
        assert bench.written() == []
        # Without checksums only counts and sizes are looked at.
        assert not isinstance(run_task(replace(job, verify="rows"), task), RewriteFailure)


def test_rows_that_encode_differently_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from iceberg_compact_sql.rewrite.write import row_groups as pieces

    bench.add(numbered_rows(1000))
    job, task = only_task(bench, copy="never")
    encode = pieces.encode

    def wrong(table: pa.Table, *rest: Any) -> pa.Buffer:
        ids = pa.chunked_array([pa.array([*table.column("id").to_pylist()[:-1], 0])])
        return encode(table.set_column(0, table.schema.field(0), ids), *rest)

    monkeypatch.setattr(pieces, "encode", wrong)
    failure = run_task(job, task)
    assert isinstance(failure, RewriteFailure)
    assert "read back differently in column id" in failure.reason
    assert bench.written() == []


def test_an_interrupt_goes_up_and_leaves_nothing(bench: Bench) -> None:
    bench.add(numbered_rows(1000))
    job, task = only_task(bench)

    def interrupt(point: str, _: Mapping[str, object]) -> None:
        if point == "rewrite.close":
            raise KeyboardInterrupt

    with events.listening(interrupt), pytest.raises(KeyboardInterrupt):
        run_task(job, task)
    assert bench.written() == []


def test_slices_of_one_file_are_rewritten_apart(bench: Bench) -> None:
    bench.add(numbered_rows(20_000), row_group_size=2_000, use_dictionary=False)
    size_bytes = bench.files[0].size_bytes
    job = bench.job(target_bytes=size_bytes // 4)
    results = bench.rewrite(job)
    assert len(results) == 4
    assert read_back(results) == numbered_rows(20_000).to_pylist()
    assert sum(result.copied_row_groups for result in results) == 10


def test_a_column_that_was_never_there_reads_as_null(tmp_path: Path) -> None:
    evolved = Schema(*SCHEMA.fields, NestedField(9, "later", StringType()))
    bench = Bench(tmp_path, evolved, (UNPARTITIONED_PARTITION_SPEC,))
    bench.add(numbered_rows(100))
    results = bench.rewrite(bench.job(copy="never"))
    assert read_back(results) == [{**row, "later": None} for row in numbered_rows(100).to_pylist()]

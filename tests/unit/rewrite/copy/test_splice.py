"""Row groups that are made column by column from many small ones: every reader finds the rows of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.events import listening
from iceberg_compact_sql.rewrite.copy import splice
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteFailure
from iceberg_compact_sql.rewrite.write import column_encoder
from iceberg_compact_sql.rewrite.write.column_encoder import ColumnEncoder, ColumnFallbackError
from iceberg_compact_sql.rewrite.write.settings import encode
from tests.support.all_types import ALL_TYPES, all_type_rows, check_readers
from tests.support.parquet_bytes import duck_rows
from tests.support.rewriting import Bench, local, numbered_rows, outputs, read_back

DELTA = {
    "id": "DELTA_BINARY_PACKED",
    "hex": "DELTA_BYTE_ARRAY",
    "bin": "DELTA_LENGTH_BYTE_ARRAY",
    "f8": "BYTE_STREAM_SPLIT",
    "i4": "DELTA_BINARY_PACKED",
    "ts": "DELTA_BINARY_PACKED",
}
PLAIN: dict[str, Any] = {"use_dictionary": False, "write_page_index": True}
KINDS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "plain-v2": {**PLAIN, "data_page_version": "2.0"},
    "snappy": {**PLAIN, "compression": "snappy"},
    "gzip": {**PLAIN, "compression": "gzip"},
    "uncompressed": {**PLAIN, "compression": "none"},
    "brotli": {**PLAIN, "compression": "brotli"},
    "lz4": {**PLAIN, "compression": "lz4"},
    "no-statistics": {"use_dictionary": False, "write_statistics": False},
    "no-page-index": {"use_dictionary": False},
    "dictionary": {},
    "dictionary-v2": {"data_page_version": "2.0", "write_page_index": True},
    "fall-back": {"dictionary_pagesize_limit": 2048, "write_batch_size": 128, "write_page_index": True},
    "delta": {**PLAIN, "column_encoding": DELTA},
    "mixed": {"use_dictionary": ["low", "st.b"], "write_page_index": True},
}


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splice pages of any size: the files of these tests are small."""
    monkeypatch.setattr(splice, "MIN_PAGE_ROWS", 1)


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize(
    ("kind", "version"),
    [*((kind, "v1") for kind in KINDS), *((kind, "v2") for kind in ("plain", "dictionary-v2", "delta", "mixed"))],
)
def test_every_reader_finds_the_rows_of_the_inputs(tmp_path: Path, kind: str, version: str) -> None:
    bench = Bench(tmp_path, schema=ALL_TYPES)
    options = dict(KINDS[kind])
    codec = options.setdefault("compression", "zstd")
    if version == "v2" and "v2" not in kind and kind != "delta":
        # Page versions take turns inside one chunk.
        turns: list[dict[str, Any]] = [{}, {"data_page_version": "2.0"}]
    else:
        turns = [{}]
    for number in range(4):
        rows = all_type_rows(number, 200 + 7 * number, nulls=kind != "delta")
        more = turns[number % len(turns)]
        bench.add(rows, max_rows_per_page=90, row_group_size=150 if number == 1 else 1000, **{**options, **more})
    job = bench.job(
        copy_min_row_group_bytes=2**40,
        threads=2,
        properties={"write.parquet.compression-codec": codec, "write.parquet.page-version": version},
    )
    results = bench.rewrite(job)
    (output,) = outputs(results)
    assert pq.read_metadata(local(output.path)).num_row_groups == 1
    assert results[0].spliced_columns > 0
    check_readers([local(file.path) for file in bench.files], [local(output.path)])


def test_pages_of_one_writer_are_laid_end_to_end(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(5):
        bench.add(numbered_rows(20_000, first=20_000 * number), use_dictionary=["name"], write_page_index=True)
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40, threads=2))
    # The ids and the values; the names have dictionaries, which are merged.
    assert results[0].spliced_columns == 2
    assert read_back(results) == numbered_rows(100_000).to_pylist()
    metadata = pq.read_metadata(local(outputs(results)[0].path)).row_group(0)
    assert (metadata.column(0).statistics.min, metadata.column(0).statistics.max) == (0, 99_999)
    assert metadata.column(2).statistics.null_count == len(range(0, 100_000, 7))
    assert outputs(results)[0].nan_value_counts == {}


def test_spliced_floats_add_up_the_nan_counts_of_their_manifests(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        rows = numbered_rows(20_000, first=20_000 * number)
        values = pa.array([float("nan") if n < number else 1.5 for n in range(20_000)])
        bench.add(
            rows.set_column(2, rows.schema.field("value"), values),
            use_dictionary=["name"],
            write_page_index=True,
            nan_counts=((3, number),),
        )
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert results[0].spliced_columns == 2
    (output,) = outputs(results)
    assert output.nan_value_counts == {3: 3}
    assert 3 in output.lower_bounds


def test_unique_values_are_taken_out_of_their_dictionaries(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        bench.add(numbered_rows(20_000, first=20_000 * number))
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert results[0].spliced_columns == 1
    chunk = pq.read_metadata(local(outputs(results)[0].path)).row_group(0).column(0)
    assert not chunk.has_dictionary_page and "PLAIN" in chunk.encodings
    assert read_back(results) == numbered_rows(60_000).to_pylist()


def test_a_dictionary_that_is_not_in_the_order_of_the_rows_is_not_unwrapped(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        rows = numbered_rows(20_000, first=20_000 * number)
        names = pa.array([f"name-{value}" for value in rows.column("id").to_pylist()])
        backwards = pa.array(range(len(names) - 1, -1, -1), pa.int32())
        # The dictionary page is written as it is given: its entries are in the opposite order of the rows.
        reversed_names = pa.DictionaryArray.from_arrays(backwards, names.take(backwards))
        table = rows.set_column(1, rows.schema.field(1).with_type(reversed_names.type), reversed_names)
        bench.add(table, store_schema=False, use_dictionary=["name"], dictionary_pagesize_limit=2**30)
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    # The ids and the values are PLAIN.
    assert results[0].spliced_columns == 2
    assert [row["name"] for row in read_back(results)] == [f"name-{number}" for number in range(60_000)]


def test_untouched_row_groups_are_spliced_beside_rows_with_deletes(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(4):
        bench.add(numbered_rows(20_000, first=20_000 * number), row_group_size=10_000, use_dictionary=False)
    bench.delete(1, [3, 17])
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert len(outputs(results)) == 1
    assert results[0].spliced_columns == 3
    expected = [row for row in numbered_rows(80_000).to_pylist() if row["id"] not in (20_003, 20_017)]
    assert read_back(results) == expected


def test_copy_never_switches_splicing_off(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        bench.add(numbered_rows(20_000, first=20_000 * number), use_dictionary=False)
    results = bench.rewrite(bench.job(copy="never"))
    assert results[0].spliced_columns == 0
    assert read_back(results) == numbered_rows(60_000).to_pylist()


def test_files_of_one_row_and_of_no_row(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(5):
        bench.add(numbered_rows(number % 2, first=number))
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert [row["id"] for row in read_back(results)] == [1, 3]


def test_two_thousand_columns(tmp_path: Path) -> None:
    schema = Schema(*(NestedField(number, f"c{number}", LongType()) for number in range(1, 2001)))
    bench = Bench(tmp_path, schema=schema)
    arrow = arrow_schema(schema)
    for file in range(2):
        columns = [pa.array([file, None, number]) for number in range(2000)]
        bench.add(pa.Table.from_arrays(columns, schema=arrow))
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40, threads=2))
    stored = pq.read_table(local(outputs(results)[0].path))
    assert stored.column("c7").to_pylist() == [0, None, 6, 1, None, 6]
    assert stored.num_columns == 2000


def test_inputs_in_which_a_column_is_required_and_others_share_one_output(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(4):
        rows = numbered_rows(20_000, first=20_000 * number)
        if number % 2:
            rows = rows.cast(pa.schema([rows.schema.field(0).with_nullable(False), *list(rows.schema)[1:]]))
        bench.add(rows, use_dictionary=False)
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert len(outputs(results)) == 1
    assert read_back(results) == numbered_rows(80_000).to_pylist()


def test_codecs_that_are_not_the_tables_are_encoded_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(4):
        codec = "snappy" if number % 2 else "zstd"
        bench.add(numbered_rows(20_000, first=20_000 * number), use_dictionary=False, compression=codec)
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert results[0].spliced_columns == 0
    group = pq.read_metadata(local(outputs(results)[0].path)).row_group(0)
    assert {group.column(leaf).compression for leaf in range(3)} == {"ZSTD"}
    assert read_back(results) == numbered_rows(80_000).to_pylist()


def test_a_column_with_a_bloom_filter_is_encoded_and_has_one_for_all_rows(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(3):
        bench.add(numbered_rows(20_000, first=20_000 * number), use_dictionary=False)
    properties = {"write.parquet.bloom-filter-enabled.column.id": "true"}
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40, properties=properties))
    path = local(outputs(results)[0].path)
    assert results[0].spliced_columns == 2
    assert duck_rows(f"select count(*) from '{path}' where id in (5, 20005, 59999, 60001)") == [(3,)]
    [(offset,)] = duck_rows(f"select bloom_filter_offset from parquet_metadata('{path}') where column_id = 0")
    assert offset > 0


def test_a_column_that_needs_too_much_memory_is_decoded_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ColumnFallbackError("too large")

    monkeypatch.setattr(ColumnEncoder, "encode", refuse)
    bench = Bench(tmp_path)
    for number in range(3):
        bench.add(numbered_rows(500, first=500 * number))
    results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert (len(outputs(results)), results[0].spliced_columns) == (1, 0)
    assert read_back(results) == numbered_rows(1500).to_pylist()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_encoded_column_that_reads_back_differently_is_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    def wrong(table: pa.Table, *arguments: Any) -> pa.Buffer:
        return (
            encode(table.slice(1, len(table)), *arguments) if "id" in table.column_names else encode(table, *arguments)
        )

    monkeypatch.setattr(column_encoder, "encode", wrong)
    bench = Bench(tmp_path)
    for number in range(3):
        bench.add(numbered_rows(500, first=500 * number))
    job = bench.job(copy_min_row_group_bytes=2**40, threads=threads)
    (task,) = cut_group(bench.group(job), job)
    result = run_task(job, task)
    assert isinstance(result, RewriteFailure) and "differently in column id" in result.reason
    assert bench.written() == []


def test_small_inputs_need_no_open_file_each(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for number in range(60):
        bench.add(numbered_rows(20, first=20 * number))
    open_files: list[str] = []

    def count(event: str, facts: Mapping[str, object]) -> None:
        if event == "rewrite.splice":
            open_files.extend(file.path for file in psutil.Process().open_files() if file.path.endswith(".parquet"))

    with listening(count):
        results = bench.rewrite(bench.job(copy_min_row_group_bytes=2**40))
    assert read_back(results) == numbered_rows(1200).to_pylist()
    assert open_files == []

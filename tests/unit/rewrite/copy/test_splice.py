"""Row groups that are made column by column from many small ones: every reader finds the rows of the inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql.rewrite.copy import splice
from tests.support.all_types import ALL_TYPES, all_type_rows, check_readers
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

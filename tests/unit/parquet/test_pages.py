"""Pages of column chunks, walked header by header."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql.parquet.pages import DATA, DATA_V2, DICTIONARY, PageError, walk_pages
from iceberg_compact_sql.parquet.thrift import I32, STRUCT, Struct, write_struct
from tests.support.parquet_bytes import footer_of, parquet_bytes, wide_table


def chunk_bytes(data: bytes, leaf: int) -> bytes:
    start, end = footer_of(data).row_groups[0].chunk_ranges[leaf]
    return data[start:end]


@pytest.mark.parametrize(("version", "kind"), [("1.0", DATA), ("2.0", DATA_V2)])
def test_pages_fill_their_chunk(version: str, kind: int) -> None:
    data = parquet_bytes(wide_table(500), data_page_version=version, max_rows_per_page=100)
    pages = walk_pages(chunk_bytes(data, 0), (1, 0))
    assert [page.kind for page in pages] == [DICTIONARY, *[kind] * 5]
    assert [page.rows for page in pages[1:]] == [100] * 5
    assert pages[-1].end == len(chunk_bytes(data, 0))


def test_rows_of_a_list_are_unknown_in_version_1() -> None:
    data = parquet_bytes(wide_table(500))
    tags = next(leaf.index for leaf in footer_of(data).leaves if leaf.path[0] == "tags")
    assert {page.rows for page in walk_pages(chunk_bytes(data, tags), (3, 1)) if page.is_data} == {None}


def test_a_damaged_page_with_a_crc_is_refused() -> None:
    table = pa.table({"id": pa.array(range(1000))})
    data = parquet_bytes(table, use_dictionary=False, write_page_checksum=True, compression="none")
    chunk = bytearray(chunk_bytes(data, 0))
    chunk[-1] ^= 1
    with pytest.raises(PageError, match="CRC"):
        walk_pages(bytes(chunk), (1, 0))


def test_levels_that_are_not_stored_may_have_any_encoding() -> None:
    # A header of parquet-java: BIT_PACKED (4) for repetition levels whose maximum is 0.
    header = Struct(
        {
            1: (I32, DATA),
            2: (I32, 8),
            3: (I32, 8),
            5: (STRUCT, Struct({1: (I32, 1), 2: (I32, 0), 3: (I32, 3), 4: (I32, 4)})),
        }
    )
    chunk = write_struct(header) + bytes(8)
    assert walk_pages(chunk, (1, 0))[0].rle_levels
    assert not walk_pages(chunk, (1, 1))[0].rle_levels


def test_bytes_that_are_cut_are_refused() -> None:
    data = parquet_bytes(wide_table(500))
    chunk = chunk_bytes(data, 0)
    with pytest.raises(PageError):
        walk_pages(chunk[:-1], (1, 0))
    assert pq.read_metadata(pa.BufferReader(data)).num_rows == 500

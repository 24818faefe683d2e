"""Reads and checks page indexes and bloom filters of column chunks, and shifts their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.parquet.footer import FooterError, ParquetFooter, RowGroupInfo, read_range
from iceberg_compact_sql.parquet.ranges import read_ranges
from iceberg_compact_sql.parquet.thrift import (
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftError,
    ThriftList,
    read_struct,
    write_struct,
)

MAX_INDEX_BYTES = 32 * 1024**2
MAX_BLOOM_FILTER_BYTES = 512 * 1024**2
_BLOOM_HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The two page indexes of a column chunk as bytes; None where the chunk has none that can be trusted."""

    column_index: bytes | None = None
    offset_index: bytes | None = None

    def shifted(self, shift: int) -> PageIndex:
        """Return the same indexes for pages that are `shift` bytes further on."""
        if self.offset_index is None:
            return PageIndex()
        tree, _ = read_struct(self.offset_index, 0)
        locations = [
            location.replaced({1: (I64, location.need(1, I64) + shift)}) for location in tree.elements(1, STRUCT) or ()
        ]
        moved = tree.replaced({1: (LIST, ThriftList(STRUCT, locations))})
        return PageIndex(self.column_index, write_struct(moved))


def read_page_indexes(file: Any, footer: ParquetFooter, groups: Sequence[RowGroupInfo]) -> dict[int, list[PageIndex]]:
    """Return the page indexes of row groups by leaf column, checked against the pages; damaged ones are left out."""
    wanted: dict[tuple[int, int, int], int] = {}
    ranges: list[tuple[int, int]] = []
    for group in groups:
        for leaf, (chunk, _) in enumerate(footer.column_trees(group.index)):
            for field_id in (4, 6):
                byte_range = _range(footer, chunk.get(field_id, I64), chunk.get(field_id + 1, I32), MAX_INDEX_BYTES)
                if byte_range is not None:
                    wanted[group.index, leaf, field_id] = len(ranges)
                    ranges.append(byte_range)
    contents = read_ranges(file, ranges)
    indexes: dict[int, list[PageIndex]] = {}
    for group in groups:
        indexes[group.index] = []
        for leaf in range(len(footer.leaves)):
            offset_index = wanted.get((group.index, leaf, 4))
            column_index = wanted.get((group.index, leaf, 6))
            indexes[group.index].append(
                _checked(
                    None if offset_index is None else contents[offset_index],
                    None if column_index is None else contents[column_index],
                    group.chunk_ranges[leaf],
                    group.rows,
                )
            )
    return indexes


def read_chunk_index(file: Any, footer: ParquetFooter, chunk: Struct, field_id: int) -> bytes | None:
    """Return one page index of a column chunk (field 4: offset index, 6: column index), or None if it has none."""
    byte_range = _range(footer, chunk.get(field_id, I64), chunk.get(field_id + 1, I32), MAX_INDEX_BYTES)
    return None if byte_range is None else read_range(file, byte_range[0], byte_range[1] - byte_range[0])


def bloom_filter_ranges(file: Any, footer: ParquetFooter, group: RowGroupInfo) -> dict[int, tuple[int, int]]:
    """Return the byte ranges of a row group's bloom filters by leaf, header included; damaged ones are left out."""
    ranges: dict[int, tuple[int, int]] = {}
    for leaf, (_, meta) in enumerate(footer.column_trees(group.index)):
        offset = meta.get(14, I64)
        if offset is None:
            continue
        length = meta.get(15, I32)
        if length is None:
            length = _bloom_filter_length(file, footer, offset)
        byte_range = _range(footer, offset, length, MAX_BLOOM_FILTER_BYTES)
        if byte_range is not None:
            ranges[leaf] = byte_range
    return ranges


def _range(footer: ParquetFooter, offset: int | None, length: int | None, limit: int) -> tuple[int, int] | None:
    if offset is None or length is None or offset < 4 or not 0 < length <= limit:
        return None
    if footer.data_end is None or offset + length > footer.data_end:
        return None
    return offset, offset + length


def _bloom_filter_length(file: Any, footer: ParquetFooter, offset: int) -> int | None:
    if footer.data_end is None or not 4 <= offset < footer.data_end:
        return None
    try:
        header = read_range(file, offset, min(_BLOOM_HEADER_BYTES, footer.data_end - offset))
        tree, header_length = read_struct(header, 0)
        return header_length + int(tree.need(1, I32))
    except FooterError:
        return None


def _checked(offset_index: bytes | None, column_index: bytes | None, chunk: tuple[int, int], rows: int) -> PageIndex:
    if offset_index is None:
        return PageIndex()
    try:
        pages = _page_count(offset_index, chunk, rows)
        if column_index is not None:
            tree = _read_whole_struct(column_index)
            if any(len(tree.get(field_id, LIST).values) != pages for field_id in (1, 2, 3)):
                raise ThriftError("the column index and the offset index have different numbers of pages")
    except (ThriftError, AttributeError):
        return PageIndex()
    return PageIndex(column_index, offset_index)


def _page_count(offset_index: bytes, chunk: tuple[int, int], rows: int) -> int:
    locations = _read_whole_struct(offset_index).elements(1, STRUCT) or ()
    first_row = -1
    end = chunk[0]
    for location in locations:
        offset, length, row = location.need(1, I64), location.need(2, I32), location.need(3, I64)
        if offset < end or length <= 0 or offset + length > chunk[1] or not first_row < row < rows:
            raise ThriftError("a page is outside its column chunk")
        end, first_row = offset + length, row
    if not locations or locations[0].need(3, I64) != 0:
        raise ThriftError("the offset index does not start at the first row")
    return len(locations)


def _read_whole_struct(data: bytes) -> Struct:
    tree, end = read_struct(data, 0)
    if end != len(data):
        raise ThriftError("bytes are left over")
    return tree

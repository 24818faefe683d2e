"""Metadata of a chunk that is made of the pages of many: summed, merged in the order of the type, or left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from iceberg_compact_sql.parquet.pages import RLE, Page
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    FooterError,
    Struct,
    ThriftList,
    read_struct,
    write_struct,
)
from iceberg_compact_sql.parquet.value_order import order_key, widened_zero

_UNORDERED, _ASCENDING = 0, 1


def merged_metadata(
    leaf: LeafColumn,
    column_order: int | None,
    metas: Sequence[Struct],
    *,
    pages: Counter[tuple[int, int]],
    compressed_bytes: int,
    uncompressed_bytes: int,
    keep_sizes: bool = True,
) -> Struct:
    """Return the ColumnMetaData of a chunk without a dictionary that holds the values of all `metas` in order.

    `pages` counts the chunk's data pages by (page type, encoding). `keep_sizes` adds up size statistics.
    """
    first = metas[0]
    encodings = sorted({encoding for _, encoding in pages} | {RLE})
    fields: dict[int, tuple[int, Any]] = {
        1: first.fields[1],
        2: (LIST, ThriftList(I32, encodings)),
        3: first.fields[3],
        4: first.fields[4],
        5: (I64, sum(meta.need(5, I64) for meta in metas)),
        6: (I64, uncompressed_bytes),
        7: (I64, compressed_bytes),
        9: (I64, 0),
    }
    statistics = merged_statistics(leaf, column_order, metas)
    if statistics.fields:
        fields[12] = (STRUCT, statistics)
    stats = [
        Struct({1: (I32, kind), 2: (I32, encoding), 3: (I32, count)})
        for (kind, encoding), count in sorted(pages.items())
    ]
    fields[13] = (LIST, ThriftList(STRUCT, stats))
    sizes = _merged_sizes(metas) if keep_sizes else None
    if sizes is not None and sizes.fields:
        fields[16] = (STRUCT, sizes)
    return Struct(fields)


def merged_statistics(leaf: LeafColumn, column_order: int | None, metas: Sequence[Struct]) -> Struct:
    """Return statistics that hold for all chunks together; what one of them does not state is left out.

    A chunk of nulls only has no bounds and needs none.
    """
    stated = [(meta.get(12, STRUCT) or Struct({}), meta.need(5, I64)) for meta in metas]
    fields: dict[int, tuple[int, Any]] = {}
    nulls = [statistics.get(3, I64) for statistics, _ in stated]
    if all(count is not None and 0 <= count <= values for count, (_, values) in zip(nulls, stated, strict=True)):
        fields[3] = (I64, sum(nulls))
    with_values = [statistics for statistics, values in stated if statistics.get(3, I64) != values]
    fields.update(_merged_bounds(leaf, order_key(leaf, column_order), with_values))
    return Struct(dict(sorted(fields.items())))


def _merged_bounds(
    leaf: LeafColumn, key: Callable[[bytes], Any] | None, stated: Sequence[Struct]
) -> Mapping[int, tuple[int, Any]]:
    if key is None or not stated:
        return {}
    try:
        bounds = [
            (key(statistics.need(6, BINARY)), key(statistics.need(5, BINARY)), statistics) for statistics in stated
        ]
    except (FooterError, ValueError):
        return {}
    # NaN is not ordered: a comparison with it is False. Bounds in the wrong order say nothing.
    if not all(low <= high for low, high, _ in bounds):
        return {}
    least = min(bounds, key=lambda bound: bound[0])[2]
    greatest = max(bounds, key=lambda bound: bound[1])[2]
    merged: dict[int, tuple[int, Any]] = {
        5: (BINARY, widened_zero(leaf, greatest.need(5, BINARY), lower=False)),
        6: (BINARY, widened_zero(leaf, least.need(6, BINARY), lower=True)),
    }
    for field_id, statistics in ((7, greatest), (8, least)):
        exact = statistics.get(field_id, TRUE)
        if exact is not None:
            merged[field_id] = (TRUE, exact)
    return merged


def _merged_sizes(metas: Sequence[Struct]) -> Struct | None:
    """Return size statistics added up, histograms element by element; a part that one chunk lacks is left out."""
    sizes = [meta.get(16, STRUCT) for meta in metas]
    if any(size is None for size in sizes):
        return None
    fields: dict[int, tuple[int, Any]] = {}
    plain = [size.get(1, I64) for size in sizes]
    if None not in plain:
        fields[1] = (I64, sum(plain))
    for field_id in (2, 3):
        histograms = [size.elements(field_id, I64) for size in sizes]
        if None not in histograms and len({len(histogram) for histogram in histograms}) == 1:
            fields[field_id] = (LIST, ThriftList(I64, [sum(counts) for counts in zip(*histograms, strict=True)]))
    return Struct(fields)


def merged_column_index(leaf: LeafColumn, column_order: int | None, indexes: Sequence[bytes | None]) -> bytes | None:
    """Return the column indexes of consecutive chunks as one; None if a chunk has none.

    Its boundary order is ascending only if the bounds of all pages prove it.
    """
    if not indexes or any(index is None for index in indexes):
        return None
    trees = [read_struct(index, 0)[0] for index in indexes if index is not None]
    fields: dict[int, tuple[int, Any]] = {}
    for field_id in (1, 2, 3, 5, 6, 7):
        parts = [tree.get(field_id, LIST) for tree in trees]
        if any(part is None for part in parts):
            if field_id <= 3:
                return None
            continue
        values = [value for part in parts for value in part.values]
        fields[field_id] = (LIST, ThriftList(parts[0].element_type, values))
    fields[4] = (I32, _boundary_order(leaf, column_order, fields))
    return write_struct(Struct(dict(sorted(fields.items()))))


def page_column_index(
    leaf: LeafColumn, column_order: int | None, statistics: Sequence[tuple[Struct | None, int]]
) -> bytes | None:
    """Return a column index from statistics of pages, each with its number of values; None if one lacks bounds."""
    key = order_key(leaf, column_order)
    null_pages, lows, highs, nulls = [], [], [], []
    for stated, values in statistics:
        count = stated.get(3, I64) if stated is not None else None
        if stated is None or count is None or key is None:
            return None
        low, high = stated.get(6, BINARY), stated.get(5, BINARY)
        all_null = count == values
        if not all_null:
            try:
                if low is None or high is None or not key(low) <= key(high):
                    return None
            except ValueError:
                return None
        null_pages.append(TRUE if all_null else 2)
        lows.append(b"" if all_null else low)
        highs.append(b"" if all_null else high)
        nulls.append(count)
    fields: dict[int, tuple[int, Any]] = {
        1: (LIST, ThriftList(TRUE, null_pages)),
        2: (LIST, ThriftList(BINARY, lows)),
        3: (LIST, ThriftList(BINARY, highs)),
        5: (LIST, ThriftList(I64, nulls)),
    }
    fields[4] = (I32, _boundary_order(leaf, column_order, fields))
    return write_struct(Struct(dict(sorted(fields.items()))))


def _boundary_order(leaf: LeafColumn, column_order: int | None, fields: Mapping[int, tuple[int, Any]]) -> int:
    key = order_key(leaf, column_order)
    if key is None:
        return _UNORDERED
    pages = zip(fields[1][1].values, fields[2][1].values, fields[3][1].values, strict=True)
    try:
        bounds = [(key(low), key(high)) for null_page, low, high in pages if null_page != TRUE]
    except ValueError:
        return _UNORDERED
    ascending = all(left[0] <= right[0] and left[1] <= right[1] for left, right in pairwise(bounds))
    return _ASCENDING if bounds and ascending else _UNORDERED


def offset_index(pages: Sequence[tuple[int, int, int]], plain_bytes: Sequence[int] | None = None) -> bytes:
    """Return an offset index of pages (offset, bytes with header, first row)."""
    locations = [
        Struct({1: (I64, offset), 2: (I32, length), 3: (I64, first_row)}) for offset, length, first_row in pages
    ]
    fields: dict[int, tuple[int, Any]] = {1: (LIST, ThriftList(STRUCT, locations))}
    if plain_bytes is not None:
        fields[2] = (LIST, ThriftList(I64, list(plain_bytes)))
    return write_struct(Struct(fields))


def counted_pages(pages: Sequence[Page]) -> Counter[tuple[int, int]]:
    """Return how many data pages there are of each (page type, encoding)."""
    return Counter((page.kind, page.encoding) for page in pages if page.is_data)

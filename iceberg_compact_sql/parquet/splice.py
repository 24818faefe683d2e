"""Chunks of one column laid end to end without decoding: pages as they are, or dictionaries as PLAIN pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from iceberg_compact_sql.parquet.chunk import ColumnChunk
from iceberg_compact_sql.parquet.column_file import column_file
from iceberg_compact_sql.parquet.footer import CODECS
from iceberg_compact_sql.parquet.merged_metadata import (
    counted_pages,
    merged_column_index,
    merged_metadata,
    offset_index,
    page_column_index,
)
from iceberg_compact_sql.parquet.page_index import PageIndex
from iceberg_compact_sql.parquet.pages import (
    DATA_V2,
    DICTIONARY,
    PLAIN,
    Page,
    PageError,
    dictionary_page,
    first_page,
    plain_page_prefix,
    walk_pages,
)
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList, read_struct


@dataclass(frozen=True)
class InputChunk:
    """A chunk of an input with its bytes; offsets in `metadata` and in the offset index count from its start.

    The page indexes are the file's own, checked only against the footer.
    """

    leaf: LeafColumn
    metadata: Struct
    rows: int
    data: bytes = field(repr=False)
    column_order: int | None = None
    # Returns the column index and the offset index; they are read only for chunks that are spliced.
    read_index: Callable[[], PageIndex] = field(default=PageIndex, repr=False)

    @cached_property
    def _index(self) -> PageIndex:
        return self.read_index()

    @cached_property
    def pages(self) -> list[Page]:
        """The pages; raises PageError unless they hold exactly the chunk's values."""
        pages = walk_pages(self.data, self.leaf.levels)
        values = self.metadata.need(5, I64)
        if sum(page.values for page in pages if page.is_data) != values:
            raise PageError(f"the pages of column {self.leaf.name!r} do not hold {values} values")
        rows = [page.rows for page in pages]
        if None not in rows and sum(row for row in rows if row is not None) != self.rows:
            raise PageError(f"the pages of column {self.leaf.name!r} do not hold {self.rows} rows")
        return pages

    @property
    def data_pages(self) -> list[Page]:
        return [page for page in self.pages if page.is_data]

    @cached_property
    def dictionary(self) -> Page | None:
        """The dictionary page; only the first page is looked at."""
        page = first_page(self.data, self.leaf.levels)
        return page if page.kind == DICTIONARY else None

    @property
    def first_rows(self) -> list[int] | None:
        """The first row of each data page; None if neither the headers nor the offset index say it."""
        pages = self.data_pages
        if all(page.rows is not None for page in pages):
            firsts, row = [], 0
            for page in pages:
                firsts.append(row)
                row += page.rows or 0
            return firsts
        if self._index.offset_index is None:
            return None
        locations = read_struct(self._index.offset_index, 0)[0].elements(1, STRUCT) or ()
        known = [(entry.need(1, I64), entry.need(2, I32)) for entry in locations]
        if known != [(page.start, page.end - page.start) for page in pages]:
            return None
        return [entry.need(3, I64) for entry in locations]

    @property
    def pages_index(self) -> bytes | None:
        """The column index of the data pages, from the file or from the statistics in page headers."""
        if self._index.column_index is not None:
            tree, _ = read_struct(self._index.column_index, 0)
            if all(len(tree.get(field_id, LIST).values) == len(self.data_pages) for field_id in (1, 2, 3)):
                return self._index.column_index
        if self.leaf.repeated:
            return None
        stated = [(page.statistics, page.values) for page in self.data_pages]
        return page_column_index(self.leaf, self.column_order, stated)


def spliced(chunks: Sequence[InputChunk]) -> ColumnChunk:
    """Return all data pages of the chunks in order; none of them may need a dictionary."""
    leaf, order = chunks[0].leaf, chunks[0].column_order
    pages: list[Page] = [page for chunk in chunks for page in chunk.pages]
    locations: list[tuple[int, int, int]] | None = []
    position = row = 0
    for chunk in chunks:
        firsts = chunk.first_rows
        if locations is not None and firsts is not None:
            # A page without rows has no entry of its own in an offset index: the column then has none.
            if any(page.values == 0 for page in chunk.data_pages):
                locations = None
            else:
                locations += [
                    (page.start + position, page.end - page.start, row + first)
                    for page, first in zip(chunk.data_pages, firsts, strict=True)
                ]
        else:
            locations = None
        position += len(chunk.data)
        row += chunk.rows
    index = PageIndex()
    if locations is not None:
        column_index = merged_column_index(leaf, order, [chunk.pages_index for chunk in chunks])
        index = PageIndex(column_index, offset_index(locations))
    metadata = merged_metadata(
        leaf,
        order,
        [chunk.metadata for chunk in chunks],
        pages=counted_pages(pages),
        compressed_bytes=position,
        uncompressed_bytes=sum(page.header_bytes + page.uncompressed_bytes for page in pages),
    )
    return ColumnChunk(leaf, metadata, index, tuple(chunk.data for chunk in chunks))


def unwrapped(chunks: Sequence[InputChunk]) -> ColumnChunk | None:
    """Return chunks whose dictionaries hold each value once and in order as PLAIN pages; None if one does not.

    The stored dictionary page is the body of a PLAIN page. Plain pages after a fall-back follow as they are. The order
    is proved: the indices of all values are decoded and must be 0, 1, 2, ...
    """
    leaf, order = chunks[0].leaf, chunks[0].column_order
    if len(leaf.path) != 1 or leaf.repeated or leaf.physical == "BOOLEAN":
        return None
    if not all(_may_unwrap(chunk) for chunk in chunks) or not _in_order(chunks):
        return None
    pieces: list[Any] = []
    locations: list[tuple[int, int, int]] = []
    counts: Counter[tuple[int, int]] = Counter()
    stated: list[tuple[Struct | None, int]] = []
    position = row = uncompressed_bytes = 0
    for chunk in chunks:
        dictionary, plain = chunk.dictionary, [page for page in chunk.data_pages if not page.uses_dictionary]
        assert dictionary is not None
        values = dictionary.values
        prefix = plain_page_prefix(
            values=values,
            optional=leaf.optional,
            compressed=chunk.metadata.need(4, I32) != 0,
            body_bytes=dictionary.end - dictionary.body,
            plain_bytes=dictionary.uncompressed_bytes,
        )
        view = memoryview(chunk.data)
        pieces += [prefix, view[dictionary.body : dictionary.end]]
        size = len(prefix) + dictionary.end - dictionary.body
        locations.append((position, size, row))
        # The bounds of the chunk hold for a part of it too.
        stated.append((_without_nulls(chunk.metadata.get(12, STRUCT)), values))
        counts[DATA_V2, PLAIN] += 1
        uncompressed_bytes += len(prefix) + dictionary.uncompressed_bytes
        position += size
        row += values
        for page in plain:
            pieces.append(view[page.start : page.end])
            locations.append((position, page.end - page.start, row))
            stated.append((_without_nulls(page.statistics), page.values))
            counts[page.kind, page.encoding] += 1
            uncompressed_bytes += page.header_bytes + page.uncompressed_bytes
            position += page.end - page.start
            row += page.values
    metadata = merged_metadata(
        leaf,
        order,
        [chunk.metadata for chunk in chunks],
        pages=counts,
        compressed_bytes=position,
        uncompressed_bytes=uncompressed_bytes,
        keep_sizes=False,
    )
    column_index = page_column_index(leaf, order, stated)
    return ColumnChunk(leaf, metadata, PageIndex(column_index, offset_index(locations)), tuple(pieces))


def _without_nulls(statistics: Struct | None) -> Struct | None:
    return statistics.replaced({3: (I64, 0)}) if statistics is not None else None


def _may_unwrap(chunk: InputChunk) -> bool:
    dictionary, pages = chunk.dictionary, chunk.data_pages
    if dictionary is None or dictionary.encoding not in (0, 2) or not dictionary.values:
        return False
    statistics = chunk.metadata.get(12, STRUCT)
    if chunk.leaf.optional and (statistics is None or statistics.get(3, I64) != 0):
        return False
    wrapped = [page.uses_dictionary for page in pages]
    count = sum(wrapped)
    return (
        all(wrapped[:count])
        and all(page.encoding == PLAIN and page.rle_levels and page.values for page in pages[count:])
        and sum(page.values for page in pages[:count]) == dictionary.values
    )


def _in_order(chunks: Sequence[InputChunk]) -> bool:
    """Whether the values of each chunk's dictionary pages have the indices 0, 1, 2, ... and none is null.

    The dictionary is replaced by the numbers themselves, so that pyarrow's decoder returns the indices.
    """
    codec = CODECS[chunks[0].metadata.need(4, I32)].lower()
    dictionaries: dict[int, bytes] = {}
    row_groups: list[tuple[int, list[tuple[Struct, Any]]]] = []
    for chunk in chunks:
        dictionary = chunk.dictionary
        assert dictionary is not None
        count = dictionary.values
        if count not in dictionaries:
            plain = np.arange(count, dtype="<i4").tobytes()
            stored = plain if codec == "uncompressed" else pa.compress(plain, codec, asbytes=True)
            dictionaries[count] = dictionary_page(count, plain, stored)
        end = max(page.end for page in chunk.data_pages if page.uses_dictionary)
        data = dictionaries[count] + chunk.data[dictionary.end : end]
        meta = Struct(
            {
                1: (I32, 1),
                2: (LIST, ThriftList(I32, [0, 3, 8])),
                3: (LIST, ThriftList(BINARY, [b"x"])),
                4: chunk.metadata.fields[4],
                5: (I64, count),
                6: (I64, len(data)),
                7: (I64, len(data)),
                9: (I64, len(dictionaries[count])),
                11: (I64, 0),
            }
        )
        row_groups.append((count, [(meta, data)]))
    element = Struct({1: (I32, 1), 3: (I32, int(chunks[0].leaf.optional)), 4: (BINARY, b"x")})
    file = pq.ParquetFile(pa.BufferReader(column_file([element], row_groups)), pre_buffer=False)
    for group, (count, _) in enumerate(row_groups):
        indices = file.read_row_group(group, use_threads=False).column(0)
        if indices.null_count or not np.array_equal(indices.to_numpy(), np.arange(count, dtype="<i4")):
            return False
    return True

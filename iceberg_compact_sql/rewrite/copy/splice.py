"""Makes output row groups of many small ones, column by column, each in the cheapest way that its chunks allow.

Spliced: pages as they are, laid end to end. Unwrapped: dictionaries that hold each value once become PLAIN pages.
Encoded: decoded and encoded once. The columns of one row group may go different ways.

A row group is a list of chunks, one for each leaf column. Row lineage, which inputs need not store, is made for each
output row group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.events import ThreadPool, reach, stop_if_cancelled
from iceberg_compact_sql.garbage_collector import garbage_collector_off
from iceberg_compact_sql.parquet.chunk import ColumnChunk
from iceberg_compact_sql.parquet.column_file import column_elements, leaf_ranges
from iceberg_compact_sql.parquet.footer import CODECS, FooterError, ParquetFooter, read_range
from iceberg_compact_sql.parquet.page_index import PageIndex, read_chunk_index, read_page_indexes
from iceberg_compact_sql.parquet.pages import PLAIN, SELF_CONTAINED
from iceberg_compact_sql.parquet.ranges import read_ranges
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.splice import InputChunk, spliced, unwrapped
from iceberg_compact_sql.parquet.thrift import I32, I64, Struct
from iceberg_compact_sql.rewrite.copy.lineage_chunks import last_updated_chunk, row_id_chunk
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.scan.inputs import input_errors
from iceberg_compact_sql.rewrite.scan.lineage import LINEAGE
from iceberg_compact_sql.rewrite.write.column_encoder import ColumnEncoder
from iceberg_compact_sql.rewrite.write.nan_counts import NanCounts, StoredRowGroup, float_columns
from iceberg_compact_sql.rewrite.write.output_file import ChunkedRowGroup
from iceberg_compact_sql.rewrite.write.settings import WriterSettings
from iceberg_compact_sql.storage.locations import split_location

# Smaller pages cost readers more than they save here: 10 us for each page and column.
MIN_PAGE_BYTES = 64 * 1024
MIN_PAGE_ROWS = 10_000
# Chunks of a top-level column, NaN counts by field id, and whether nothing was decoded.
_MadeColumn = tuple[tuple[ColumnChunk, ...], dict[int, int], bool]


@dataclass(eq=False)
class InputRowGroup:
    """A row group of an input with its chunks; their bytes are read when they are needed.

    Row groups of large files on remote stores are read with one request when they are added.
    """

    reader: InputReader
    row_group: SliceRowGroup
    _loaded: list[bytes] | None = field(default=None, repr=False)
    _indexes: list[PageIndex] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if split_location(self.reader.slice.path).is_local or isinstance(self.reader.file, pa.BufferReader):
            return
        with input_errors(self.reader.slice.path):
            self._loaded = read_ranges(self.reader.file, self._info.chunk_ranges)
            self._indexes = read_page_indexes(self.reader.file, self.footer, [self._info])[self._info.index]

    @property
    def footer(self) -> ParquetFooter:
        assert self.reader.footer is not None
        return self.reader.footer

    @property
    def base(self) -> ParquetFooter:
        assert self.reader.base is not None
        return self.reader.base

    @cached_property
    def _info(self) -> Any:
        return self.footer.row_groups[self.row_group.index]

    @cached_property
    def trees(self) -> list[tuple[Struct, Struct]]:
        return self.footer.column_trees(self.row_group.index)

    def chunk(self, leaf: int) -> InputChunk:
        """Return a chunk with its bytes; errors of the store name the file."""
        start, end = self._info.chunk_ranges[leaf]
        struct, meta = self.trees[leaf]
        column = self.footer.leaves[leaf]
        if self._loaded is not None:
            data = self._loaded[leaf]
        else:
            with input_errors(self.reader.slice.path):
                data = read_range(self.reader.file, start, end - start)
        orders = self.footer.column_orders
        changes: dict[int, tuple[int, Any] | None] = {9: (I64, meta.need(9, I64) - start), 11: None}
        if start != meta.need(9, I64):
            changes[11] = (I64, 0)
        return InputChunk(
            leaf=column,
            metadata=meta.replaced(changes),
            rows=self.row_group.rows,
            data=data,
            column_order=None if orders is None else orders[leaf],
            read_index=lambda: self._page_index(struct, column, start),
        )

    def _page_index(self, struct: Struct, leaf: LeafColumn, start: int) -> PageIndex:
        """Return the page indexes of a chunk that are needed; offsets count from `start`."""
        if self._indexes is not None:
            index = self._indexes[leaf.index]
        else:
            file = self.reader.file
            with input_errors(self.reader.slice.path):
                offset_index = read_chunk_index(file, self.footer, struct, 4) if leaf.repeated else None
                index = PageIndex(read_chunk_index(file, self.footer, struct, 6), offset_index)
        moved = index.shifted(-start)
        return PageIndex(index.column_index, moved.offset_index)


@dataclass(frozen=True, slots=True)
class SplicedRowGroup:
    """A finished row group, and how many of its chunks were made without decoding."""

    row_group: ChunkedRowGroup
    spliced_columns: int


class RowGroupSplicer:
    """Makes row groups of many; columns are made by several threads, memory holds one decoded column for each."""

    def __init__(self, settings: WriterSettings, encoder: ColumnEncoder, pool: ThreadPool | None) -> None:
        self._settings = settings
        self._encoder = encoder
        self._pool = pool
        self._encodings = SELF_CONTAINED if settings.page_version == "2.0" else frozenset({PLAIN})
        self._with_bloom = {bloom.column_path for bloom in settings.blooms}

    def splice(self, row_groups: Sequence[InputRowGroup]) -> SplicedRowGroup:
        """Return one row group with the rows of all in order; they share one schema and have no deletes.

        Raises FooterError or an Arrow error if a column cannot be made alone: decode the row groups instead.
        """
        base = row_groups[0].base
        rows = sum(entry.row_group.rows for entry in row_groups)
        reach("rewrite.splice", row_groups=len(row_groups), rows=rows)
        columns = column_elements(base)
        work: list[Callable[[], _MadeColumn]] = [
            partial(self._column, elements, leaves, row_groups)
            for elements, leaves in zip(columns, leaf_ranges(columns), strict=True)
        ]
        if row_groups[0].reader.has_lineage:
            inputs = [(entry.reader, entry.row_group) for entry in row_groups]
            work[-len(LINEAGE) :] = [
                partial(self._lineage, make_chunk, base, inputs) for make_chunk in (row_id_chunk, last_updated_chunk)
            ]
        # Nothing becomes garbage here but a few small objects of each input.
        with garbage_collector_off():
            made = self._made(work)
        chunks = tuple(chunk for column in made for chunk in column[0])
        nan_counts = {field_id: count for column in made for field_id, count in column[1].items()}
        spliced_columns = sum(len(column[0]) for column in made if column[2])
        return SplicedRowGroup(ChunkedRowGroup(rows, base, chunks, nan_counts), spliced_columns)

    def _made(self, work: Sequence[Callable[[], _MadeColumn]]) -> list[_MadeColumn]:
        if self._pool is None:
            return [make() for make in work]
        futures = [self._pool.submit(make) for make in work]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def _lineage(
        self,
        make_chunk: Callable[[ParquetFooter, Sequence[tuple[InputReader, SliceRowGroup]], ColumnEncoder], ColumnChunk],
        base: ParquetFooter,
        inputs: Sequence[tuple[InputReader, SliceRowGroup]],
    ) -> _MadeColumn:
        stop_if_cancelled()
        return (make_chunk(base, inputs, self._encoder),), {}, False

    def _column(self, elements: Sequence[Struct], leaves: range, row_groups: Sequence[InputRowGroup]) -> _MadeColumn:
        """Return the chunks of a top-level column, its NaN counts, and whether nothing was decoded."""
        stop_if_cancelled()
        inputs = [[entry.chunk(leaf) for leaf in leaves] for entry in row_groups]
        by_leaf = [[chunks[position] for chunks in inputs] for position in range(len(leaves))]
        if all(self._may_splice(chunks) for chunks in by_leaf):
            chunks_made = tuple(self._without_statistics(spliced(chunks)) for chunks in by_leaf)
            return chunks_made, _nan_counts(leaves, row_groups), True
        if len(leaves) == 1 and self._may_unwrap(by_leaf[0]):
            chunk = unwrapped(by_leaf[0])
            if chunk is not None:
                return (self._without_statistics(chunk),), _nan_counts(leaves, row_groups), True
        del by_leaf
        encoded = self._encoder.encode(elements, inputs)
        pa.default_memory_pool().release_unused()
        return encoded.chunks, dict(encoded.nan_counts), False

    def _may_splice(self, chunks: Sequence[InputChunk]) -> bool:
        if not self._is_kept(chunks) or any(chunk.metadata.get(11, I64) is not None for chunk in chunks):
            return False
        if not _are_large(chunks, len(chunks), sum(chunk.metadata.need(6, I64) for chunk in chunks)):
            return False
        pages = [page for chunk in chunks for page in chunk.pages]
        return all(
            page.is_data and page.encoding in self._encodings and page.rle_levels and page.values for page in pages
        ) and _are_large(chunks, len(pages), sum(page.uncompressed_bytes for page in pages))

    def _may_unwrap(self, chunks: Sequence[InputChunk]) -> bool:
        if not self._is_kept(chunks) or any(chunk.metadata.get(11, I64) is None for chunk in chunks):
            return False
        if not _are_large(chunks, len(chunks), sum(chunk.metadata.need(6, I64) for chunk in chunks)):
            return False
        plain = [page for chunk in chunks for page in chunk.pages if not page.uses_dictionary]
        return _are_large(chunks, len(plain), sum(page.uncompressed_bytes for page in plain))

    def _is_kept(self, chunks: Sequence[InputChunk]) -> bool:
        """Whether the table's settings allow the chunks as they are: their codec, and no bloom filter to be made."""
        return chunks[0].leaf.name not in self._with_bloom and all(
            CODECS[chunk.metadata.need(4, I32)] == self._settings.codec for chunk in chunks
        )

    def _without_statistics(self, chunk: ColumnChunk) -> ColumnChunk:
        if chunk.leaf.name not in self._settings.columns_without_statistics:
            return chunk
        index = PageIndex(None, chunk.page_index.offset_index)
        return ColumnChunk(chunk.leaf, chunk.metadata.replaced({12: None}), index, chunk.pieces)


def _nan_counts(leaves: range, row_groups: Sequence[InputRowGroup]) -> dict[int, int]:
    """Return the NaN counts by field id of the floats among the leaves that are known of every row group."""
    counts = NanCounts()
    if float_columns(row_groups[0].footer.leaves[leaves.start : leaves.stop]):
        for entry in row_groups:
            stored = StoredRowGroup.of(entry.reader, entry.row_group.index)
            counts.add(stored.known_counts(stored.footer.leaves[leaves.start : leaves.stop]))
    return counts.totals()


def _are_large(chunks: Sequence[InputChunk], pages: int, uncompressed_bytes: int) -> bool:
    rows = sum(chunk.rows for chunk in chunks)
    return pages > 0 and (uncompressed_bytes >= MIN_PAGE_BYTES * pages or rows >= MIN_PAGE_ROWS * pages)


# Also errors of a codec: decoding the row groups then names the damaged file.
SPLICE_ERRORS = (FooterError, pa.ArrowException, OSError, ArithmeticError, LookupError, ValueError, TypeError)

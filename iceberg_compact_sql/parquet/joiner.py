"""Joins column chunks of many Parquet files into one file: whole row groups, or row groups made chunk by chunk."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.parquet.chunk import ColumnChunk, chunks_of
from iceberg_compact_sql.parquet.footer import MAGIC, FooterError, ParquetFooter, parse_footer
from iceberg_compact_sql.parquet.last_columns import LastColumns
from iceberg_compact_sql.parquet.page_index import PageIndex, bloom_filter_ranges, read_page_indexes
from iceberg_compact_sql.parquet.ranges import merged_spans, read_ahead
from iceberg_compact_sql.parquet.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftList,
    write_struct,
)
from iceberg_compact_sql.version import CREATED_BY

_MAX_ORDINAL = 0x7FFF


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """Bytes [position, position + length) of an output, as they were read from an input, and their CRC-32."""

    position: int
    length: int
    crc32: int
    row_groups: int
    rows: int


class CopiedBytesError(ValueError):
    """An output does not hold the bytes that were copied into it."""


class RowGroupJoiner:
    """Writes one Parquet file from row groups and column chunks, in the order of the calls.

    `sink` needs only `write` and stays open. Memory holds a few blocks of some MB, the footer entries and the page
    indexes. `copy` raises a FooterError before it writes a byte; after any other exception the output is unusable.
    """

    def __init__(
        self,
        sink: Any,
        base: ParquetFooter,
        *,
        key_value_metadata: Mapping[str, bytes] | None = None,
        created_by: str = CREATED_BY,
    ) -> None:
        self.position = 0
        self.rows = 0
        self._sink = sink
        self._base = base
        self._key_value_metadata = dict(key_value_metadata or {})
        # Readers in Java distrust statistics of writers whose name is not of the form "<name> version <number>".
        self._created_by = created_by if " version " in created_by else f"{created_by} version 0"
        self._version: int = base.tree.get(1, I32) or 1
        self._groups: list[tuple[Struct, list[tuple[Struct, PageIndex]]]] = []
        self._finished = False
        self._write(MAGIC)

    @property
    def row_groups(self) -> int:
        return len(self._groups)

    def copy(
        self, source: Any, footer: ParquetFooter, indexes: Sequence[int], last: LastColumns | None = None
    ) -> CopiedRange:
        """Append row groups of an open file; those without rows are left out.

        Statistics, encodings, sort columns and unknown fields stay as they are; every offset is adjusted. Page indexes
        and bloom filters are copied too, unless they are damaged. `last` belongs to a single row group.
        """
        if self._finished:
            raise ValueError("the file is finished")
        if last is not None and len(indexes) != 1:
            raise ValueError(f"last columns are for one row group, not for {len(indexes)}")
        if (footer if last is None else last.base).signature != self._base.signature:
            raise FooterError("the schemas of the row groups differ")
        copied_leaves = len(footer.leaves) - (0 if last is None else last.replaced)
        chosen = [footer.row_groups[index] for index in indexes if footer.row_groups[index].rows]
        page_indexes = read_page_indexes(source, footer, chosen)
        bloom_filters = {group.index: bloom_filter_ranges(source, footer, group) for group in chosen}
        reach("rewrite.copy", row_groups=len(chosen))
        position, rows, crc32 = self.position, self.rows, 0
        self._version = max(self._version, footer.tree.get(1, I32) or 1)
        for group in chosen:
            blooms = {leaf: span for leaf, span in bloom_filters[group.index].items() if leaf < copied_leaves}
            starts, crc32 = self._copy_ranges(source, group.chunk_ranges[:copied_leaves], crc32)
            tree = footer.row_group_tree(group.index)
            chunks = chunks_of(footer, group, page_indexes[group.index])[:copied_leaves]
            if last is not None:
                for chunk in last.chunks:
                    starts.append(self.position)
                    crc32 = self._write_pieces(chunk, crc32)
                chunks += [replace(chunk, pieces=()) for chunk in last.chunks]
                tree = last.with_sizes(tree, chunks)
            # The format allows bloom filters between row groups or before the footer; written here, they need no
            # memory.
            bloom_starts, crc32 = self._copy_ranges(source, list(blooms.values()), crc32)
            bloom_positions = dict(zip(blooms, bloom_starts, strict=True))
            places = {leaf: (bloom_positions[leaf], blooms[leaf][1] - blooms[leaf][0]) for leaf in bloom_positions}
            self._add(tree, group.rows, chunks, starts, places)
        return CopiedRange(position, self.position - position, crc32, len(chosen), self.rows - rows)

    def append(self, rows: int, chunks: Sequence[ColumnChunk] | Iterator[ColumnChunk]) -> CopiedRange:
        """Append a row group of these chunks, one for each leaf column in order; each may come from another place.

        Chunks are taken one at a time, so that memory holds the bytes of one. An iterator may fail: the output is
        unusable afterwards.
        """
        if self._finished:
            raise ValueError("the file is finished")
        position, crc32 = self.position, 0
        placed: list[ColumnChunk] = []
        starts: list[int] = []
        places: dict[int, tuple[int, int]] = {}
        uncompressed_bytes = 0
        for leaf, chunk in enumerate(chunks):
            starts.append(self.position)
            crc32 = self._write_pieces(chunk, crc32)
            uncompressed_bytes += chunk.uncompressed_bytes
            if chunk.bloom_filter is not None:
                places[leaf] = (self.position, len(chunk.bloom_filter))
                crc32 = zlib.crc32(chunk.bloom_filter, crc32)
                self._write(chunk.bloom_filter)
            placed.append(replace(chunk, pieces=(), bloom_filter=None))
        if len(placed) != len(self._base.leaves):
            raise ValueError(f"{len(placed)} chunks were given for {len(self._base.leaves)} columns")
        compressed_bytes = sum(chunk.metadata.need(7, I64) for chunk in placed)
        tree = Struct(
            {
                1: (LIST, ThriftList(STRUCT, [])),
                2: (I64, uncompressed_bytes),
                3: (I64, rows),
                5: (I64, 0),
                6: (I64, compressed_bytes),
                7: (I16, 0),
            }
        )
        self._add(tree, rows, placed, starts, places)
        return CopiedRange(position, self.position - position, crc32, 1, rows)

    def finish(self) -> ParquetFooter:
        """Write page indexes and footer; return the footer, parsed from the written bytes."""
        if self._finished:
            raise ValueError("the file is finished")
        self._finished = True
        for _, chunks in self._groups:
            for leaf, (chunk, index) in enumerate(chunks):
                if index.column_index is not None:
                    location = {6: (I64, self.position), 7: (I32, len(index.column_index))}
                    self._write(index.column_index)
                    chunks[leaf] = (chunk.replaced(location), index)
        for _, chunks in self._groups:
            for leaf, (chunk, index) in enumerate(chunks):
                if index.offset_index is not None:
                    location = {4: (I64, self.position), 5: (I32, len(index.offset_index))}
                    self._write(index.offset_index)
                    chunks[leaf] = (chunk.replaced(location), index)
        raw = write_struct(self._tree())
        footer = parse_footer(raw, data_end=self.position)
        self._write(raw + len(raw).to_bytes(4, "little") + MAGIC)
        return footer

    def _write(self, data: Any) -> None:
        self._sink.write(data)
        self.position += len(data)

    def _write_pieces(self, chunk: ColumnChunk, crc32: int) -> int:
        for piece in chunk.pieces:
            crc32 = zlib.crc32(piece, crc32)
            self._write(piece)
        return crc32

    def _copy_ranges(self, source: Any, ranges: Sequence[tuple[int, int]], crc32: int) -> tuple[list[int], int]:
        """Copy ranges, adjacent ones together; return each range's new start and the running CRC."""
        spans = merged_spans(ranges)
        starts: dict[int, int] = {}
        position = self.position
        for start, end, members in spans:
            for member in members:
                starts[member] = position + ranges[member][0] - start
            position += end - start
        for block in read_ahead(source, [(start, end) for start, end, _ in spans]):
            crc32 = zlib.crc32(block, crc32)
            self._write(block)
        return [starts[member] for member in range(len(ranges))], crc32

    def _add(
        self,
        tree: Struct,
        rows: int,
        chunks: Sequence[ColumnChunk],
        starts: Sequence[int],
        blooms: Mapping[int, tuple[int, int]],
    ) -> None:
        """Record a row group whose chunks are written at `starts`; `blooms` are places of bloom filters by leaf."""
        changes: dict[int, tuple[int, Any] | None] = {}
        if 5 in tree.fields:
            changes[5] = (I64, min(starts))
        if 7 in tree.fields:
            changes[7] = (I16, len(self._groups)) if len(self._groups) <= _MAX_ORDINAL else None
        placed = [chunk.placed(starts[leaf], blooms.get(leaf)) for leaf, chunk in enumerate(chunks)]
        self._groups.append((tree.replaced(changes), placed))
        self.rows += rows

    def _tree(self) -> Struct:
        base = self._base.tree.fields
        groups = [
            tree.replaced({1: (LIST, ThriftList(STRUCT, [chunk for chunk, _ in chunks]))})
            for tree, chunks in self._groups
        ]
        fields: dict[int, tuple[int, Any]] = {
            1: (I32, self._version),
            2: base[2],
            3: (I64, self.rows),
            4: (LIST, ThriftList(STRUCT, groups)),
        }
        if self._key_value_metadata:
            pairs = [
                Struct({1: (BINARY, key.encode()), 2: (BINARY, value)})
                for key, value in self._key_value_metadata.items()
            ]
            fields[5] = (LIST, ThriftList(STRUCT, pairs))
        fields[6] = (BINARY, self._created_by.encode())
        if 7 in base:
            fields[7] = base[7]
        # Other fields of the base footer describe that file as a whole, not its row groups: they are not copied.
        return Struct(fields)


def verify_copied(file: Any, ranges: Iterable[CopiedRange]) -> None:
    """Read copied ranges back; raise CopiedBytesError when their CRC-32 differs from that of the inputs."""
    for copied in ranges:
        crc32 = 0
        for block in read_ahead(file, [(copied.position, copied.position + copied.length)]):
            crc32 = zlib.crc32(block, crc32)
        if crc32 != copied.crc32:
            raise CopiedBytesError(
                f"{copied.length} bytes at {copied.position} read back with CRC-32 {crc32:08x}, not {copied.crc32:08x}"
            )

"""Joins row groups of many Parquet files into one file, byte for byte; only the footer is new."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.parquet.footer import MAGIC, FooterError, ParquetFooter, RowGroupInfo, parse_footer
from iceberg_compact_sql.parquet.page_index import PageIndex, bloom_filter_ranges, read_page_indexes
from iceberg_compact_sql.parquet.ranges import merged_spans, read_ahead
from iceberg_compact_sql.parquet.schema import LeafColumn
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
from iceberg_compact_sql.parquet.uuid_order import uuid_orders_agree
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
    """Writes one Parquet file from row groups of others, in the order of the calls.

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

    def copy(self, source: Any, footer: ParquetFooter, indexes: Sequence[int]) -> CopiedRange:
        """Append row groups of an open file; those without rows are left out.

        Statistics, encodings, sort columns and unknown fields stay as they are; every offset is adjusted. Page indexes
        and bloom filters are copied too, unless they are damaged.
        """
        if self._finished:
            raise ValueError("the file is finished")
        if footer.signature != self._base.signature:
            raise FooterError("the schemas of the row groups differ")
        chosen = [footer.row_groups[index] for index in indexes if footer.row_groups[index].rows]
        page_indexes = read_page_indexes(source, footer, chosen)
        bloom_filters = {group.index: bloom_filter_ranges(source, footer, group) for group in chosen}
        reach("rewrite.copy", row_groups=len(chosen))
        position, rows, crc32 = self.position, self.rows, 0
        self._version = max(self._version, footer.tree.get(1, I32) or 1)
        for group in chosen:
            blooms = bloom_filters[group.index]
            moved, crc32 = self._copy_ranges(source, group.chunk_ranges, crc32)
            # The format allows bloom filters between row groups or before the footer; written here, they need no
            # memory.
            bloom_starts, crc32 = self._copy_ranges(source, list(blooms.values()), crc32)
            bloom_positions = dict(zip(blooms, bloom_starts, strict=True))
            self._append(footer, group, moved, blooms, bloom_positions, page_indexes[group.index])
        return CopiedRange(position, self.position - position, crc32, len(chosen), self.rows - rows)

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

    def _append(
        self,
        footer: ParquetFooter,
        group: RowGroupInfo,
        starts: Sequence[int],
        blooms: Mapping[int, tuple[int, int]],
        bloom_positions: Mapping[int, int],
        page_indexes: Sequence[PageIndex],
    ) -> None:
        chunks: list[tuple[Struct, PageIndex]] = []
        for leaf, (chunk, meta) in enumerate(footer.column_trees(group.index)):
            old_start, old_end = group.chunk_ranges[leaf]
            shift = starts[leaf] - old_start
            changes: dict[int, tuple[int, Any] | None] = {14: None, 15: None}
            for field_id in (9, 10, 11):
                offset = meta.get(field_id, I64)
                if offset is not None:
                    inside = old_start <= offset < old_end
                    # Zero or an offset outside the chunk means that there is no such page.
                    changes[field_id] = (I64, offset + shift) if inside else None
            if leaf in bloom_positions:
                changes[14] = (I64, bloom_positions[leaf])
                changes[15] = (I32, blooms[leaf][1] - blooms[leaf][0])
            statistics, page_index = meta.get(12, STRUCT), page_indexes[leaf]
            if statistics is not None and footer.leaves[leaf].physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
                # Readers derive the order of the deprecated min and max from the writer's name, which changes here.
                changes[12] = (STRUCT, statistics.replaced({1: None, 2: None}))
            if _has_misleading_uuid_bounds(footer.leaves[leaf], statistics):
                # Keep the counts; remove the bounds of the row group and of its pages, see `uuid_orders_agree`.
                if statistics is not None:
                    changes[12] = (STRUCT, statistics.replaced(dict.fromkeys((1, 2, 5, 6, 7, 8))))
                page_index = PageIndex(None, page_index.offset_index)
            file_offset = chunk.get(2, I64) or 0
            inside = old_start <= file_offset <= old_end
            moved: dict[int, tuple[int, Any] | None] = {4: None, 5: None, 6: None, 7: None}
            moved[2] = (I64, file_offset + shift if inside else 0)
            moved[3] = (STRUCT, meta.replaced(changes))
            chunks.append((chunk.replaced(moved), page_index.shifted(shift)))
        tree = footer.row_group_tree(group.index)
        row_group_changes: dict[int, tuple[int, Any] | None] = {}
        if 5 in tree.fields:
            row_group_changes[5] = (I64, min(starts))
        if 7 in tree.fields:
            row_group_changes[7] = (I16, len(self._groups)) if len(self._groups) <= _MAX_ORDINAL else None
        self._groups.append((tree.replaced(row_group_changes), chunks))
        self.rows += group.rows

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


def _has_misleading_uuid_bounds(leaf: LeafColumn, statistics: Struct | None) -> bool:
    """Whether the bounds of a uuid column are unknown, or wrong for readers that compare signed numbers."""
    if leaf.logical is None or leaf.logical[0] != "UUID":
        return False
    least = None if statistics is None else statistics.get(6, BINARY)
    greatest = None if statistics is None else statistics.get(5, BINARY)
    return least is None or greatest is None or not uuid_orders_agree(least, greatest)


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

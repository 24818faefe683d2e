"""Column chunks apart from their place in a file: what a joiner writes, and what an input file has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from iceberg_compact_sql.parquet.footer import ParquetFooter, RowGroupInfo
from iceberg_compact_sql.parquet.page_index import PageIndex
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, STRUCT, Struct
from iceberg_compact_sql.parquet.uuid_order import uuid_orders_agree


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """A chunk without a place: offsets in `metadata` and `page_index` count from its first byte.

    `pieces` are its bytes in order. They are empty for a chunk whose bytes the joiner copies from another file.
    """

    leaf: LeafColumn
    metadata: Struct
    page_index: PageIndex
    pieces: tuple[Any, ...] = field(default=(), repr=False)
    # The bloom filter with its header.
    bloom_filter: bytes | None = field(default=None, repr=False)
    # The ColumnChunk struct of the input; fields that are not known to us survive a copy.
    struct: Struct = field(default_factory=lambda: Struct({}), repr=False)

    @property
    def uncompressed_bytes(self) -> int:
        size: int = self.metadata.need(6, I64)
        return size

    def placed(self, start: int, bloom: tuple[int, int] | None) -> tuple[Struct, PageIndex]:
        """Return the ColumnChunk struct and the page index of the chunk at offset `start` of a file.

        `bloom` is the position and the length of its bloom filter. Bounds that mislead readers are left out.
        """
        changes: dict[int, tuple[int, Any] | None] = {14: None, 15: None}
        for field_id in (9, 10, 11):
            offset = self.metadata.get(field_id, I64)
            if offset is not None:
                changes[field_id] = (I64, offset + start)
        if bloom is not None:
            changes[14], changes[15] = (I64, bloom[0]), (I32, bloom[1])
        statistics, page_index = self.metadata.get(12, STRUCT), self.page_index
        if statistics is not None and self.leaf.physical in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
            # Readers derive the order of the deprecated min and max from the writer's name, which changes here.
            changes[12] = (STRUCT, statistics.replaced({1: None, 2: None}))
        if _has_misleading_uuid_bounds(self.leaf, statistics):
            # Keep the counts; remove the bounds of the row group and of its pages, see `uuid_orders_agree`.
            if statistics is not None:
                changes[12] = (STRUCT, statistics.replaced(dict.fromkeys((1, 2, 5, 6, 7, 8))))
            page_index = PageIndex(None, page_index.offset_index)
        file_offset = self.struct.get(2, I64)
        moved: dict[int, tuple[int, Any] | None] = dict.fromkeys((4, 5, 6, 7))
        moved[2] = (I64, start + file_offset if file_offset is not None and file_offset >= 0 else 0)
        moved[3] = (STRUCT, self.metadata.replaced(changes))
        return self.struct.replaced(moved), page_index.shifted(start)


def chunks_of(footer: ParquetFooter, group: RowGroupInfo, page_indexes: Sequence[PageIndex]) -> list[ColumnChunk]:
    """Return the chunks of a row group without their bytes, in the order of the leaf columns."""
    return [
        _input_chunk(footer.leaves[leaf], struct, meta, group.chunk_ranges[leaf], page_indexes[leaf])
        for leaf, (struct, meta) in enumerate(footer.column_trees(group.index))
    ]


def _input_chunk(
    leaf: LeafColumn, struct: Struct, meta: Struct, chunk_range: tuple[int, int], page_index: PageIndex
) -> ColumnChunk:
    start, end = chunk_range
    changes: dict[int, tuple[int, Any] | None] = {}
    for field_id in (9, 10, 11):
        offset = meta.get(field_id, I64)
        if offset is not None:
            # Zero or an offset outside the chunk means that there is no such page.
            changes[field_id] = (I64, offset - start) if start <= offset < end else None
    file_offset = struct.get(2, I64) or 0
    inside = start <= file_offset <= end
    return ColumnChunk(
        leaf,
        meta.replaced(changes),
        page_index.shifted(-start),
        struct=struct.replaced({2: (I64, file_offset - start if inside else -1)}),
    )


def _has_misleading_uuid_bounds(leaf: LeafColumn, statistics: Struct | None) -> bool:
    """Whether the bounds of a uuid column are unknown, or wrong for readers that compare signed numbers."""
    if leaf.logical is None or leaf.logical[0] != "UUID":
        return False
    least = None if statistics is None else statistics.get(6, BINARY)
    greatest = None if statistics is None else statistics.get(5, BINARY)
    return least is None or greatest is None or not uuid_orders_agree(least, greatest)

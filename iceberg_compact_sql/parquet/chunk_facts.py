"""Offsets, sizes and statistics of column chunks, from the footer.

pyarrow's accessors for them end the whole process when a footer is damaged: a C++ exception escapes them. Its readers
of rows raise instead. So our own parser reads these values from the footer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.parquet.footer import FooterError, read_footer_tree
from iceberg_compact_sql.parquet.schema import PHYSICAL_TYPES
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, STRUCT, Struct

_TYPE_DEFINED_ORDER = 1
_INTEGER_BYTES = {"INT32": 4, "INT64": 8}
# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED and RLE_DICTIONARY; not the DELTA encodings of version 2 pages.
_READABLE_AS_DICTIONARY = frozenset({0, 2, 3, 4, 8})


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """Statistics of a column chunk; None for values that the footer lacks or that cannot be trusted.

    `low` and `high` are both set or both None: integers for INT32 and INT64, bytes for BYTE_ARRAY.
    """

    physical: str
    null_count: int | None
    low: int | bytes | None
    high: int | bytes | None


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """The column chunks of a file's row groups; reading a damaged entry raises FooterError."""

    tree: Struct

    @staticmethod
    def of(file: Any) -> ChunkFacts | None:
        """Return the facts of an open file; None if its footer cannot be parsed."""
        try:
            return ChunkFacts(read_footer_tree(file)[0])
        except FooterError:
            return None

    def extent(self, row_group: int) -> tuple[int, int]:
        """Return the offset of a row group's first page, and the bytes of all its pages."""
        starts, compressed_bytes = [], 0
        for meta in self._chunks(row_group):
            data, dictionary = meta.need(9, I64), meta.get(11, I64)
            starts.append(min(dictionary, data) if dictionary else data)
            compressed_bytes += meta.need(7, I64)
        start = min(starts, default=0)
        if start < 0 or compressed_bytes < 0:
            raise FooterError(f"row group {row_group} has the offset {start} and {compressed_bytes} bytes")
        return start, compressed_bytes

    def statistics(self, row_group: int, leaf: int) -> ChunkStatistics | None:
        """Return the statistics of a leaf column in a row group; None if there are none or they are damaged."""
        try:
            return self._statistics(row_group, leaf)
        except FooterError:
            return None

    def may_be_dictionary(self, row_group: int, leaf: int) -> bool:
        """Whether pyarrow can read a leaf column of a row group as a dictionary; some encodings do not allow it."""
        try:
            used = self._chunks(row_group)[leaf].elements(2, I32)
        except (FooterError, IndexError):
            return False
        return used is not None and _READABLE_AS_DICTIONARY.issuperset(used)

    def _statistics(self, row_group: int, leaf: int) -> ChunkStatistics | None:
        chunks = self._chunks(row_group)
        if leaf >= len(chunks):
            return None
        type_id, statistics = chunks[leaf].need(1, I32), chunks[leaf].get(12, STRUCT)
        if statistics is None or not 0 <= type_id < len(PHYSICAL_TYPES):
            return None
        physical = PHYSICAL_TYPES[type_id]
        low = high = None
        orders = self.tree.elements(7, STRUCT) or ()
        # Without a column order, the order of min_value and max_value is unknown; that of min and max always is.
        if leaf < len(orders) and _TYPE_DEFINED_ORDER in orders[leaf].fields:
            low, high = (_bound(physical, statistics.get(field_id, BINARY)) for field_id in (6, 5))
        if low is None or high is None:
            low = high = None
        return ChunkStatistics(physical, statistics.get(3, I64), low, high)

    def _chunks(self, row_group: int) -> list[Struct]:
        groups = self.tree.elements(4, STRUCT) or ()
        if row_group >= len(groups):
            raise FooterError(f"row group {row_group} is not among the {len(groups)} of the footer")
        return [chunk.need(3, STRUCT) for chunk in groups[row_group].elements(1, STRUCT) or ()]


def _bound(physical: str, raw: bytes | None) -> int | bytes | None:
    if raw is None or physical == "BYTE_ARRAY":
        return raw
    if len(raw) != _INTEGER_BYTES.get(physical):
        return None
    return int.from_bytes(raw, "little", signed=True)

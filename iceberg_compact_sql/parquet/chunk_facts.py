"""What a footer says of its column chunks: places, sizes and statistics.

pyarrow's accessors for them end the whole process when a footer is damaged: no exception of its C++ side leaves them.
Its readers of rows do raise. So these few facts are taken from the footer by our own parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iceberg_compact_sql.parquet.footer import FooterError, read_footer_tree
from iceberg_compact_sql.parquet.schema import PHYSICAL_TYPES
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, STRUCT, Struct

_TYPE_DEFINED_ORDER = 1
_INTEGER_BYTES = {"INT32": 4, "INT64": 8}
# PLAIN, PLAIN_DICTIONARY, RLE, BIT_PACKED and RLE_DICTIONARY; the DELTA ones of version 2 pages are not among them.
_AS_DICTIONARY = frozenset({0, 2, 3, 4, 8})


@dataclass(frozen=True, slots=True)
class ChunkStatistics:
    """Statistics of a column chunk; what the footer does not say, or not in a way to trust, is None.

    `low` and `high` are both there or both None: whole numbers of INT32 and INT64, bytes of BYTE_ARRAY.
    """

    physical: str
    null_count: int | None
    low: int | bytes | None
    high: int | bytes | None


@dataclass(frozen=True, slots=True)
class ChunkFacts:
    """The chunks of a file's row groups; a damaged entry is a FooterError when it is asked for."""

    tree: Struct

    @staticmethod
    def of(file: Any) -> ChunkFacts | None:
        """The facts of an open file; None where its footer cannot be walked."""
        try:
            return ChunkFacts(read_footer_tree(file)[0])
        except FooterError:
            return None

    def extent(self, row_group: int) -> tuple[int, int]:
        """Where a row group's first page starts, and how many bytes its pages take."""
        starts, compressed_bytes = [], 0
        for meta in self._chunks(row_group):
            data, dictionary = meta.need(9, I64), meta.get(11, I64)
            starts.append(min(dictionary, data) if dictionary else data)
            compressed_bytes += meta.need(7, I64)
        start = min(starts, default=0)
        if start < 0 or compressed_bytes < 0:
            raise FooterError(f"row group {row_group} is said to be at {start}, with {compressed_bytes} bytes")
        return start, compressed_bytes

    def statistics(self, row_group: int, leaf: int) -> ChunkStatistics | None:
        """The statistics of a leaf in a row group; None if there are none or they are damaged."""
        try:
            return self._statistics(row_group, leaf)
        except FooterError:
            return None

    def may_be_dictionary(self, row_group: int, leaf: int) -> bool:
        """Whether pyarrow can hand out the values of a leaf in a row group as a dictionary: not from every encoding."""
        try:
            used = self._chunks(row_group)[leaf].elements(2, I32)
        except (FooterError, IndexError):
            return False
        return used is not None and _AS_DICTIONARY.issuperset(used)

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
        # Without an order of the column the two bounds, and the older ones in any case, are in one that nobody knows.
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

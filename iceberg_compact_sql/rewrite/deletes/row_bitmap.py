"""The deleted rows of one file: one bit for each row, in blocks that exist only where rows are deleted."""

from __future__ import annotations

from typing import Any

import numpy as np

from iceberg_compact_sql.rewrite.scan.arrays import BoolMask, sorted_distinct

_BLOCK_ROWS = 1 << 16
_BLOCK_BYTES = _BLOCK_ROWS // 8

Positions = np.ndarray[Any, np.dtype[np.int64]]


class RowBitmap:
    """A set of row positions that needs at most one bit for each row of the file, however many are added.

    >>> deleted = RowBitmap()
    >>> deleted.add(np.array([1, 70_000, 1]))
    >>> deleted.count(0, 100_000), deleted.mask(0, 3).tolist()
    (2, [False, True, False])
    """

    def __init__(self) -> None:
        self._blocks: dict[int, np.ndarray[Any, np.dtype[np.uint8]]] = {}

    def add(self, positions: Positions) -> None:
        """Add positions in any order, also repeated ones; negative ones are ignored."""
        if len(positions) == 0:
            return
        ordered = sorted_distinct(positions)
        ordered = ordered[ordered >= 0]
        if len(ordered) == 0:
            return
        starts = np.flatnonzero(np.diff(ordered >> 3, prepend=-1))
        bits = np.bitwise_or.reduceat(np.left_shift(1, ordered & 7).astype(np.uint8), starts)
        octets = ordered[starts] >> 3
        blocks = octets // _BLOCK_BYTES
        cuts = np.flatnonzero(np.diff(blocks, prepend=-1))
        for first, last in zip(cuts, [*cuts[1:], len(blocks)], strict=True):
            block = self._blocks.setdefault(int(blocks[first]), np.zeros(_BLOCK_BYTES, dtype=np.uint8))
            block[octets[first:last] % _BLOCK_BYTES] |= bits[first:last]

    def mask(self, first: int, rows: int) -> BoolMask | None:
        """Return which of the rows [first, first + rows) are in the set; None if none of them is."""
        last = first + rows
        found: BoolMask | None = None
        for block in range(first // _BLOCK_ROWS, (last + _BLOCK_ROWS - 1) // _BLOCK_ROWS):
            if block not in self._blocks:
                continue
            start = block * _BLOCK_ROWS
            begin, end = max(first, start), min(last, start + _BLOCK_ROWS)
            bits = np.unpackbits(self._blocks[block], bitorder="little")[begin - start : end - start]
            if bits.any():
                found = np.zeros(rows, dtype=np.bool_) if found is None else found
                found[begin - first : end - first] = bits.view(np.bool_)
        return found

    def count(self, first: int, rows: int) -> int:
        """Return how many of the rows [first, first + rows) are in the set."""
        mask = self.mask(first, rows)
        return 0 if mask is None else int(np.count_nonzero(mask))

    def __bool__(self) -> bool:
        return bool(self._blocks)

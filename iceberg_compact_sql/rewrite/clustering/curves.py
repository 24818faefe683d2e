"""Space-filling curves over ranks: z-order and hilbert for any number of columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from iceberg_compact_sql.rewrite.clustering.words import Word

Ranks = npt.NDArray[np.uint32]
Curve = Callable[[Sequence[Ranks], int], Word]

# More bits for a column change the files that a filter reads by less than 1 %.
_MOST_BITS = 10
# Blocks that stay in the cache of a core take a third of the time.
_BLOCK_ROWS = 1 << 15


def rank_bits(columns: int, position_bytes: int | None = None) -> int:
    """Return the bits of each column's rank on a curve; a position on the curve is one word of at most 64 bits."""
    position_bits = 64 if position_bytes is None else min(64, 8 * position_bytes)
    return max(1, min(_MOST_BITS, position_bits // columns))


def zorder(ranks: Sequence[Ranks], bits: int) -> Word:
    """Return positions on the z-order curve: the bits of the columns, interleaved from the top."""
    return _in_blocks(_interleaved, ranks, bits)


def hilbert(ranks: Sequence[Ranks], bits: int) -> Word:
    """Return positions on the Hilbert curve: neighbours on the curve are neighbours in one column.

    Skilling, "Programming the Hilbert curve" (2004): coordinates are changed in place, bit by bit from the top, until
    their interleaved bits are the position.
    """
    return _in_blocks(_hilbert_block, ranks, bits)


CURVES: dict[str, Curve] = {"zorder": zorder, "hilbert": hilbert}


def _in_blocks(curve: Curve, ranks: Sequence[Ranks], bits: int) -> Word:
    rows = len(ranks[0])
    if rows == 0:
        return np.zeros(0, np.uint64)
    blocks = (
        curve([rank[start : start + _BLOCK_ROWS] for rank in ranks], bits) for start in range(0, rows, _BLOCK_ROWS)
    )
    return np.concatenate(list(blocks))


def _interleaved(ranks: Sequence[Ranks], bits: int) -> Word:
    positions = np.zeros(len(ranks[0]), np.uint64)
    columns = len(ranks)
    for index, rank in enumerate(ranks):
        wide = rank.astype(np.uint64)
        for bit in range(bits):
            place = np.uint64(bit * columns + columns - 1 - index)
            positions |= ((wide >> np.uint64(bit)) & np.uint64(1)) << place
    return positions


def _hilbert_block(ranks: Sequence[Ranks], bits: int) -> Word:
    axes = [rank.astype(np.uint32) for rank in ranks]
    first = axes[0]
    for bit in range(bits - 1, 0, -1):
        low = np.uint32((1 << bit) - 1)
        for axis in axes:
            is_set = (axis >> np.uint32(bit)) & np.uint32(1) != 0
            if axis is first:
                # Where the bit is set, invert the lower bits; exchanging them with themselves changes nothing.
                first ^= np.where(is_set, low, np.uint32(0))
                continue
            exchanged = np.where(is_set, np.uint32(0), (first ^ axis) & low)
            first ^= exchanged ^ np.where(is_set, low, np.uint32(0))
            axis ^= exchanged
    # Gray decoding.
    for before, axis in itertools.pairwise(axes):
        axis ^= before
    flips = np.zeros(len(first), np.uint32)
    for bit in range(bits - 1, 0, -1):
        is_set = (axes[-1] >> np.uint32(bit)) & np.uint32(1) != 0
        flips ^= np.where(is_set, np.uint32((1 << bit) - 1), np.uint32(0))
    return _interleaved([axis ^ flips for axis in axes], bits)

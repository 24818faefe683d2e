"""The curves visit every cell once; neighbours on the Hilbert curve touch."""

from __future__ import annotations

import numpy as np
import pytest

from iceberg_compact_sql.rewrite.clustering.curves import CURVES, hilbert, rank_bits, zorder


@pytest.mark.parametrize(("columns", "bits"), [(2, 1), (2, 5), (3, 4), (4, 3), (6, 2)])
def test_curves_are_one_to_one_and_hilbert_makes_steps_of_one(columns: int, bits: int) -> None:
    side = 1 << bits
    cells = [axis.ravel().astype(np.uint32) for axis in np.meshgrid(*[np.arange(side)] * columns, indexing="ij")]
    for curve in CURVES.values():
        positions = curve(cells, bits)
        assert sorted(positions.tolist()) == list(range(side**columns))
    order = np.argsort(hilbert(cells, bits))
    steps = sum(np.abs(np.diff(cell[order].astype(np.int64))) for cell in cells)
    assert np.all(steps == 1)


def test_zorder_interleaves_from_the_first_column() -> None:
    ranks = [np.array([0b10], np.uint32), np.array([0b11], np.uint32)]
    assert zorder(ranks, 2).tolist() == [0b1101]


def test_many_columns_share_one_word() -> None:
    for columns in (2, 6, 7, 20, 64):
        ranks = [np.full(3, (1 << rank_bits(columns)) - 1, np.uint32)] * columns
        assert zorder(ranks, rank_bits(columns)).tolist() == [2 ** (columns * rank_bits(columns)) - 1] * 3

"""Which ranges of a group make a file: even weights, and partitions that are not cut without need."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.rewrite.clustering.group_layout import GroupLayout, first_ranges
from iceberg_compact_sql.rewrite.clustering.layout import KeyCuts, Layout


def layout_of(weights: list[int], starts: tuple[int, ...] = ()) -> Layout:
    bounds = np.arange(len(weights) - 1, dtype=np.uint64).reshape(-1, 1)
    return Layout((KeyCuts(False),), bounds, starts=frozenset(starts), weights=tuple(weights))


def test_files_get_equal_numbers_of_ranges() -> None:
    weights = [999, 1001, 1000, 1000, 998, 1002, 1000, 1000]
    assert first_ranges(layout_of(weights), 4) == (0, 2, 4, 6)
    assert first_ranges(layout_of(weights), 1) == (0,)


def test_small_partitions_share_a_bucket_and_large_ones_are_cut() -> None:
    weights = [5, 5, 100, 100, 100, 100, 5, 5]
    assert first_ranges(layout_of(weights, (1, 2, 6, 7)), 4) == (0, 2, 3, 4, 5, 6)


@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=40),
    st.integers(1, 12),
    st.sets(st.integers(1, 39)),
)
def test_every_range_is_in_one_bucket(weights: list[int], files: int, starts: set[int]) -> None:
    layout = layout_of(weights, tuple(start for start in starts if start < len(weights)))
    chosen = first_ranges(layout, files)
    assert chosen[0] == 0
    assert all(before < after for before, after in itertools.pairwise(chosen))
    assert chosen[-1] < len(weights)
    group = GroupLayout(layout, chosen)
    buckets = [group.bucket_of(number) for number in range(len(weights))]
    assert buckets == sorted(buckets)
    assert set(buckets) == set(range(group.buckets))

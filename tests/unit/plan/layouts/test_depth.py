"""The depth of files in a linear order, beside counting at points."""

from __future__ import annotations

import itertools
import random

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.plan.layouts.depth import linear_depths
from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.plan.layouts.spans import linear_spans
from iceberg_compact_sql.table.column_bounds import ColumnBounds

SCHEMA = Schema(NestedField(1, "k", LongType()))
ORDER = ClusterOrder("sort", (OrderField(1),))


def depths(ranges: list[tuple[int, int]]) -> list[float]:
    bounds = [{1: ColumnBounds(low, high)} for low, high in ranges]
    return linear_depths(linear_spans(ORDER, SCHEMA, bounds, [None] * len(ranges))).tolist()


def test_files_that_touch_do_not_overlap_and_one_value_counts_1() -> None:
    assert depths([(0, 10), (0, 10), (10, 20), (5, 5)]) == [2.0, 2.0, 1.0, 1.0]


def test_depth_by_intervals_equals_counting_at_points() -> None:
    draw = random.Random(5)
    for _ in range(50):
        ranges = [tuple(sorted((draw.randrange(30), draw.randrange(30)))) for _ in range(draw.randrange(1, 12))]
        # A file with one value has no inside, and cuts no interval of the others.
        edges = sorted({edge for low, high in ranges if low < high for edge in (low, high)})
        middles = [(low + high) / 2 for low, high in itertools.pairwise(edges)]

        def mean(pair: tuple[int, int], middles: list[float] = middles, ranges: list = ranges) -> float:
            inside = [m for m in middles if pair[0] < m < pair[1]]
            counts = [sum(low < m < high for low, high in ranges) for m in inside]
            return sum(counts) / len(counts) if counts and pair[0] < pair[1] else 1.0

        assert depths(ranges) == pytest.approx([mean(pair) for pair in ranges])

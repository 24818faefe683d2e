"""How many files the filters of queries meet: today by the real bounds, and with another layout by a sample of rows."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iceberg_compact_sql.plan.queries.filters import All, Any_, Filter, Predicate, comparable

Numbers = npt.NDArray[np.float64]
Meets = npt.NDArray[np.bool_]
# Ranks on a curve, as (ranks of each column, bits) -> positions.
Curve = Callable[[Sequence[npt.NDArray[np.uint32]], int], npt.NDArray[np.uint64]]
_SIMULATED = ("equality", "in", "range", "prefix")
_LAST_CHARACTER = "\U0010ffff"
_CURVE_BITS = 10


@dataclass(frozen=True)
class Scale:
    """The sorted values of a column in the sample: a value becomes its place among them."""

    values: Sequence[Any]

    def place(self, value: Any, side: str = "middle") -> float | None:
        """Return the place of a literal, the middle of its share of rows; None if it cannot be compared."""
        if not self.values or not comparable(value, self.values[0]):
            return None
        low = bisect.bisect_left(self.values, value) if side != "right" else 0
        high = bisect.bisect_right(self.values, value) if side != "left" else 0
        return float(low if side == "left" else high if side == "right" else (low + high) / 2)


@dataclass(frozen=True)
class ColumnBounds:
    """Least and greatest place of a column in each file; NaN where a file holds no value, `unknown` where anything."""

    low: Numbers
    high: Numbers
    unknown: Meets


class Sample:
    """Rows of the key columns as places in their sorted values; `rows` is how many rows the table has."""

    def __init__(self, columns: Mapping[str, Sequence[Any]], rows: int) -> None:
        self.size = len(next(iter(columns.values()))) if columns else 0
        # The share of rows that the sample does not see.
        self.missed = 1 - self.size / max(rows, self.size, 1)
        self.scales: dict[str, Scale] = {}
        self.places: dict[str, Numbers] = {}
        for name, values in columns.items():
            known = sorted(value for value in values if value is not None and value == value)
            self.scales[name] = Scale(known)
            index: dict[Any, float] = {}
            for position, value in enumerate(known):
                index.setdefault(value, position)
            ends = {value: position + 1 for position, value in enumerate(known)}
            self.places[name] = np.array(
                [
                    (index[value] + ends[value]) / 2 if value is not None and value == value else np.nan
                    for value in values
                ]
            )

    def order(self, columns: Sequence[str], curve: Curve | None = None) -> npt.NDArray[np.intp]:
        """Return the rows in the order of a layout; equal keys are spread at random, as the writer does it."""
        tie = np.random.default_rng(7).permutation(self.size)
        if not columns:
            return np.argsort(tie)
        # Nulls come first.
        keys = [np.nan_to_num(self.places[name], nan=-1.0) for name in columns]
        if curve is None or len(columns) == 1:
            return np.lexsort([tie, *reversed(keys)])
        limit = (1 << _CURVE_BITS) - 1
        ranks = [np.clip(key * (limit + 1) / max(1, self.size), 0, limit).astype(np.uint32) for key in keys]
        return np.lexsort([tie, curve(ranks, _CURVE_BITS)])

    def bounds(
        self, order: npt.NDArray[np.intp], files: int, groups: npt.NDArray[np.int64] | None = None
    ) -> dict[str, ColumnBounds]:
        """Return the bounds of equal files in this order; `groups` numbers partitions, which files never cross.

        A sample misses the ends of a file: each side is widened by the mean distance of its rows, or by half a place
        where the file holds nearly every row of its range.
        """
        files = max(1, min(files, self.size // 2))
        cuts = [self.size * index // files for index in range(files)]
        if groups is not None:
            order = order[np.argsort(groups[order], kind="stable")]
            cuts, start = [], 0
            for rows in np.unique(groups, return_counts=True)[1].tolist():
                pieces = max(1, round(files * rows / self.size))
                cuts += [start + rows * index // pieces for index in range(pieces)]
                start += rows
        starts = np.array(sorted(set(cuts)), dtype=np.intp)
        sizes = np.diff(np.append(starts, self.size))
        result = {}
        for name, places in self.places.items():
            low, high = np.fmin.reduceat(places[order], starts), np.fmax.reduceat(places[order], starts)
            span = high - low
            gap = np.maximum(0.5, span / np.maximum(sizes - 1, 1) * self.missed)
            gap = np.where(span < 1.5 * sizes, 0.5, gap)
            result[name] = ColumnBounds(low - gap, high + gap, np.zeros(len(low), np.bool_))
        return result


def bounds_of_files(
    bounds: Mapping[str, Sequence[tuple[Any, Any] | None]],
) -> tuple[dict[str, ColumnBounds], dict[str, Scale]]:
    """Return the real bounds of files as places among all bounds of a column, and the scale for literals.

    Places are odd for values that are bounds and even between them, so that comparisons are exact.
    """
    result: dict[str, ColumnBounds] = {}
    scales: dict[str, Scale] = {}
    for name, pairs in bounds.items():
        values = sorted({value for pair in pairs if pair is not None for value in pair})
        place = {value: position + 0.5 for position, value in enumerate(values)}
        low = np.array([np.nan if pair is None else place[pair[0]] for pair in pairs], np.float64)
        high = np.array([np.nan if pair is None else place[pair[1]] for pair in pairs], np.float64)
        result[name] = ColumnBounds(low, high, np.array([pair is None for pair in pairs], np.bool_))
        scales[name] = Scale(values)
    return result, scales


def meets(filter_: Filter, bounds: Mapping[str, ColumnBounds], scales: Mapping[str, Scale], files: int) -> Meets:
    """Return for each file whether it may hold a matching row; whatever bounds cannot decide may match."""
    if isinstance(filter_, All):
        result = np.ones(files, np.bool_)
        for part in filter_.parts:
            result &= meets(part, bounds, scales, files)
        return result
    if isinstance(filter_, Any_):
        result = np.zeros(files, np.bool_)
        for part in filter_.parts:
            result |= meets(part, bounds, scales, files)
        return result
    column = bounds.get(filter_.column)
    if column is None or filter_.kind not in _SIMULATED:
        return np.ones(files, np.bool_)
    return _compared(filter_, column, scales[filter_.column]) | column.unknown


def _compared(predicate: Predicate, column: ColumnBounds, scale: Scale) -> Meets:
    everything = np.ones(len(column.low), np.bool_)
    if predicate.kind == "prefix":
        low = scale.place(predicate.values[0], "left")
        high = scale.place(str(predicate.values[0]) + _LAST_CHARACTER, "right")
        return everything if low is None or high is None else (column.low <= high) & (column.high >= low)
    places = [scale.place(value) for value in predicate.values]
    known = [place for place in places if place is not None]
    if len(known) < len(places):
        return everything
    if predicate.kind in ("equality", "in"):
        result = np.zeros(len(column.low), np.bool_)
        for place in known:
            result |= (column.low <= place) & (column.high >= place)
        return result
    [place] = known
    return {
        "<": column.low < place,
        "<=": column.low <= place,
        ">": column.high > place,
        ">=": column.high >= place,
    }[predicate.operator]


def bloom_share(files_met: float, rows_found: float, false_positives: float = 0.01) -> float:
    """Return the share of the files met that an equality still reads with bloom filters."""
    if files_met <= 1:
        return 1.0
    holding = 1 - (1 - 1 / files_met) ** rows_found
    return float(holding + false_positives * (1 - holding))

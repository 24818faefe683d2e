"""Where the rows of a file lie in an order, by the bounds of its columns: as numbers that compare like the keys.

A linear order is decided by its first column; where a file has one value of it, by the next one. Values that stand at
an end of two files do not make them overlap: a file covers what is between its bounds.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, Transform, parse_transform

from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.table.column_bounds import ColumnBounds

# A value of one column as a key: nulls below or above everything, NaN above every number.
Key = tuple[Any, ...]
Range = tuple[Key, Key]
Numbers = npt.NDArray[np.int64]

_NULL_LOW, _VALUE, _NAN, _NULL_HIGH = range(4)
# Just above a value, the value itself, and just below it.
_ABOVE, _INSIDE, _BELOW = 1, 0, -1


@dataclass(frozen=True, slots=True)
class FieldBounds:
    """Reads the range of one field of an order from the bounds of its column."""

    field: OrderField
    transform: Transform[Any, Any]
    function: Any

    @classmethod
    def of(cls, field: OrderField, schema: Schema) -> FieldBounds:
        transform = parse_transform(field.transform)
        return cls(field, transform, transform.transform(schema.find_type(field.source_id)))

    def range(self, bounds: ColumnBounds | None) -> Range | None:
        """Return the lowest and the highest key; None if they are not known."""
        if bounds is None:
            return None
        null_key: Key = (_NULL_LOW,) if self.field.nulls_first is not self.field.descending else (_NULL_HIGH,)
        has_nulls, has_nans = bool(bounds.nulls), bool(bounds.nans)
        keys: list[Key] = []
        if bounds.lower is None or bounds.upper is None:
            if bounds.values is None or bounds.nulls is None or bounds.nulls + (bounds.nans or 0) < bounds.values:
                return None
        else:
            try:
                if isinstance(self.transform, BucketTransform) and bounds.lower != bounds.upper:
                    return None
                keys = [(_VALUE, self.function(bounds.lower)), (_VALUE, self.function(bounds.upper))]
                if keys[0] > keys[1]:
                    return None
            except (TypeError, ValueError, OverflowError):
                # Bounds of another writer that the transform does not take.
                return None
        keys += [(_NAN,)] if has_nans else []
        keys += [null_key] if has_nulls else []
        return (min(keys), max(keys)) if keys else None


@dataclass(frozen=True)
class Spans:
    """Ranges of files in a linear order: file i covers the pieces from `low[i]` up to `high[i]` of a line.

    A file with one value covers none. `known` says which files have bounds; the others cover everything. `weight` is 1
    for a piece of the line that lies between two values, and 0 for one that lies at a value.
    """

    low: Numbers
    high: Numbers
    known: npt.NDArray[np.bool_]
    weight: Numbers

    def depth(self) -> Numbers:
        """Return how many files with bounds cover each piece."""
        steps = np.bincount(self.low, minlength=len(self.weight) + 1) - np.bincount(
            self.high, minlength=len(self.weight) + 1
        )
        return np.cumsum(steps)[: len(self.weight)]


def linear_spans(
    order: ClusterOrder, schema: Schema, bounds: Sequence[Mapping[int, ColumnBounds]], runs: Sequence[str | None]
) -> Spans:
    """Return the spans of files in a linear order.

    `runs` are the runs of ours that wrote files in this order. Such files do not overlap, even if cut bounds of long
    strings say so: of those with equal bounds only the first one counts.
    """
    fields = [FieldBounds.of(field, schema) for field in order.fields]
    ends: list[tuple[tuple[Any, ...], tuple[Any, ...]] | None] = []
    known = np.ones(len(bounds), np.bool_)
    seen: set[tuple[str, Any]] = set()
    for index, file_bounds in enumerate(bounds):
        span, has_bounds = _linear_span(fields, file_bounds)
        known[index] = has_bounds
        run = runs[index]
        if span is not None and run is not None:
            if (run, span) in seen:
                span = None
            else:
                seen.add((run, span))
        ends.append(span)
    points = sorted({point for span in ends if span is not None for point in span})
    places = {point: place for place, point in enumerate(points)}
    low = np.array([0 if span is None else places[span[0]] for span in ends], np.int64)
    high = np.array([0 if span is None else places[span[1]] for span in ends], np.int64)
    weight = np.array([_lies_between(*points[place : place + 2]) for place in range(len(points) - 1)], np.int64)
    return Spans(low, high, known, weight)


def _linear_span(
    fields: Sequence[FieldBounds], bounds: Mapping[int, ColumnBounds]
) -> tuple[tuple[tuple[Any, ...], tuple[Any, ...]] | None, bool]:
    prefix: tuple[Any, ...] = ()
    for number, field in enumerate(fields):
        found = field.range(bounds.get(field.field.source_id))
        if found is None:
            return None, number > 0
        lower, upper = found
        if lower != upper:
            return ((*prefix, (lower, _ABOVE)), (*prefix, (upper, _BELOW))), True
        prefix = (*prefix, (lower, _INSIDE))
    return None, True


def _lies_between(left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
    """1 if there is room for values between two points; 0 if they are below, at and above the same value."""
    for (left_key, left_side), (right_key, right_side) in zip(left, right, strict=False):
        if left_key != right_key:
            return 1
        if left_side != right_side:
            return 0
    return 0


@dataclass(frozen=True)
class Boxes:
    """Ranges of files in each column of a curve, by the places of their values: even numbers are values."""

    low: Numbers
    high: Numbers
    known: npt.NDArray[np.bool_]

    def meets(self, points: Numbers) -> npt.NDArray[np.bool_]:
        """Return for each point and box whether the point is inside the box, in every column."""
        inside = np.ones((len(points), len(self.low)), np.bool_)
        for column in range(self.low.shape[1]):
            low, high, point = self.low[:, column], self.high[:, column], points[:, column, None]
            inside &= ((low < point) & (point < high)) | ((low == high) & (point == low))
        return inside


def boxes(order: ClusterOrder, schema: Schema, bounds: Sequence[Mapping[int, ColumnBounds]]) -> Boxes:
    """Return the boxes of files in the columns of an order; a file without bounds of one of them has none."""
    columns: list[list[Range | None]] = []
    for field in order.fields:
        reader = FieldBounds.of(field, schema)
        columns.append([reader.range(file_bounds.get(field.source_id)) for file_bounds in bounds])
    known = np.array([all(ranges[index] is not None for ranges in columns) for index in range(len(bounds))], np.bool_)
    low = np.zeros((len(bounds), len(columns)), np.int64)
    high = np.zeros((len(bounds), len(columns)), np.int64)
    for column, ranges in enumerate(columns):
        keys = sorted({key for found in ranges if found is not None for key in found})
        for index, found in enumerate(ranges):
            if known[index] and found is not None:
                low[index, column] = 2 * bisect.bisect_left(keys, found[0])
                high[index, column] = 2 * bisect.bisect_left(keys, found[1])
    return Boxes(low, high, known)

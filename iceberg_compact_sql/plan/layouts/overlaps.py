"""The incremental rule: which files are clustered again, from bounds and sizes alone. Pure.

Where more than `max_depth` files overlap, the smallest of them are rewritten together. A file is not rewritten twice,
and a plan on the expected result selects nothing: cost follows the new data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iceberg_compact_sql.plan.layouts.spans import Boxes, Spans

_MOST_POINTS = 256


@dataclass(slots=True)
class Item:
    """A file, or a group of files that will be rewritten: its outputs do not overlap, so it counts as one file."""

    members: list[int]
    size_bytes: int
    chosen: bool = False


# Takes all files and groups; returns sets of them, by number, whose small files are worth a rewrite together.
ChooseSmall = Callable[[Sequence[Item]], Sequence[Sequence[int]]]


class Geometry(Protocol):
    """How files lie to each other, in a linear order or on a curve."""

    def too_deep(self, items: Sequence[Item], max_depth: int) -> list[list[int]]:
        """Return sets of items to join, by their numbers; empty if no point is deeper than `max_depth`."""
        ...


def overlapping_groups(
    geometry: Geometry, sizes: Sequence[int], runs: Sequence[str | None], max_depth: int, choose_small: ChooseSmall
) -> list[list[int]]:
    """Return groups of files to rewrite, by their positions; each file is in one group at most.

    `runs` joins the files that one run wrote along a curve: they count as one file, and stay or go together.
    """
    items = _items(sizes, runs)
    while True:
        _join_until_flat(items, geometry, max_depth)
        small = choose_small(items)
        if not small:
            return [sorted(item.members) for item in items if item.chosen]
        _join(items, small)


def _items(sizes: Sequence[int], runs: Sequence[str | None]) -> list[Item]:
    by_run: dict[str, Item] = {}
    items: list[Item] = []
    for position, (size_bytes, run) in enumerate(zip(sizes, runs, strict=True)):
        item = by_run.get(run) if run is not None else None
        if item is None:
            item = Item([], 0)
            items.append(item)
            if run is not None:
                by_run[run] = item
        item.members.append(position)
        item.size_bytes += size_bytes
    return items


def _join_until_flat(items: list[Item], geometry: Geometry, max_depth: int) -> None:
    while True:
        joins: list[list[int]] = []
        taken: set[int] = set()
        for numbers in geometry.too_deep(items, max_depth):
            # Sets that share an item wait for the next round.
            if len(numbers) > 1 and taken.isdisjoint(numbers):
                taken.update(numbers)
                joins.append(numbers)
        if not joins:
            return
        _join(items, joins)


def _join(items: list[Item], joins: Sequence[Sequence[int]]) -> None:
    """Put one item in place of each set of items."""
    joined = [
        Item(
            [member for number in numbers for member in items[number].members],
            sum(items[number].size_bytes for number in numbers),
            chosen=True,
        )
        for numbers in joins
    ]
    gone = {number for numbers in joins for number in numbers}
    items[:] = [*(item for number, item in enumerate(items) if number not in gone), *joined]


def smallest_runs(run_bytes: Sequence[int], max_depth: int) -> list[int]:
    """Return the runs to rewrite, by number: enough to get below the depth, and all that are not larger than those.

    >>> smallest_runs([100, 1, 1, 1, 1, 1], 4), smallest_runs([100, 9, 9, 9, 9, 100], 4)
    ([1, 2, 3, 4, 5], [1, 2, 3, 4])
    """
    order = sorted(range(len(run_bytes)), key=lambda number: (run_bytes[number], number))
    wanted = max(2, len(order) - max_depth + 1)
    taken: list[int] = []
    size_bytes = 0
    for number in order:
        if len(taken) >= wanted and run_bytes[number] > size_bytes:
            break
        taken.append(number)
        size_bytes += run_bytes[number]
    return sorted(taken)


@dataclass(frozen=True)
class LineGeometry:
    """Files on a line: deep segments, cut into runs of files that do not overlap."""

    spans: Spans

    def too_deep(self, items: Sequence[Item], max_depth: int) -> list[list[int]]:
        low = np.array([min(self.spans.low[m] for m in item.members) for item in items], np.int64)
        high = np.array([max(self.spans.high[m] for m in item.members) for item in items], np.int64)
        # What covers nothing cannot get better.
        usable = np.flatnonzero(high > low)
        depth = Spans(low, high, np.ones(len(items), np.bool_), self.spans.weight).depth()
        deep = (depth > max_depth) & (self.spans.weight > 0)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], deep, [False]]).astype(np.int8)))
        joins: list[list[int]] = []
        for start, end in edges.reshape(-1, 2):
            inside = usable[(low[usable] < end) & (high[usable] > start)]
            joins.extend(_connected(self._chosen(items, inside, low, high, max_depth), low, high))
        return joins

    @staticmethod
    def _chosen(
        items: Sequence[Item],
        inside: npt.NDArray[np.int64],
        low: npt.NDArray[np.int64],
        high: npt.NDArray[np.int64],
        max_depth: int,
    ) -> list[int]:
        runs: list[list[int]] = []
        ends: list[int] = []
        for number in sorted(map(int, inside), key=lambda n: (low[n], high[n])):
            # The run that ends nearest before it.
            fitting = [run for run, end in enumerate(ends) if end <= low[number]]
            if fitting:
                nearest = max(fitting, key=lambda run: ends[run])
                runs[nearest].append(number)
                ends[nearest] = int(high[number])
            else:
                runs.append([number])
                ends.append(int(high[number]))
        chosen = smallest_runs([sum(items[number].size_bytes for number in run) for run in runs], max_depth)
        return [number for run in chosen for number in runs[run]]


def _connected(numbers: Sequence[int], low: npt.NDArray[np.int64], high: npt.NDArray[np.int64]) -> list[list[int]]:
    """Return the parts of items that overlap, one list for each; there is a gap between two parts."""
    parts: list[list[int]] = []
    end = -1
    for number in sorted(numbers, key=lambda n: (low[n], high[n])):
        if not parts or low[number] >= end:
            parts.append([])
        parts[-1].append(number)
        end = max(end, int(high[number]))
    return parts


@dataclass(frozen=True)
class BoxGeometry:
    """Files as boxes of the columns of a curve: the deepest centre of a box decides."""

    boxes: Boxes

    def too_deep(self, items: Sequence[Item], max_depth: int) -> list[list[int]]:
        if not items:
            return []
        low = np.stack([self.boxes.low[item.members].min(axis=0) for item in items])
        high = np.stack([self.boxes.high[item.members].max(axis=0) for item in items])
        joined = Boxes(low, high, np.ones(len(items), np.bool_))
        # What has one value in every column cannot get better.
        usable = np.flatnonzero((high > low).any(axis=1))
        if len(usable) <= max_depth:
            return []
        chosen = usable[:: -(-len(usable) // _MOST_POINTS)]
        inside = joined.meets((low[chosen] + high[chosen]) // 2)
        inside[:, np.setdiff1d(np.arange(len(items)), usable)] = False
        depths = inside.sum(axis=1)
        deepest = int(depths.argmax())
        if depths[deepest] <= max_depth:
            return []
        numbers = np.flatnonzero(inside[deepest])
        picked = smallest_runs([items[int(number)].size_bytes for number in numbers], max_depth)
        return [[int(numbers[position]) for position in picked]]

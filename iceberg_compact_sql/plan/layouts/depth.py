"""Clustering depth: how many files a point of the order meets, from bounds alone. 1 is perfect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.schema import Schema

from iceberg_compact_sql.plan.layouts.order import ClusterOrder
from iceberg_compact_sql.plan.layouts.spans import Boxes, Spans, boxes, linear_spans
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveFile

Depths = npt.NDArray[np.float64]
# Points at which the depth of boxes is counted.
_MOST_POINTS = 512


@dataclass(frozen=True)
class FileDepths:
    """The depth of each file of a partition, and whether it has bounds; averages are by rows."""

    depths: Depths
    known: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]

    def mean(self, chosen: Sequence[int] | None = None) -> float:
        """Return the average over all files, or over some."""
        picked = np.arange(len(self.depths)) if chosen is None else np.asarray(chosen, np.int64)
        weights = np.maximum(self.rows[picked], 1)
        return float(np.average(self.depths[picked], weights=weights))


@dataclass(slots=True)
class DepthSum:
    """The depth of the files of several partitions, averaged by rows."""

    total: float = 0.0
    rows: int = 0

    def add(self, found: FileDepths) -> None:
        rows = int(np.maximum(found.rows, 1).sum())
        self.total += found.mean() * rows
        self.rows += rows

    @property
    def mean(self) -> float | None:
        return self.total / self.rows if self.rows else None


def file_depths(inventory: TableInventory, files: Sequence[LiveFile], order: ClusterOrder) -> FileDepths:
    """Return the depth of every file of one partition.

    A file with one value counts 1. A file without bounds covers everything.
    """
    rows = np.array([file.rows for file in files], np.int64)
    if order.is_curve:
        found = curve_boxes(inventory, files, order)
        return FileDepths(_box_depths(found, rows), found.known, rows)
    spans = order_spans(inventory, files, order)
    return FileDepths(linear_depths(spans), spans.known, rows)


def overlap_share(inventory: TableInventory, files: Sequence[LiveFile], order: ClusterOrder) -> float:
    """Return the share of files that a point meets, on average over the columns of a curve; for a sort, its keys."""
    depths = [
        file_depths(inventory, files, ClusterOrder("sort", (field,))).mean() if order.is_curve else None
        for field in order.fields
    ]
    columns = [depth for depth in depths if depth is not None]
    mean = sum(columns) / len(columns) if columns else file_depths(inventory, files, order).mean()
    return min(1.0, mean / len(files))


def order_spans(inventory: TableInventory, files: Sequence[LiveFile], order: ClusterOrder) -> Spans:
    """Return the spans of files in a linear order."""
    bounds = [inventory.bounds.get(file.path, {}) for file in files]
    runs = [inventory.ordered_run(file, order.text) for file in files]
    return linear_spans(order, _schema(inventory), bounds, runs)


def curve_boxes(inventory: TableInventory, files: Sequence[LiveFile], order: ClusterOrder) -> Boxes:
    """Return the boxes of files in the columns of a curve."""
    return boxes(order, _schema(inventory), [inventory.bounds.get(file.path, {}) for file in files])


def _schema(inventory: TableInventory) -> Schema:
    assert inventory.schema is not None, "an inventory with bounds has a schema"
    return inventory.schema


def linear_depths(spans: Spans) -> Depths:
    """Return the depth of each file of a linear order: the average over the pieces of the line that it covers."""
    depth, weight = spans.depth(), spans.weight
    totals = np.concatenate([[0], np.cumsum(depth * weight)])
    widths = np.concatenate([[0], np.cumsum(weight)])
    unknown = int(np.count_nonzero(~spans.known))
    width = widths[spans.high] - widths[spans.low]
    inside = totals[spans.high] - totals[spans.low]
    found = np.where(width > 0, inside / np.maximum(width, 1), 1.0)
    everywhere = totals[-1] / max(1, widths[-1])
    return np.where(spans.known, found + unknown, everywhere + unknown)


def _box_depths(found: Boxes, rows: npt.NDArray[np.int64]) -> Depths:
    """The depth at the centre of each box; of many boxes only some are counted, and the others get the average."""
    unknown = int(np.count_nonzero(~found.known))
    known = np.flatnonzero(found.known)
    depths = np.full(len(rows), float(len(known) + unknown))
    if not len(known):
        return depths
    step = -(-len(known) // _MOST_POINTS)
    chosen = known[::step]
    inside = found.meets((found.low[chosen] + found.high[chosen]) // 2)[:, known]
    counted = np.maximum(inside.sum(axis=1), 1).astype(np.float64)
    depths[known] = np.average(counted, weights=np.maximum(rows[chosen], 1)) + unknown
    depths[chosen] = counted + unknown
    return depths

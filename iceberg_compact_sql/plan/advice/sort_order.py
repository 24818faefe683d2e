"""The rule about sort orders: files that overlap in the column by which the table should be sorted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from pyiceberg.transforms import IdentityTransform

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, share_text
from iceberg_compact_sql.plan.cost import Throughput, Work, estimate
from iceberg_compact_sql.plan.selection import files_text
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# As many files of a partition may overlap before clustering rewrites them; the default of `max_depth`.
_MAX_DEPTH = 4
_MIN_FILES = 5


def sort_order(facts: TableFacts) -> Iterator[Finding]:
    """A sort order that the table declares and that its files do not follow."""
    metadata = facts.metadata
    order = next((o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id), None)
    if order is None or not order.fields:
        return
    first = order.fields[0]
    # A bucket or another transform of the first field: bounds of the column do not show its order.
    if not isinstance(first.transform, IdentityTransform) and not first.transform.preserves_order:
        return
    try:
        column = metadata.schema().find_field(first.source_id)
    except ValueError:
        return
    depth, files, total = table_depth(facts, column.field_id)
    if depth is None or depth <= _MAX_DEPTH:
        return
    work = Work(files, total, outputs=max(1, total // facts.target_bytes))
    # Sorting costs about twice a decoding rewrite.
    dollars = 2 * estimate(work, facts.prices, Throughput()).dollars
    share = min(1.0, depth / files)
    yield Finding(
        topic="clustering",
        severity="high" if depth >= 10 and share >= 0.5 else "medium",
        finding=f"the table's sort order begins with {column.name}, but {depth:.1f} files overlap at a point of it on "
        f"average, {share_text(share)} of {files_text(files)}; 1 is best",
        action=facts.compact("strategy => 'sort'"),
        gain=f"a filter on one value of {column.name} reads about {share_text(1 / depth)} of today's files",
        cost_dollars=dollars,
        weight=share,
    )


def table_depth(facts: TableFacts, field_id: int) -> tuple[float | None, int, int]:
    """Return the mean depth by rows over partitions with enough files, and the files and bytes of those partitions."""
    field_type = facts.metadata.schema().find_type(field_id)
    bounds = facts.bounds.of(field_id, field_type)
    partitions: dict[object, list[int]] = {}
    for index, file in enumerate(facts.bounds.files):
        if bounds[index] is not None:
            partitions.setdefault((file.spec_id, exact_partition_key(file.partition)), []).append(index)
    weighted = rows = 0.0
    files = total = 0
    for indexes in partitions.values():
        if len(indexes) < _MIN_FILES:
            continue
        ranges = [bound for index in indexes if (bound := bounds[index]) is not None]
        for index, depth in zip(indexes, depths(ranges), strict=True):
            weighted += depth * facts.bounds.files[index].rows
            rows += facts.bounds.files[index].rows
            total += facts.bounds.files[index].size_bytes
        files += len(indexes)
    return (weighted / rows if rows else None), files, total


def depths(ranges: Sequence[tuple[Any, Any]]) -> list[float]:
    """Return for each file the mean depth of the open intervals inside its bounds; 1 is best.

    Elementary intervals lie between neighbouring bounds. Files that touch in one value do not overlap, and a file with
    one value only counts 1.

    >>> depths([(0, 10), (0, 10), (10, 20), (5, 5)])
    [2.0, 2.0, 1.0, 1.0]
    """
    edges = sorted({edge for bounds in ranges for edge in bounds})
    place = {edge: index for index, edge in enumerate(edges)}
    changes = [0] * (len(edges) + 1)
    for low, high in ranges:
        if low < high:
            changes[place[low]] += 1
            changes[place[high]] -= 1
    cover = list(accumulate(changes))
    sums = [0, *accumulate(cover)]
    result = []
    for low, high in ranges:
        start, end = place[low], place[high]
        result.append((sums[end] - sums[start]) / (end - start) if end > start else 1.0)
    return result

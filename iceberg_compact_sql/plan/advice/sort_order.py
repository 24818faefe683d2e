"""The rule about sort orders: files that overlap in the column by which the table should be sorted."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.transforms import IdentityTransform

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, share_text
from iceberg_compact_sql.plan.cost import Throughput, Work, estimate
from iceberg_compact_sql.plan.layouts.depth import linear_depths
from iceberg_compact_sql.plan.layouts.order import DEFAULT_MAX_DEPTH, ClusterOrder, OrderField
from iceberg_compact_sql.plan.layouts.spans import linear_spans
from iceberg_compact_sql.plan.selection import files_text
from iceberg_compact_sql.table.column_bounds import ColumnBounds
from iceberg_compact_sql.table.partition_keys import exact_partition_key

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
    if depth is None or depth <= DEFAULT_MAX_DEPTH:
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
    schema = facts.metadata.schema()
    bounds = facts.bounds.of(field_id, schema.find_type(field_id))
    order = ClusterOrder("sort", (OrderField(field_id),))
    partitions: dict[object, list[int]] = {}
    for index, file in enumerate(facts.bounds.files):
        if bounds[index] is not None:
            partitions.setdefault((file.spec_id, exact_partition_key(file.partition)), []).append(index)
    weighted = rows = 0.0
    files = total = 0
    for indexes in partitions.values():
        if len(indexes) < _MIN_FILES:
            continue
        ranges = [{field_id: ColumnBounds(*bound)} for index in indexes if (bound := bounds[index]) is not None]
        depths = linear_depths(linear_spans(order, schema, ranges, [None] * len(ranges)))
        for index, depth in zip(indexes, depths.tolist(), strict=True):
            weighted += depth * facts.bounds.files[index].rows
            rows += facts.bounds.files[index].rows
            total += facts.bounds.files[index].size_bytes
        files += len(indexes)
    return (weighted / rows if rows else None), files, total

"""The work of `score_partitions`: scores partitions by their need for maintenance."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.layouts.order import ClusterOrder
from iceberg_compact_sql.plan.layouts.resolve_order import OrderRequest, OrderTable, resolve_order
from iceberg_compact_sql.plan.options import target_file_bytes
from iceberg_compact_sql.plan.partition_scores import PartitionScore, score_partitions
from iceberg_compact_sql.table.inventory import read_inventory


@dataclass(frozen=True, kw_only=True)
class ScoreRequest:
    """Scores of the partitions of one branch. `target_bytes` None means the table's property, else the default."""

    table: str
    branch: str = "main"
    target_bytes: int | None = None
    where: str | None = None
    # A sort_order; None means the table's own, if it has one.
    cluster_by: str | None = None


@dataclass(frozen=True)
class ScoreResult:
    """One score for each partition, worst first."""

    partitions: tuple[PartitionScore, ...]


def score(request: ScoreRequest, context: Context) -> ScoreResult:
    """Score every partition; reads only manifests and changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = context.open_table(request.table)
        where = context.read_where(request.where, opened.table)
        order = _order(request, context, opened)
        columns = () if order is None else tuple(dict.fromkeys(field.source_id for field in order.fields))
        inventory = read_inventory(opened.table, request.branch, where, bounds_of=columns)
        scores = score_partitions(
            inventory,
            target_bytes=target_file_bytes(request.target_bytes, opened.table.metadata.properties),
            now_ms=context.now_ms,
            prices=Prices.from_settings(context.view.conf),
            order=order,
        )
        return ScoreResult(tuple(scores))


def _order(request: ScoreRequest, context: Context, opened: OpenTable) -> ClusterOrder | None:
    metadata = opened.table.metadata
    table = OrderTable.of(request.table, metadata, None, case_sensitive=context.view.case_sensitive)
    if request.cluster_by is None:
        # An order of dropped columns measures nothing.
        with contextlib.suppress(InvalidArgumentError):
            return resolve_order(OrderRequest("sort", None), table).order
        return None
    try:
        return resolve_order(OrderRequest(None, request.cluster_by), table).order
    except InvalidArgumentError as error:
        raise InvalidArgumentError(
            error.detail.replace("sort_order", "cluster_by", 1),
            argument="cluster_by",
            value=request.cluster_by,
            hint=error.hint,
        ) from None

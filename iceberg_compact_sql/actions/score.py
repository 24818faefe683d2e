"""The work of `score_partitions`: scores partitions by their need for maintenance."""

from __future__ import annotations

from dataclasses import dataclass

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.plan.cost import Prices
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


@dataclass(frozen=True)
class ScoreResult:
    """One score for each partition, worst first."""

    partitions: tuple[PartitionScore, ...]


def score(request: ScoreRequest, context: Context) -> ScoreResult:
    """Score every partition; reads only manifests and changes nothing."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = context.open_table(request.table)
        where = context.read_where(request.where, opened.table)
        inventory = read_inventory(opened.table, request.branch, where)
        scores = score_partitions(
            inventory,
            target_bytes=target_file_bytes(request.target_bytes, opened.table.metadata.properties),
            now_ms=context.now_ms,
            prices=Prices.from_settings(context.view.conf),
        )
        return ScoreResult(tuple(scores))

"""The work of `report`: one table as one HTML file."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import PrimitiveType

from iceberg_compact_sql.actions.advise import read_facts
from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.actions.queries.query_advice import (
    QueryAdvice,
    advise_from_queries,
    layout_text,
    query_findings,
)
from iceberg_compact_sql.catalogs.names import show_name
from iceberg_compact_sql.plan.advice.model import Finding, TableFacts
from iceberg_compact_sql.plan.advice.rules import findings
from iceberg_compact_sql.plan.advice.sort_order import table_depth
from iceberg_compact_sql.plan.partition_scores import PartitionScore, score_partitions
from iceberg_compact_sql.plan.scoring import SMALL_BYTES
from iceberg_compact_sql.redaction import mask_remembered
from iceberg_compact_sql.report.table_page import CommitRow, FindingRow, PartitionRow, QueryUse, TablePage, render_page
from iceberg_compact_sql.table.model import DeleteKind
from iceberg_compact_sql.table.summary_keys import RUN_ID

# Columns whose depth the page shows: those of the sort order, then the first ones of the schema.
_MOST_COLUMNS = 8
_MOST_LAYOUTS = 5
_KIND_NAMES = {
    DeleteKind.POSITION: "position deletes",
    DeleteKind.EQUALITY: "equality deletes",
    DeleteKind.VECTOR: "deletion vectors",
}


@dataclass(frozen=True, kw_only=True)
class ReportRequest:
    """The report of one table; `queries` is a file or folder of Spark event logs."""

    table: str
    queries: str | None = None


def table_report(request: ReportRequest, context: Context) -> str:
    """Return the HTML file of a table's report; changes nothing. With `queries` it reads logs and a sample too."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = context.open_table(request.table)
        facts = read_facts(opened, context)
        name = show_name((opened.catalog_name, *opened.identifier))
        found, use = findings(facts), None
        if request.queries is not None:
            advice = advise_from_queries(opened.table, opened.identifier, facts, request.queries, sample=True)
            found = sorted([*found, *query_findings(advice, facts)[:1]], key=lambda finding: finding.order)
            use = query_use(advice)
        return mask_remembered(render_page(table_page(name, facts, found, use)))


def table_page(name: str, facts: TableFacts, found: list[Finding], use: QueryUse | None = None) -> TablePage:
    """Return what the page shows of a table."""
    inventory = facts.inventory
    scores = score_partitions(inventory, target_bytes=facts.target_bytes, now_ms=facts.now_ms, prices=facts.prices)
    kinds = [(text, sum(delete.kind is kind for delete in inventory.deletes)) for kind, text in _KIND_NAMES.items()]
    return TablePage(
        table=name,
        made_ms=facts.now_ms,
        file_bytes=[file.size_bytes for file in inventory.files],
        rows=sum(file.rows for file in inventory.files),
        target_bytes=facts.target_bytes,
        small_below=min(SMALL_BYTES, facts.options.min_file_bytes),
        partitions=[_partition_row(score) for score in scores],
        commits=[_commit_row(snapshot) for snapshot in facts.snapshots_by_time],
        findings=[FindingRow(f.topic, f.severity, f.finding, f.action, f.gain, f.cost_dollars) for f in found],
        delete_files=[(text, count) for text, count in kinds if count],
        deleted_rows=sum(d.rows for d in inventory.deletes if d.kind is not DeleteKind.EQUALITY),
        depths=_depths(facts),
        metadata_bytes=facts.metadata_bytes,
        format_version=facts.metadata.format_version,
        queries=use,
    )


def query_use(advice: QueryAdvice) -> QueryUse:
    """Return what the page shows of queries: column names, kinds, counts and shares, never a literal."""
    log = advice.log
    sizes = sorted(log.bytes_by_shape.items(), key=lambda item: (-item[1], item[0]))
    best = [(layout_text(outcome.layout), outcome.share) for outcome in advice.outcomes[:_MOST_LAYOUTS]]
    return QueryUse(
        f"{log.scans} scans in {log.logs} logs, {log.writes} of them by DELETE, UPDATE or MERGE. "
        f"{log.workload.unhelpable_scans} have no filter that bounds can help.",
        list(log.workload.uses().items())[:_MOST_COLUMNS],
        sizes[:_MOST_COLUMNS],
        [("today", advice.share_today), *best],
    )


def _depths(facts: TableFacts) -> list[tuple[str, float]]:
    metadata = facts.metadata
    order = next((o for o in metadata.sort_orders if o.order_id == metadata.default_sort_order_id), None)
    sorted_ids = [field.source_id for field in order.fields] if order is not None else []
    columns = [field for field in metadata.schema().fields if isinstance(field.field_type, PrimitiveType)]
    columns.sort(
        key=lambda field: sorted_ids.index(field.field_id) if field.field_id in sorted_ids else len(sorted_ids)
    )
    depths: list[tuple[str, float]] = []
    for column in columns:
        # Decoding bounds takes most of the time of a report: stop when the page is full.
        if len(depths) >= _MOST_COLUMNS:
            break
        depth, _, _ = table_depth(facts, column.field_id)
        if depth is not None:
            name = f"{column.name} (sort order)" if column.field_id in sorted_ids else column.name
            depths.append((name, depth))
    return depths


def _partition_row(score: PartitionScore) -> PartitionRow:
    return PartitionRow(
        score.partition,
        score.data_files,
        score.data_bytes,
        score.small_files,
        score.delete_files,
        score.score,
        score.files_saved,
        score.cost_dollars,
        score.recommendation,
    )


def _commit_row(snapshot: Snapshot) -> CommitRow:
    summary = snapshot.summary

    def count(key: str) -> int | None:
        text = summary.get(key) if summary is not None else None
        return int(text) if text is not None and text.isdigit() else None

    return CommitRow(
        snapshot.timestamp_ms,
        summary.operation.value if summary is not None else "",
        count("total-data-files"),
        count("added-data-files") or 0,
        count("deleted-data-files") or 0,
        summary.get(RUN_ID) if summary is not None else None,
    )

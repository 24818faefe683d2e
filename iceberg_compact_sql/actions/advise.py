"""The work of `advise`: findings about one table from its metadata."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.open_table import OpenTable
from iceberg_compact_sql.plan.advice.model import Finding, TableFacts
from iceberg_compact_sql.plan.advice.rules import findings
from iceberg_compact_sql.plan.cost import Prices
from iceberg_compact_sql.plan.options import target_file_bytes
from iceberg_compact_sql.storage.stores import stores_of
from iceberg_compact_sql.table.file_bounds import read_bounds
from iceberg_compact_sql.table.inventory import read_inventory
from iceberg_compact_sql.table.properties import MAINTENANCE_TARGET_BYTES


@dataclass(frozen=True, kw_only=True)
class AdviseRequest:
    """Advice about one table. `queries` is a file or folder of Spark event logs; `sample` reads rows of key columns."""

    table: str
    queries: str | None = None
    sample: bool = True


@dataclass(frozen=True)
class AdviseResult:
    """The findings, most valuable first."""

    findings: tuple[Finding, ...]


def advise(request: AdviseRequest, context: Context) -> AdviseResult:
    """Return what would improve the table; changes nothing. Reads metadata, and with `queries` logs and a sample."""
    with context.run(lambda: (None, "Nothing was changed.")):
        opened = context.open_table(request.table)
        facts = read_facts(opened, context)
        found = findings(facts)
        if request.queries is not None:
            # Imported late for start-up time: numpy and the readers of data files are needed only here.
            from iceberg_compact_sql.actions.queries.query_advice import advise_from_queries, query_findings

            advice = advise_from_queries(opened.table, opened.identifier, facts, request.queries, sample=request.sample)
            found = sorted([*found, *query_findings(advice, facts)], key=lambda finding: finding.order)
        return AdviseResult(tuple(found))


def read_facts(opened: OpenTable, context: Context) -> TableFacts:
    """Read what the rules need to know about the head of `main`."""
    table = opened.table
    properties = table.metadata.properties
    metadata_bytes = None
    # Some catalogs give no right to read the metadata file itself.
    with contextlib.suppress(Exception):
        stat = stores_of(table.io).stat(table.metadata_location)
        metadata_bytes = None if stat is None else stat.size_bytes
    return TableFacts(
        spark_name=opened.spark_name,
        metadata=table.metadata,
        inventory=read_inventory(table, "main"),
        bounds=read_bounds(table, "main"),
        metadata_bytes=metadata_bytes,
        target_bytes=target_file_bytes(MAINTENANCE_TARGET_BYTES.of(properties), properties),
        now_ms=context.now_ms,
        prices=Prices.from_settings(context.view.conf),
    )

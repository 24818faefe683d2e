"""All rules, and the findings of a table in order of value."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iceberg_compact_sql.plan.advice.deletes import accumulated_deletes, delete_granularity, delete_mode
from iceberg_compact_sql.plan.advice.files import distribution, file_sizes, row_groups
from iceberg_compact_sql.plan.advice.late_data import late_data
from iceberg_compact_sql.plan.advice.metadata import manifests, metadata_files, missing_bounds, snapshots
from iceberg_compact_sql.plan.advice.model import Finding, TableFacts
from iceberg_compact_sql.plan.advice.partitioning import too_coarse, too_fine
from iceberg_compact_sql.plan.advice.sort_order import sort_order

Rule = Callable[[TableFacts], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    file_sizes,
    too_fine,
    too_coarse,
    accumulated_deletes,
    delete_granularity,
    delete_mode,
    snapshots,
    metadata_files,
    manifests,
    row_groups,
    sort_order,
    missing_bounds,
    late_data,
    distribution,
)


def findings(facts: TableFacts) -> list[Finding]:
    """Return what all rules say about a table, most valuable first; empty for a healthy table."""
    return sorted((finding for rule in RULES for finding in rule(facts)), key=lambda finding: finding.order)

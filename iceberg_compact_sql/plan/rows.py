"""Rows that users see of a plan and of scores, in the order of the columns that the surface promises."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from iceberg_compact_sql.plan.cost import Prices, Throughput, Work, estimate
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan
from iceberg_compact_sql.plan.options import MAX_SIZE_RATIO, MIN_SIZE_RATIO
from iceberg_compact_sql.plan.packing import expected_outputs, pack_files
from iceberg_compact_sql.plan.scoring import PartitionFacts, files_saved, health, partition_facts, score
from iceberg_compact_sql.plan.selection import judge_group, sort_files
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveFile
from iceberg_compact_sql.table.partitions import partition_key

Row = tuple[Any, ...]


def dry_run_rows(plan: CompactionPlan) -> list[Row]:
    """A row a group: group_id, partition, spec_id, action, reason, data_files, delete_files, input_bytes,
    expected_files, copied_row_groups, estimated_seconds, estimated_cost.
    """
    return [
        (
            group.group_id,
            group.partition_path,
            group.spec_id,
            group.action,
            group.reason,
            len(group.files),
            len(group.distinct_deletes) if any(group.deletes) else 0,
            group.input_bytes,
            group.expected_files,
            group.copied_row_groups,
            group.estimated_seconds,
            group.estimated_cost,
        )
        for group in plan.groups
    ]


def score_rows(inventory: TableInventory, *, target_bytes: int, now_ms: int, prices: Prices) -> list[Row]:
    """A row a partition, worst first: partition, spec_id, data_files, data_bytes, rows, small_files,
    average_file_bytes, delete_files, deleted_rows_ratio, fragment_ratio, last_written_at, last_compacted_at, score,
    health, files_saved, cost, recommendation.
    """
    options = CompactionOptions(target_bytes, int(target_bytes * MIN_SIZE_RATIO), int(target_bytes * MAX_SIZE_RATIO))
    partitions: dict[tuple[int, object], list[LiveFile]] = {}
    for file in inventory.files:
        partitions.setdefault((file.spec_id, partition_key(file.partition)), []).append(file)
    rows = [_score_row(inventory, files, options, now_ms, prices) for files in partitions.values()]
    # Worst first: by score, then by health, then by name so that equal ones keep their order from call to call.
    return sorted(rows, key=lambda row: (-row[12], row[13], row[0], row[1]))


def _score_row(
    inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions, now_ms: int, prices: Prices
) -> Row:
    facts = partition_facts(inventory, files, options.target_bytes)
    first = files[0]
    candidates = sort_files(inventory, files, options).candidates
    return (
        inventory.partition_path(first.spec_id, first.partition),
        first.spec_id,
        facts.data_files,
        facts.data_bytes,
        facts.rows,
        facts.small_files,
        facts.data_bytes // facts.data_files,
        facts.delete_files,
        facts.deleted_rows_ratio,
        facts.fragment_ratio,
        _moment(facts.history.last_written_ms),
        _moment(facts.history.last_compacted_ms),
        score(facts, now_ms),
        health(facts, options.target_bytes),
        files_saved(facts, options.target_bytes),
        _cost(facts, candidates, options, prices),
        _recommendation(inventory, facts, files, candidates, options),
    )


def _cost(facts: PartitionFacts, candidates: Sequence[LiveFile], options: CompactionOptions, prices: Prices) -> float:
    """Dollars for rewriting the files that compaction would look at; nothing for a partition that gains nothing."""
    if not candidates or not facts.worth_rewriting:
        return 0.0
    data_bytes = sum(file.size_bytes for file in candidates)
    work = Work(
        data_files=len(candidates),
        data_bytes=data_bytes,
        delete_files=facts.delete_files,
        delete_bytes=facts.delete_bytes,
        outputs=expected_outputs(data_bytes, options),
    )
    return estimate(work, prices, Throughput()).dollars


def _recommendation(
    inventory: TableInventory,
    facts: PartitionFacts,
    files: Sequence[LiveFile],
    candidates: Sequence[LiveFile],
    options: CompactionOptions,
) -> str:
    verdicts = [
        judge_group(inventory, group, options)
        for group in pack_files(candidates, options.max_group_bytes, options.max_group_files)
    ]
    rewrites = [verdict for verdict in verdicts if verdict.rewrite]
    if rewrites:
        more = f", and {len(rewrites) - 1} more groups" if len(rewrites) > 1 else ""
        return f"compact: {rewrites[0].reason}{more}"
    if facts.delete_files:
        share = f"{facts.deleted_rows_ratio:.0%} of rows deleted by position"
        return f"watch: {facts.delete_files} delete file{'' if facts.delete_files == 1 else 's'}, {share}"
    if facts.mergeable_files >= 2 and verdicts:
        return f"wait: {verdicts[0].reason}"
    return f"healthy: {len(files)} file{'' if len(files) == 1 else 's'}, nothing to gain"


def _moment(time_ms: int | None) -> dt.datetime | None:
    if time_ms is None:
        return None
    return dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc) + dt.timedelta(milliseconds=time_ms)

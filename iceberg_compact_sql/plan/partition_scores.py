"""Scores partitions: facts, gain, cost and a recommendation for each, worst first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iceberg_compact_sql.plan.cost import Prices, RunRequests, Throughput, Work, estimate, metadata_requests
from iceberg_compact_sql.plan.layouts.depth import file_depths, overlap_share
from iceberg_compact_sql.plan.layouts.order import DEFAULT_MAX_DEPTH, ClusterOrder
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.options import MAX_SIZE_RATIO, MIN_SIZE_RATIO
from iceberg_compact_sql.plan.packing import expected_outputs, pack_files
from iceberg_compact_sql.plan.scoring import PartitionFacts, files_saved, health, partition_facts, score
from iceberg_compact_sql.plan.selection import classify_files, judge_group
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key

_NO_SHARE = RunRequests()


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionScore:
    """One partition: `score` from 0 (healthy) to 1 (worst), `health` from 0 to 100, times in epoch milliseconds."""

    partition: str
    spec_id: int
    data_files: int
    data_bytes: int
    rows: int
    small_files: int
    average_file_bytes: int
    delete_files: int
    deleted_rows_ratio: float
    fragment_ratio: float
    last_written_ms: int | None
    last_compacted_ms: int | None
    score: float
    health: int
    files_saved: int
    cost_dollars: float
    recommendation: str
    # Over an order of rows; None where there is none.
    clustering_depth: float | None = None
    clustering_overlap: float | None = None


@dataclass(frozen=True, slots=True)
class JudgedPartition:
    """The files of one partition, their figures, and the files that a compaction would select."""

    files: Sequence[LiveFile]
    facts: PartitionFacts
    candidates: Sequence[LiveFile]

    @property
    def worth_rewriting(self) -> bool:
        return bool(self.candidates) and self.facts.worth_rewriting

    def work(self, options: CompactionOptions, metadata: RunRequests = _NO_SHARE) -> Work | None:
        """The rewrite of the candidates, with its share of the metadata; None for a partition that gains nothing."""
        if not self.worth_rewriting:
            return None
        data_bytes = sum(file.size_bytes for file in self.candidates)
        return Work(
            data_files=len(self.candidates),
            data_bytes=data_bytes,
            delete_files=self.facts.delete_files,
            delete_bytes=self.facts.delete_bytes,
            outputs=expected_outputs(data_bytes, options),
            metadata=metadata,
        )


def scoring_options(target_bytes: int) -> CompactionOptions:
    """Return the options of a compaction with this target and no other argument."""
    return CompactionOptions(target_bytes, int(target_bytes * MIN_SIZE_RATIO), int(target_bytes * MAX_SIZE_RATIO))


def judge_partitions(inventory: TableInventory, options: CompactionOptions) -> list[JudgedPartition]:
    """Return every partition with its figures and candidates."""
    partitions: dict[tuple[int, object], list[LiveFile]] = {}
    for file in inventory.files:
        partitions.setdefault((file.spec_id, exact_partition_key(file.partition)), []).append(file)
    return [
        JudgedPartition(
            files,
            partition_facts(inventory, files, options.target_bytes),
            classify_files(inventory, files, options).candidates,
        )
        for files in partitions.values()
    ]


def share_of_metadata(inventory: TableInventory, judged: Sequence[JudgedPartition]) -> RunRequests:
    """Return the metadata requests of a compaction of all partitions that gain, divided by their number."""
    return metadata_requests(inventory.manifests, sum(partition.worth_rewriting for partition in judged))


def score_partitions(
    inventory: TableInventory, *, target_bytes: int, now_ms: int, prices: Prices, order: ClusterOrder | None = None
) -> list[PartitionScore]:
    """Return a score for each partition, worst first; with its clustering if the inventory has bounds of an order."""
    options = replace(scoring_options(target_bytes), order=order)
    judged = judge_partitions(inventory, options)
    metadata = share_of_metadata(inventory, judged)
    scores = [_score(inventory, partition, options, now_ms, prices, metadata) for partition in judged]
    # By score, then by health, then by name: equal scores have the same order in every call.
    return sorted(scores, key=lambda row: (-row.score, row.health, row.partition, row.spec_id))


def _score(
    inventory: TableInventory,
    judged: JudgedPartition,
    options: CompactionOptions,
    now_ms: int,
    prices: Prices,
    metadata: RunRequests,
) -> PartitionScore:
    facts, first = judged.facts, judged.files[0]
    work = judged.work(options, metadata)
    order = options.order
    depth = None if order is None else file_depths(inventory, judged.files, order).mean()
    # How rows are arranged does not change what a plain compaction gains.
    options = replace(options, order=None)
    return PartitionScore(
        partition=inventory.partition_path(first.spec_id, first.partition),
        spec_id=first.spec_id,
        data_files=facts.data_files,
        data_bytes=facts.data_bytes,
        rows=facts.rows,
        small_files=facts.small_files,
        average_file_bytes=facts.data_bytes // facts.data_files,
        delete_files=facts.delete_files,
        deleted_rows_ratio=facts.deleted_rows_ratio,
        fragment_ratio=facts.fragment_ratio,
        last_written_ms=facts.history.last_written_ms,
        last_compacted_ms=facts.history.last_compacted_ms,
        score=score(facts, now_ms),
        health=health(facts, options.target_bytes),
        files_saved=files_saved(facts, options.target_bytes),
        cost_dollars=0.0 if work is None else estimate(work, prices, Throughput()).dollars,
        recommendation=recommendation(inventory, judged, options, depth),
        clustering_depth=depth,
        clustering_overlap=None if order is None else overlap_share(inventory, judged.files, order),
    )


def recommendation(
    inventory: TableInventory, judged: JudgedPartition, options: CompactionOptions, depth: float | None = None
) -> str:
    """Return what to do with a partition, and why: `compact:`, `cluster:`, `watch:`, `wait:` or `healthy:`."""
    facts, files = judged.facts, judged.files
    verdicts = [
        judge_group(inventory, group, options)
        for group in pack_files(judged.candidates, options.max_group_bytes, options.max_group_files)
    ]
    rewrites = [verdict for verdict in verdicts if verdict.rewrite]
    if rewrites:
        more = f", and {len(rewrites) - 1} more groups" if len(rewrites) > 1 else ""
        return f"compact: {rewrites[0].reason}{more}"
    if depth is not None and depth > DEFAULT_MAX_DEPTH:
        return f"cluster: {len(files)} files, a point of the order meets {depth:.1f} of them"
    if facts.delete_files:
        share = f"{facts.deleted_rows_ratio:.0%} of rows deleted by position"
        return f"watch: {facts.delete_files} delete file{'' if facts.delete_files == 1 else 's'}, {share}"
    if facts.mergeable_files >= 2 and verdicts:
        return f"wait: {verdicts[0].reason}"
    return f"healthy: {len(files)} file{'' if len(files) == 1 else 's'}, nothing to gain"

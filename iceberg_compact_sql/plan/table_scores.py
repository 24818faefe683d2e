"""Scores a whole table: totals, gain, cost, and a recommendation that also looks at its metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.cost import Estimate, Prices, Throughput, estimate
from iceberg_compact_sql.plan.learned_pace import NOTHING_LEARNED, LearnedPaces, Pace, planned_way
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.partition_scores import (
    JudgedPartition,
    judge_partitions,
    recommendation,
    scoring_options,
    share_of_metadata,
)
from iceberg_compact_sql.plan.scoring import files_saved, health, partition_facts, score, weighted_score
from iceberg_compact_sql.plan.selection import files_text
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.units import format_bytes

# Every commit writes all snapshots again, and every reader parses them: from here on a table needs expiry first.
MANY_SNAPSHOTS = 1000
LARGE_METADATA_BYTES = 50 * 1024**2


@dataclass(frozen=True, slots=True)
class MetadataSize:
    """The snapshots of a table, and the bytes of its newest metadata file; None when the bytes are unknown."""

    snapshots: int
    metadata_bytes: int | None = None

    @property
    def load(self) -> float:
        """1 or more when there are too many snapshots, or when the metadata file is too large."""
        return max(self.snapshots / MANY_SNAPSHOTS, (self.metadata_bytes or 0) / LARGE_METADATA_BYTES)


@dataclass(frozen=True, kw_only=True, slots=True)
class TableScore:
    """One table: `score` from 0 (healthy) to 1 (worst), `health` from 0 to 100, times in epoch milliseconds.

    `rewrite_bytes`, `seconds` and `cost_dollars` are those of a compaction of everything that it could improve.
    """

    partitions: int
    data_files: int
    data_bytes: int
    rows: int
    small_files: int
    average_file_bytes: int
    delete_files: int
    fragment_ratio: float
    snapshots: int
    last_written_ms: int | None
    last_compacted_ms: int | None
    score: float
    health: int
    files_saved: int
    cost_dollars: float
    recommendation: str
    metadata_bytes: int | None
    rewrite_bytes: int
    seconds: float
    # Where the seconds and dollars come from; empty when there is nothing to compact.
    estimate_source: str = ""


def score_table(
    inventory: TableInventory,
    *,
    target_bytes: int,
    now_ms: int,
    prices: Prices,
    metadata: MetadataSize,
    paces: LearnedPaces = NOTHING_LEARNED,
) -> TableScore:
    """Return the score of a table by the formula of a partition's score over the table's totals.

    Only files that a compaction could improve count as files, and as small ones. `files_saved` and `cost_dollars` are
    sums over partitions. A table whose metadata is too large scores at least 0.55, however good its files are.
    """
    options = scoring_options(target_bytes)
    judged = judge_partitions(inventory, options)
    totals = partition_facts(inventory, inventory.files, target_bytes)
    share = share_of_metadata(inventory, judged)
    work = [work for partition in judged if (work := partition.work(options, share)) is not None]
    learned = [paces.of(planned_way("binpack", rewrite.data_bytes, rewrite.copied_bytes)) for rewrite in work]
    estimates = [
        estimate(rewrite, prices, Throughput(), None if pace == Pace() else pace.factor)
        for rewrite, pace in zip(work, learned, strict=True)
    ]
    # Sums that start with a float: Spark reads an int in a column of doubles as NULL.
    total = Estimate(sum((each.seconds for each in estimates), 0.0), sum((each.dollars for each in estimates), 0.0))
    return TableScore(
        partitions=len(judged),
        data_files=totals.data_files,
        data_bytes=totals.data_bytes,
        rows=totals.rows,
        small_files=totals.small_files,
        average_file_bytes=totals.data_bytes // totals.data_files if totals.data_files else 0,
        delete_files=totals.delete_files,
        fragment_ratio=totals.fragment_ratio,
        snapshots=metadata.snapshots,
        last_written_ms=totals.history.last_written_ms,
        last_compacted_ms=totals.history.last_compacted_ms,
        score=max(_file_score(inventory, judged, totals.fragment_ratio, now_ms), _metadata_score(metadata)),
        health=health(totals, target_bytes),
        files_saved=sum(files_saved(partition.facts, target_bytes) for partition in judged),
        cost_dollars=total.dollars,
        recommendation=_recommendation(inventory, judged, options, now_ms, metadata),
        metadata_bytes=metadata.metadata_bytes,
        rewrite_bytes=sum(rewrite.data_bytes for rewrite in work),
        seconds=total.seconds,
        estimate_source=", ".join(dict.fromkeys(pace.source for pace in learned)),
    )


def _file_score(
    inventory: TableInventory, judged: Sequence[JudgedPartition], fragment_ratio: float, now_ms: int
) -> float:
    improvable = [partition for partition in judged if partition.facts.worth_rewriting]
    if not improvable:
        return 0.0
    return weighted_score(
        files=sum(len(partition.candidates) for partition in improvable),
        fragment_ratio=fragment_ratio,
        history=inventory.history([file for partition in improvable for file in partition.files]),
        small_share=sum(partition.facts.small_files for partition in improvable) / len(inventory.files),
        now_ms=now_ms,
    )


def _metadata_score(metadata: MetadataSize) -> float:
    """0 for metadata of a usual size; from 0.55 to 1 when it is too large."""
    return 0.0 if metadata.load < 1 else min(1.0, 0.5 + metadata.load / 20)


def _recommendation(
    inventory: TableInventory,
    judged: Sequence[JudgedPartition],
    options: CompactionOptions,
    now_ms: int,
    metadata: MetadataSize,
) -> str:
    about_files = _about_files(inventory, judged, options, now_ms)
    if metadata.load < 1:
        return about_files
    size = "" if metadata.metadata_bytes is None else f", {format_bytes(metadata.metadata_bytes)} of metadata"
    return f"expire: {metadata.snapshots} snapshots{size}; {about_files}"


def _about_files(
    inventory: TableInventory, judged: Sequence[JudgedPartition], options: CompactionOptions, now_ms: int
) -> str:
    if not judged:
        return "healthy: no data files"
    # The partition that needs most speaks for the table, after those that can be compacted now.
    ranked = sorted(judged, key=lambda partition: -score(partition.facts, now_ms))
    advice = [recommendation(inventory, partition, options) for partition in ranked]
    compact = [text for text in advice if text.startswith("compact:")]
    if compact and len(judged) > 1:
        saved = sum(files_saved(partition.facts, options.target_bytes) for partition in judged)
        return f"compact: {len(compact)} of {len(judged)} partitions, {files_text(saved)} fewer"
    others = [text for word in ("watch:", "wait:") for text in advice if text.startswith(word)]
    return next(iter([*compact, *others]), f"healthy: {files_text(len(inventory.files))}, nothing to gain")

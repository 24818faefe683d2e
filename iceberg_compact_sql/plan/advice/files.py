"""Rules about data files: sizes against the target, row groups, and writers that make small files."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.snapshots import Operation

from iceberg_compact_sql.plan.advice.model import Finding, TableFacts, average_text, share_text
from iceberg_compact_sql.plan.cost import Throughput, estimate
from iceberg_compact_sql.plan.packing import pack_files
from iceberg_compact_sql.plan.partition_scores import JudgedPartition
from iceberg_compact_sql.plan.scoring import files_saved
from iceberg_compact_sql.plan.selection import files_text, judge_group
from iceberg_compact_sql.table.model import LiveFile
from iceberg_compact_sql.units import format_bytes

# Row groups from this size on are copied without decoding; the default of compaction.
COPIED_ROW_GROUP_BYTES = 8 * 1024**2
_ROW_GROUP_PROPERTY = "write.parquet.row-group-size-bytes"
_DISTRIBUTION_PROPERTY = "write.distribution-mode"
_MANY_SAVED = 100
# Commits that the distribution rule looks at, and the files for each partition from which a commit is wasteful.
_RECENT_COMMITS = 20
_FILES_PER_PARTITION = 4
_MIN_ADDED_FILES = 20


def file_sizes(facts: TableFacts) -> Iterator[Finding]:
    """Files far from the target, where a compaction would rewrite them now."""
    chosen = [partition for partition in facts.partitions if _is_rewritten(facts, partition)]
    saved = sum(files_saved(partition.facts, facts.target_bytes) for partition in chosen)
    oversized = sum(partition.facts.oversized_files for partition in chosen)
    if not saved and not oversized:
        return
    files = len(facts.inventory.files)
    small = sum(partition.facts.mergeable_files for partition in chosen)
    work = [work for partition in chosen if (work := partition.work(facts.options)) is not None]
    smallest = format_bytes(facts.options.min_file_bytes)
    text = f"{small} of {files_text(files)} are below {smallest}, {average_text(facts.data_bytes, files)} on average"
    if oversized:
        text += f"; {oversized} are above {format_bytes(facts.options.max_file_bytes)}"
    share = saved / files
    severe = saved >= _MANY_SAVED or (share >= 0.5 and saved >= 20)
    yield Finding(
        topic="files",
        severity="high" if severe else "medium" if saved >= 10 or oversized else "low",
        finding=f"{text}; the target is {format_bytes(facts.target_bytes)}",
        action=facts.compact(),
        gain=f"{files_text(saved)} fewer of {files}" if saved else f"{files_text(oversized)} split",
        cost_dollars=sum((estimate(each, facts.prices, Throughput()).dollars for each in work), 0.0),
        weight=share,
    )


def row_groups(facts: TableFacts) -> Iterator[Finding]:
    """Large files in row groups so small that every compaction must decode them instead of copying."""
    limit = COPIED_ROW_GROUP_BYTES
    files = [file for file in facts.inventory.files if file.size_bytes >= 2 * limit and file.split_offsets]
    small = [file for file in files if file.size_bytes / len(file.split_offsets) < limit]
    small_bytes = sum(file.size_bytes for file in small)
    if not small or small_bytes < sum(file.size_bytes for file in files) / 2:
        return
    groups = sum(len(file.split_offsets) for file in small)
    setting = facts.properties.get(_ROW_GROUP_PROPERTY, "")
    set_too_small = setting.isdigit() and int(setting) < limit
    yield Finding(
        topic="row groups",
        severity="low",
        finding=f"{files_text(len(small))} of {format_bytes(small_bytes)} have row groups of "
        f"{average_text(small_bytes, groups)} on average; below {format_bytes(limit)} they cannot be copied"
        + (f" ({_ROW_GROUP_PROPERTY} is {setting})" if set_too_small else ""),
        action=facts.set_properties({_ROW_GROUP_PROPERTY: str(128 * 1024**2)})
        if set_too_small
        else facts.compact("rewrite_all => true, copy => 'never'"),
        gain="later compactions copy row groups: about a tenth of the time",
        cost_dollars=None if set_too_small else _decode_cost(facts, small),
        weight=0.1,
    )


def distribution(facts: TableFacts) -> Iterator[Finding]:
    """Commits in which every task wrote a small file into every partition."""
    spec = facts.metadata.specs().get(facts.metadata.default_spec_id)
    mode = facts.properties.get(_DISTRIBUTION_PROPERTY, "").strip().lower()
    if spec is None or spec.is_unpartitioned() or mode in ("hash", "range"):
        return
    wasteful = []
    appends = [s for s in facts.snapshots_by_time if s.summary and s.summary.operation == Operation.APPEND]
    for snapshot in appends[-_RECENT_COMMITS:]:
        added, partitions, size = (
            _number(snapshot.summary.get(key) if snapshot.summary else None)
            for key in ("added-data-files", "changed-partition-count", "added-files-size")
        )
        if not added or not partitions or not size or added < _MIN_ADDED_FILES:
            continue
        if added / partitions >= _FILES_PER_PARTITION and size / added < facts.target_bytes / 8:
            wasteful.append((added, partitions, size))
    if len(wasteful) < 2:
        return
    added = sum(commit[0] for commit in wasteful)
    partitions = sum(commit[1] for commit in wasteful)
    per_partition = added / partitions
    shown = f"{_DISTRIBUTION_PROPERTY} is {mode!r}" if mode else f"{_DISTRIBUTION_PROPERTY} is not set"
    yield Finding(
        topic="distribution",
        severity="medium",
        finding=f"{len(wasteful)} of the last {min(len(appends), _RECENT_COMMITS)} appends wrote {per_partition:.0f} "
        f"files of {average_text(sum(commit[2] for commit in wasteful), added)} into each partition; {shown}",
        action=facts.set_properties({_DISTRIBUTION_PROPERTY: "hash"}),
        gain=f"{share_text(1 - 1 / per_partition)} fewer files in each append",
        weight=1 - 1 / per_partition,
    )


def _is_rewritten(facts: TableFacts, partition: JudgedPartition) -> bool:
    groups = pack_files(partition.candidates, facts.options.max_group_bytes, facts.options.max_group_files)
    return any(judge_group(facts.inventory, group, facts.options).rewrite for group in groups)


def _decode_cost(facts: TableFacts, files: list[LiveFile]) -> float:
    core_seconds = sum(file.size_bytes for file in files) / Throughput().decode_bytes_per_second
    return core_seconds * Throughput().memory_gb_per_core * facts.prices.gb_second


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0

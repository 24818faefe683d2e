"""Makes a compaction plan from an inventory and options. Pure; a dry run and a run use the same plan."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.plan.budget import Budget, Price
from iceberg_compact_sql.plan.cost import Estimate, Prices, RunRequests, Throughput, Work, estimate, metadata_requests
from iceberg_compact_sql.plan.layouts.cluster_files import plan_overlaps
from iceberg_compact_sql.plan.layouts.depth import DepthSum, file_depths
from iceberg_compact_sql.plan.learned_pace import NOTHING_LEARNED, LearnedPaces, Pace, planned_way
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan, FileGroup
from iceberg_compact_sql.plan.packing import pack_files
from iceberg_compact_sql.plan.scoring import PartitionFacts, partition_facts, score
from iceberg_compact_sql.plan.selection import classify_files, files_text, judge_group, nothing_to_do
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveDelete, LiveFile
from iceberg_compact_sql.table.partition_keys import exact_partition_key
from iceberg_compact_sql.units import format_duration

_DEFAULT_THROUGHPUT = Throughput()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A group before it is numbered and priced."""

    score: float
    files: tuple[LiveFile, ...]
    rewrite: bool
    reason: str
    expected_files: int
    depth: float | None = None

    @property
    def input_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def plan_compaction(
    inventory: TableInventory,
    options: CompactionOptions,
    *,
    now_ms: int,
    prices: Prices,
    throughput: Throughput = _DEFAULT_THROUGHPUT,
    where_given: bool = False,
    accepted_paths: Collection[str] | None = None,
    paces: LearnedPaces = NOTHING_LEARNED,
) -> CompactionPlan:
    """Return the groups to rewrite, in the order in which they run, then the skipped groups; each has a reason.

    `paces` are learned from past runs and change only the estimates.

    Reads no files and no clock. A second plan on the expected result selects nothing, unless a limit (`max_files`,
    `max_group_files`, a budget) reduced the first plan, or `rewrite_all` selects every file.

    With `accepted_paths` only these files are planned: an earlier plan accepted them, but they conflicted with a
    concurrent change. Budgets do not apply to them again. A group is skipped only if a rewrite gains nothing.
    """
    if accepted_paths is not None:
        options = replace(
            options,
            max_files=None,
            max_bytes=None,
            max_cost=None,
            time_budget_ms=None,
            min_score=None,
            min_fragment_ratio=None,
            idle_ms=None,
        )
    output_spec_id = inventory.default_spec_id if options.output_spec_id is None else options.output_spec_id
    drafts: list[_Draft] = []
    depths = DepthSum()
    for files in files_by_output_partition(inventory, output_spec_id):
        if accepted_paths is not None:
            files = [file for file in files if file.path in accepted_paths]
        if files:
            made = _plan_partition(
                inventory, files, options, output_spec_id, now_ms, accepted=accepted_paths is not None
            )
            drafts.extend(_with_depth(inventory, files, made, options, depths))
    drafts = _within_file_limit(inventory, drafts, options)
    metadata = metadata_requests(inventory.manifests, sum(draft.rewrite for draft in drafts))
    file_groups = [
        _with_estimate(inventory, draft, options, output_spec_id, prices, throughput, paces, metadata)
        for draft in drafts
    ]
    rewrites = _ordered([group for group in file_groups if group.action == "rewrite"], options)
    rewrites, over_budget = _within_budget(rewrites, options)
    skipped = [group for group in file_groups if group.action == "skip"]
    groups = [*rewrites, *over_budget, *skipped]
    reach("plan.decided", groups=len(groups), rewrites=len(rewrites), filtered=where_given)
    return CompactionPlan(
        inventory.state,
        options,
        tuple(replace(group, group_id=number) for number, group in enumerate(groups, 1)),
        depths.mean,
    )


def table_depth(inventory: TableInventory, options: CompactionOptions) -> float | None:
    """Return the clustering depth of all files, averaged by rows; None without an order or without files."""
    output_spec_id = inventory.default_spec_id if options.output_spec_id is None else options.output_spec_id
    depths = DepthSum()
    if options.order is not None:
        for files in files_by_output_partition(inventory, output_spec_id):
            depths.add(file_depths(inventory, files, options.order))
    return depths.mean


def _with_depth(
    inventory: TableInventory,
    files: Sequence[LiveFile],
    drafts: Sequence[_Draft],
    options: CompactionOptions,
    depths: DepthSum,
) -> Iterable[_Draft]:
    """Return the drafts of a partition with the depth of their files; add its files to `depths`."""
    if options.order is None:
        return drafts
    found = file_depths(inventory, files, options.order)
    depths.add(found)
    positions = {file.path: position for position, file in enumerate(files)}
    return [replace(draft, depth=found.mean([positions[file.path] for file in draft.files])) for draft in drafts]


def files_by_output_partition(inventory: TableInventory, output_spec_id: int) -> Iterable[list[LiveFile]]:
    """Return the files in the lists that are planned together: one list for each partition of the output spec.

    As in Iceberg, files of other specs are planned with the partition whose values are all null (in an unpartitioned
    spec, with all files). Files keep their scan order, and the lists have the order of their first files.
    """
    spec = inventory.specs.get(output_spec_id)
    all_null: tuple[Any, ...] = (None,) * (len(spec.fields) if spec is not None else 0)
    partitions: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in inventory.files:
        key = exact_partition_key(file.partition) if file.spec_id == output_spec_id else all_null
        files = partitions.get(key)
        if files is None:
            partitions[key] = [file]
        else:
            files.append(file)
    return partitions.values()


def _plan_partition(
    inventory: TableInventory,
    files: list[LiveFile],
    options: CompactionOptions,
    output_spec_id: int,
    now_ms: int,
    *,
    accepted: bool,
) -> list[_Draft]:
    """Return the groups of one partition, to rewrite or to skip; at least one."""
    facts = partition_facts(inventory, files, options.target_bytes)
    points = score(facts, now_ms)
    refusal = _partition_refused(facts, points, options, now_ms)
    if refusal is not None:
        return [_Draft(points, tuple(files), False, refusal, len(files))]
    classified = classify_files(inventory, files, options)
    drafts = [_Draft(points, refused, False, reason, len(refused)) for reason, refused in classified.refused]
    if options.order is not None and options.max_depth is not None and not (options.rewrite_all or accepted):
        clustered = plan_overlaps(inventory, classified, options, output_spec_id)
        drafts += [_Draft(points, group, v.rewrite, v.reason, v.expected_files) for group, v in clustered]
        return drafts
    if options.order is not None and accepted:
        # They were accepted for their overlap: their size does not matter.
        classified = replace(classified, candidates=(*classified.candidates, *classified.healthy), healthy=())
    for group in pack_files(classified.candidates, options.max_group_bytes, options.max_group_files):
        verdict = judge_group(inventory, group, options, accepted=accepted)
        drafts.append(_Draft(points, tuple(group), verdict.rewrite, verdict.reason, verdict.expected_files))
    if not drafts:
        drafts.append(_Draft(points, tuple(files), False, nothing_to_do(files, options), len(files)))
    return drafts


def _partition_refused(facts: PartitionFacts, points: float, options: CompactionOptions, now_ms: int) -> str | None:
    written_ms = facts.history.last_written_ms
    if options.idle_ms is not None and written_ms is not None and now_ms - written_ms < options.idle_ms:
        age = format_duration(max(0, now_ms - written_ms))
        return f"written to {age} ago, idle {format_duration(options.idle_ms)}"
    if options.min_score is not None and points < options.min_score:
        return f"score {points:.2f}, below min_score {options.min_score:g}"
    if options.min_fragment_ratio is not None and facts.fragment_ratio < options.min_fragment_ratio:
        ratio = f"{facts.fragment_ratio:.2f} delete files for each data file"
        return f"{ratio}, below min_fragment_ratio {options.min_fragment_ratio:g}"
    return None


def _within_file_limit(inventory: TableInventory, drafts: list[_Draft], options: CompactionOptions) -> list[_Draft]:
    """Keep groups until `max_files` is reached, as Iceberg does; the last one is cut, unless the cut gains nothing."""
    if options.max_files is None:
        return drafts
    remaining = options.max_files
    limited: list[_Draft] = []
    for draft in drafts:
        if not draft.rewrite or len(draft.files) <= remaining:
            remaining -= len(draft.files) if draft.rewrite else 0
            limited.append(draft)
            continue
        kept, left_out = draft.files[:remaining], draft.files
        if kept:
            verdict = judge_group(inventory, kept, options, accepted=True)
            if verdict.rewrite:
                limited.append(_Draft(draft.score, kept, True, verdict.reason, verdict.expected_files, draft.depth))
                remaining, left_out = 0, draft.files[remaining:]
        reason = f"{files_text(len(left_out))} left for another run: max_files {options.max_files}"
        limited.append(_Draft(draft.score, left_out, False, reason, len(left_out), draft.depth))
    return limited


def _with_estimate(
    inventory: TableInventory,
    draft: _Draft,
    options: CompactionOptions,
    output_spec_id: int,
    prices: Prices,
    throughput: Throughput,
    paces: LearnedPaces,
    metadata: RunRequests,
) -> FileGroup:
    deletes = _deletes_of(inventory, draft.files)
    first = draft.files[0]
    in_output_spec = all(file.spec_id == output_spec_id for file in draft.files)
    group = FileGroup(
        group_id=0,
        spec_id=first.spec_id,
        output_spec_id=output_spec_id,
        partition=first.partition if in_output_spec else None,
        partition_path=inventory.partition_path(first.spec_id, first.partition) if in_output_spec else "",
        action="rewrite" if draft.rewrite else "skip",
        reason=draft.reason,
        files=draft.files,
        deletes=deletes,
        input_bytes=draft.input_bytes,
        expected_files=draft.expected_files,
        score=draft.score,
        depth=draft.depth,
    )
    if not draft.rewrite:
        return group
    copied_row_groups, copied_bytes = _copied(group, options)
    way = planned_way(options.strategy, group.input_bytes, copied_bytes)
    pace = paces.of(way)
    applied = group.distinct_deletes
    cost: Estimate = estimate(
        Work(
            data_files=len(group.files),
            data_bytes=group.input_bytes,
            copied_bytes=copied_bytes,
            delete_files=len(applied),
            delete_bytes=sum(delete.content_size_bytes or delete.size_bytes for delete in applied),
            outputs=draft.expected_files,
            metadata=metadata,
        ),
        prices,
        throughput,
        None if pace == Pace() else pace.factor,
    )
    return replace(
        group,
        copied_row_groups=copied_row_groups,
        estimated_seconds=cost.seconds,
        estimated_cost=cost.dollars,
        way=way,
        estimate_source=pace.source,
        base_seconds=cost.base_seconds,
        request_cost=cost.request_dollars,
    )


def _deletes_of(inventory: TableInventory, files: Sequence[LiveFile]) -> tuple[tuple[LiveDelete, ...], ...]:
    if not inventory.has_deletes:
        return ((),) * len(files)
    return tuple(tuple(inventory.deletes_for(file)) for file in files)


def _copied(group: FileGroup, options: CompactionOptions) -> tuple[int, int]:
    """Count the row groups that can be copied, and their bytes: large ones of files without deletes."""
    if options.copy == "never" or group.partition is None or options.order is not None:
        return 0, 0
    count = copied_bytes = 0
    smallest = options.copy_min_row_group_bytes
    for file, deletes in zip(group.files, group.deletes, strict=True):
        if deletes or file.size_bytes < smallest:
            continue
        end = file.size_bytes
        for start in reversed(file.split_offsets):
            if end - start >= smallest:
                count += 1
                copied_bytes += end - start
            end = start
    return count, min(copied_bytes, group.input_bytes)


_ORDERS: dict[str, Callable[[FileGroup], float]] = {
    "bytes-asc": lambda group: group.input_bytes,
    "bytes-desc": lambda group: -group.input_bytes,
    "files-asc": lambda group: len(group.files),
    "files-desc": lambda group: -len(group.files),
    "score-desc": lambda group: -group.score,
}


def _ordered(groups: list[FileGroup], options: CompactionOptions) -> list[FileGroup]:
    if options.job_order in _ORDERS:
        return sorted(groups, key=_ORDERS[options.job_order])
    limited = options.max_bytes is not None or options.max_cost is not None or options.time_budget_ms is not None
    return sorted(groups, key=_best_first) if limited else groups


def _best_first(group: FileGroup) -> tuple[float, float]:
    return -group.score, -(len(group.files) - group.expected_files) / max(1, group.input_bytes)


def _within_budget(groups: list[FileGroup], options: CompactionOptions) -> tuple[list[FileGroup], list[FileGroup]]:
    """Split the groups into those within the budgets and those over; a smaller group may fit after one that did not."""
    budget = Budget(options.max_bytes, options.max_cost, options.time_budget_ms)
    accepted_groups: list[FileGroup] = []
    refused: list[FileGroup] = []
    for group in groups:
        price = Price(group.input_bytes, group.estimated_cost, group.estimated_seconds)
        reason = budget.spend(price)
        if reason is None:
            accepted_groups.append(group)
        else:
            refused.append(replace(group, action="skip", reason=reason))
    return accepted_groups, refused

"""From an inventory and options to a plan: pure, and the same for the dry run and the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.plan.cost import Estimate, Prices, Throughput, Work, estimate
from iceberg_compact_sql.plan.model import CompactionOptions, CompactionPlan, FileGroup
from iceberg_compact_sql.plan.packing import pack_files
from iceberg_compact_sql.plan.scoring import PartitionFacts, partition_facts, score
from iceberg_compact_sql.plan.selection import judge_group, nothing_to_do, sort_files
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveDelete, LiveFile
from iceberg_compact_sql.table.partitions import partition_key
from iceberg_compact_sql.units import format_bytes, format_duration

_DEFAULT_THROUGHPUT = Throughput()


@dataclass(frozen=True, slots=True)
class _Draft:
    """A group before it is numbered and priced."""

    score: float
    files: tuple[LiveFile, ...]
    rewrite: bool
    reason: str
    expected_files: int

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
) -> CompactionPlan:
    """The groups that a run rewrites, in their order, then those that were considered and left alone, with reasons.

    Reads nothing and knows no clock but `now_ms`. Planning again on what the plan is expected to leave selects
    nothing, except where a limit (`max_files`, `max_group_files`, a budget) held the first plan back, or `rewrite_all`
    asks for every file.
    """
    output_spec_id = inventory.default_spec_id if options.output_spec_id is None else options.output_spec_id
    drafts: list[_Draft] = []
    for files in files_by_place(inventory, output_spec_id):
        drafts.extend(_considered(inventory, files, options, now_ms))
    drafts = _within_file_limit(inventory, drafts, options)
    priced = [_priced(inventory, draft, options, output_spec_id, prices, throughput) for draft in drafts]
    rewrites = _ordered([group for group in priced if group.action == "rewrite"], options)
    rewrites, over_budget = _within_budget(rewrites, options)
    left_alone = [group for group in priced if group.action == "skip"]
    groups = [*rewrites, *over_budget, *left_alone]
    reach("plan.decided", groups=len(groups), rewrites=len(rewrites), filtered=where_given)
    return CompactionPlan(
        inventory.state, options, tuple(replace(group, group_id=number) for number, group in enumerate(groups, 1))
    )


def files_by_place(inventory: TableInventory, output_spec_id: int) -> Iterable[list[LiveFile]]:
    """Files that are considered together: those of a partition of the output spec, and all files of other specs.

    As in Iceberg, files of other specs join those whose partition values are all null, or all files of an
    unpartitioned spec. Scan order is kept within a place, and places come in the order of their first file.
    """
    spec = inventory.specs.get(output_spec_id)
    elsewhere: tuple[Any, ...] = (None,) * (len(spec.fields) if spec is not None else 0)
    places: dict[tuple[Any, ...], list[LiveFile]] = {}
    for file in inventory.files:
        place = partition_key(file.partition) if file.spec_id == output_spec_id else elsewhere
        found = places.get(place)
        if found is None:
            places[place] = [file]
        else:
            found.append(file)
    return places.values()


def _considered(
    inventory: TableInventory, files: list[LiveFile], options: CompactionOptions, now_ms: int
) -> list[_Draft]:
    """The groups of one place: those to rewrite and those refused, at least one."""
    facts = partition_facts(inventory, files, options.target_bytes)
    points = score(facts, now_ms)
    refusal = _place_refused(facts, points, options, now_ms)
    if refusal is not None:
        return [_Draft(points, tuple(files), False, refusal, len(files))]
    sorted_files = sort_files(inventory, files, options)
    drafts = [_Draft(points, refused, False, reason, len(refused)) for reason, refused in sorted_files.refused]
    for group in pack_files(sorted_files.candidates, options.max_group_bytes, options.max_group_files):
        verdict = judge_group(inventory, group, options)
        drafts.append(_Draft(points, tuple(group), verdict.rewrite, verdict.reason, verdict.expected_files))
    if not drafts:
        drafts.append(_Draft(points, tuple(files), False, nothing_to_do(files, options), len(files)))
    return drafts


def _place_refused(facts: PartitionFacts, points: float, options: CompactionOptions, now_ms: int) -> str | None:
    written_ms = facts.history.last_written_ms
    if options.idle_ms is not None and written_ms is not None and now_ms - written_ms < options.idle_ms:
        age = format_duration(max(0, now_ms - written_ms))
        return f"written to {age} ago, idle {format_duration(options.idle_ms)}"
    if options.min_score is not None and points < options.min_score:
        return f"score {points:.2f}, below min_score {options.min_score:g}"
    return None


def _within_file_limit(inventory: TableInventory, drafts: list[_Draft], options: CompactionOptions) -> list[_Draft]:
    """Iceberg's walk: groups are taken until `max_files`, and the last one is cut, unless the cut gains nothing."""
    if options.max_files is None:
        return drafts
    left = options.max_files
    limited: list[_Draft] = []
    for draft in drafts:
        if not draft.rewrite or len(draft.files) <= left:
            left -= len(draft.files) if draft.rewrite else 0
            limited.append(draft)
            continue
        kept, rest = draft.files[:left], draft.files
        if kept:
            verdict = judge_group(inventory, kept, options, cut=True)
            if verdict.rewrite:
                limited.append(_Draft(draft.score, kept, True, verdict.reason, verdict.expected_files))
                left, rest = 0, draft.files[left:]
        reason = f"{len(rest)} file{'' if len(rest) == 1 else 's'} left for another run: max_files {options.max_files}"
        limited.append(_Draft(draft.score, rest, False, reason, len(rest)))
    return limited


def _priced(
    inventory: TableInventory,
    draft: _Draft,
    options: CompactionOptions,
    output_spec_id: int,
    prices: Prices,
    throughput: Throughput,
) -> FileGroup:
    deletes = _deletes_of(inventory, draft.files)
    first = draft.files[0]
    at_home = all(file.spec_id == output_spec_id for file in draft.files)
    group = FileGroup(
        group_id=0,
        spec_id=first.spec_id,
        output_spec_id=output_spec_id,
        partition=first.partition if at_home else None,
        partition_path=inventory.partition_path(first.spec_id, first.partition) if at_home else "",
        action="rewrite" if draft.rewrite else "skip",
        reason=draft.reason,
        files=draft.files,
        deletes=deletes,
        input_bytes=draft.input_bytes,
        expected_files=draft.expected_files,
        score=draft.score,
    )
    if not draft.rewrite:
        return group
    copied_row_groups, copied_bytes = _copied(group, options)
    applied = group.distinct_deletes
    cost: Estimate = estimate(
        Work(
            data_files=len(group.files),
            data_bytes=group.input_bytes,
            copied_bytes=copied_bytes,
            delete_files=len(applied),
            delete_bytes=sum(delete.content_size_bytes or delete.size_bytes for delete in applied),
            outputs=draft.expected_files,
        ),
        prices,
        throughput,
    )
    return replace(
        group,
        copied_row_groups=copied_row_groups,
        estimated_seconds=cost.seconds,
        estimated_cost=cost.dollars,
    )


def _deletes_of(inventory: TableInventory, files: Sequence[LiveFile]) -> tuple[tuple[LiveDelete, ...], ...]:
    if not inventory.has_deletes:
        return ((),) * len(files)
    return tuple(tuple(inventory.deletes_for(file)) for file in files)


def _copied(group: FileGroup, options: CompactionOptions) -> tuple[int, int]:
    """Row groups large enough to be copied, and their bytes: those of files without deletes that stay in place."""
    if options.copy == "never" or group.partition is None:
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
    """Groups in order for as long as the budgets last; one that does not fit leaves room for smaller ones after it."""
    taken: list[FileGroup] = []
    refused: list[FileGroup] = []
    used_bytes, used_cost, used_seconds = 0, 0.0, 0.0
    budget_seconds = None if options.time_budget_ms is None else options.time_budget_ms / 1000
    for group in groups:
        reason = None
        if options.max_bytes is not None and used_bytes + group.input_bytes > options.max_bytes:
            reason = (
                f"{format_bytes(group.input_bytes)} on top of {format_bytes(used_bytes)} "
                f"would exceed max_bytes {format_bytes(options.max_bytes)}"
            )
        elif options.max_cost is not None and used_cost + group.estimated_cost > options.max_cost:
            reason = (
                f"${group.estimated_cost:.6f} on top of ${used_cost:.6f} would exceed max_cost ${options.max_cost:g}"
            )
        elif budget_seconds is not None and used_seconds + group.estimated_seconds > budget_seconds:
            reason = (
                f"{format_duration(group.estimated_seconds * 1000)} on top of {format_duration(used_seconds * 1000)} "
                f"would exceed time_budget {format_duration(budget_seconds * 1000)}"
            )
        if reason is not None:
            refused.append(replace(group, action="skip", reason=reason))
            continue
        used_bytes += group.input_bytes
        used_cost += group.estimated_cost
        used_seconds += group.estimated_seconds
        taken.append(group)
    return taken, refused

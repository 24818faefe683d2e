"""Which files of a partition a clustering run rewrites: those that overlap too deeply, and small ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from iceberg_compact_sql.plan.layouts.depth import curve_boxes, file_depths, order_spans
from iceberg_compact_sql.plan.layouts.overlaps import BoxGeometry, Geometry, Item, LineGeometry, overlapping_groups
from iceberg_compact_sql.plan.model import CompactionOptions
from iceberg_compact_sql.plan.packing import expected_outputs, pack_files
from iceberg_compact_sql.plan.selection import (
    ClassifiedFiles,
    Verdict,
    files_text,
    has_effective_deletes,
    judge_group,
    sizes_of,
)
from iceberg_compact_sql.table.inventory import TableInventory
from iceberg_compact_sql.table.model import LiveFile

_NEWEST = 1 << 62
Judged = tuple[tuple[LiveFile, ...], Verdict]


def plan_overlaps(
    inventory: TableInventory, classified: ClassifiedFiles, options: CompactionOptions, output_spec_id: int
) -> list[Judged]:
    """Return the groups of one partition, to rewrite or to skip; at least one if there are files.

    Files of other specs, and files without bounds, are selected by size only.
    """
    order, max_depth = options.order, options.max_depth
    assert order is not None
    assert max_depth is not None
    files = [*classified.candidates, *classified.healthy]
    if not files:
        return []
    candidates = len(classified.candidates)
    in_place = np.array([file.spec_id == output_spec_id for file in files], np.bool_)
    depths = file_depths(inventory, files, order)
    geometry: Geometry
    runs: list[str | None] = [None] * len(files)
    if order.is_curve:
        boxes = curve_boxes(inventory, files, order)
        boxes.low[~in_place] = boxes.high[~in_place] = 0
        geometry, starts = BoxGeometry(boxes), boxes.low[:, 0]
        # Small files and files with deletes may go alone.
        for position in range(candidates, len(files)):
            runs[position] = inventory.ordered_run(files[position], order.text)
    else:
        spans = order_spans(inventory, files, order)
        spans.low[~in_place] = spans.high[~in_place] = 0
        geometry, starts = LineGeometry(spans), spans.low
    by_size: set[tuple[int, ...]] = set()

    def choose_small(items: Sequence[Item]) -> list[list[int]]:
        numbers: dict[str, int] = {}
        small: list[LiveFile] = []
        for number, item in enumerate(items):
            if item.chosen:
                found = _small_outputs(files[item.members[0]], item.size_bytes, options)
            else:
                found = [files[item.members[0]]] if item.members[0] < candidates else []
            numbers.update((file.path, number) for file in found)
            small += found
        chosen: list[list[int]] = []
        taken_items: set[int] = set()
        for group in pack_files(small, options.max_group_bytes, None):
            joined = sorted({numbers[file.path] for file in group})
            alone = len(joined) == 1 and items[joined[0]].chosen
            if not alone and taken_items.isdisjoint(joined) and judge_group(inventory, group, options).rewrite:
                chosen.append(joined)
                taken_items.update(joined)
        by_size.update(tuple(sorted(m for number in group for m in items[number].members)) for group in chosen)
        return chosen

    groups = overlapping_groups(geometry, [file.size_bytes for file in files], runs, max_depth, choose_small)
    judged: list[Judged] = []
    taken: set[int] = set()
    for group in groups:
        in_order = [files[position] for position in sorted(group, key=lambda position: (starts[position], position))]
        for part in pack_files(in_order, options.max_group_bytes, options.max_group_files):
            if tuple(group) in by_size:
                verdict = judge_group(inventory, part, options)
            else:
                verdict = _overlap_verdict(inventory, part, options, depths.mean(group))
            judged.append((tuple(part), verdict))
        taken.update(group)
    judged.extend(_left(inventory, files, candidates, taken, options))
    unknown = [int(p) for p in np.flatnonzero(~depths.known & in_place) if int(p) not in taken]
    if not judged or (unknown and not any(verdict.rewrite for _, verdict in judged)):
        left = [file for position, file in enumerate(files) if position not in taken]
        listed = {file.path for group, _ in judged for file in group}
        healthy = tuple(file for file in left if file.path not in listed)
        if healthy:
            judged.append(
                (healthy, Verdict(False, _nothing_to_do(healthy, depths.mean(), unknown, options), len(left)))
            )
    return judged


def _small_outputs(file: LiveFile, size_bytes: int, options: CompactionOptions) -> list[LiveFile]:
    """Return what a group will be written to, if it is small: the next run would select it by size."""
    count = expected_outputs(size_bytes, options)
    if size_bytes // count >= options.min_file_bytes:
        return []
    # No delete and no snapshot is about these files.
    return [
        replace(
            file,
            path=f"{file.path}#{number}",
            size_bytes=size_bytes // count,
            snapshot_id=None,
            sequence_number=_NEWEST,
            file_sequence_number=_NEWEST,
        )
        for number in range(count)
    ]


def _left(
    inventory: TableInventory, files: Sequence[LiveFile], candidates: int, taken: set[int], options: CompactionOptions
) -> list[Judged]:
    """Return the candidates that no group has, with the reason why they are left alone."""
    left = [files[position] for position in range(candidates) if position not in taken]
    packed = pack_files(left, options.max_group_bytes, options.max_group_files)
    return [(tuple(group), judge_group(inventory, group, options)) for group in packed]


def _overlap_verdict(
    inventory: TableInventory, files: Sequence[LiveFile], options: CompactionOptions, depth: float
) -> Verdict:
    total_bytes = sum(file.size_bytes for file in files)
    written_bytes = int(total_bytes * (options.compression_factor or 1.0))
    outputs = min(expected_outputs(written_bytes, options), max(1, sum(file.rows for file in files)))
    applies_deletes = any(has_effective_deletes(inventory, file) for file in files)
    if len(files) == 1 and not applies_deletes:
        return Verdict(False, f"{sizes_of(files)}, alone: nothing to cluster it with", 1)
    if not applies_deletes and inventory.made_by_one_run(files, options.sizes_text):
        return Verdict(False, f"{sizes_of(files)}, written by one run in this order: nothing to gain", len(files))
    reason = f"{sizes_of(files)}, depth {depth:.1f} above max_depth {options.max_depth}: clustered into {outputs}"
    return Verdict(True, reason, outputs)


def _nothing_to_do(files: Sequence[LiveFile], depth: float, unknown: Sequence[int], options: CompactionOptions) -> str:
    if unknown:
        without = f"{files_text(len(unknown))} without bounds of the order's columns"
        return f"{files_text(len(files))}, {without}: their overlap is unknown, they are selected by size only"
    return f"{files_text(len(files))}, depth {depth:.1f}, no point above max_depth {options.max_depth}: nothing to do"

"""Cuts a file group into tasks: about one for each planned output, of even size, each input byte in exactly one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask
from iceberg_compact_sql.table.model import LiveDelete, LiveFile


@dataclass(frozen=True, slots=True)
class _Segment:
    """A byte range that is not cut any further; `end` is None at the end of its file."""

    position: int
    start: int
    end: int | None
    length_bytes: int


def cut_group(group: FileGroup, job: RewriteJob, *, expected_ratio: float = 1.0) -> tuple[RewriteTask, ...]:
    """Return the group's tasks in order: files stay whole where that is even enough, larger ones are cut at row groups.

    Pure and deterministic. Every byte of every file is in exactly one slice, so every row group is read by exactly
    one task. `expected_ratio` is output bytes per input byte: a group that shrinks gets fewer, larger outputs.
    """
    total_bytes = sum(file.size_bytes for file in group.files)
    return _cut(group, output_shares(total_bytes, group.expected_files, job, expected_ratio), expected_ratio)


def even_slices(group: FileGroup, count: int) -> tuple[RewriteTask, ...]:
    """Return the group's inputs as at most `count` tasks of about equal bytes, each input byte in exactly one."""
    total_bytes = sum(file.size_bytes for file in group.files)
    edges = [total_bytes * index // count for index in range(count + 1)]
    return _cut(group, [after - before for before, after in itertools.pairwise(edges)], 1.0)


def _cut(group: FileGroup, shares: Sequence[int], expected_ratio: float) -> tuple[RewriteTask, ...]:
    order = _reading_order(group)
    files = [group.files[position] for position in order]
    deletes = [group.deletes[position] if group.deletes else () for position in order]
    segments = _segments(files, max(1, min(shares, default=1)))
    tasks = (
        _task(group, index, files, deletes, run, expected_ratio)
        for index, run in enumerate(_distribute(list(segments), shares))
    )
    return tuple(tasks)


def whole_task(group: FileGroup, positions: Sequence[int]) -> RewriteTask:
    """Return some of the group's files, each whole, as one task."""
    files = [group.files[position] for position in positions]
    deletes = [group.deletes[position] if group.deletes else () for position in positions]
    run = [_Segment(index, 0, None, file.size_bytes) for index, file in enumerate(files)]
    return _task(group, 0, files, deletes, run, 1.0)


def output_shares(total_bytes: int, expected_files: int, job: RewriteJob, expected_ratio: float = 1.0) -> list[int]:
    """Return the input bytes of each output: even if even outputs are large enough, else full ones and a remainder.

    The planner's count holds unless outputs would be below the minimum size and be rewritten again by the next run.
    """
    count = max(1, expected_files)
    out_bytes = total_bytes * expected_ratio
    if count > 1 and expected_ratio < 1.0 and out_bytes / count < job.min_file_bytes:
        count = min(count, expected_outputs(int(out_bytes), job))
    if count > 1 and out_bytes / count < job.min_file_bytes:
        # Two halves below the minimum would both be candidates again; one full file and a remainder are not.
        full = min(int(job.target_bytes / expected_ratio), total_bytes // (count - 1))
        if total_bytes - full * (count - 1) > 0:
            return [full] * (count - 1) + [total_bytes - full * (count - 1)]
        count -= 1
    edges = [total_bytes * index // count for index in range(count + 1)]
    return [after - before for before, after in itertools.pairwise(edges)]


def _reading_order(group: FileGroup) -> Sequence[int]:
    """Return the scan order; files that are split by new partitions are first sorted by their old ones.

    Then a task has rows of few new partitions, and writes few small files.
    """
    positions = range(len(group.files))
    if group.partition is not None:
        return positions
    return sorted(positions, key=lambda p: (group.files[p].spec_id, repr(group.files[p].partition), p))


def _segments(files: Sequence[LiveFile], share_bytes: int) -> Iterator[_Segment]:
    for position, file in enumerate(files):
        cuts = list(_cuts(file, share_bytes))
        edges: list[int] = [0, *cuts]
        for index, start in enumerate(edges):
            last = index == len(edges) - 1
            end = None if last else edges[index + 1]
            yield _Segment(position, start, end, (file.size_bytes if end is None else end) - start)


def _cuts(file: LiveFile, share_bytes: int) -> Iterator[int]:
    """Yield where a file may be cut: at row groups if the manifest has split offsets, otherwise anywhere.

    A row group belongs to the slice that holds its start, so any cut is correct, only less even.
    """
    if file.size_bytes <= share_bytes // 8:
        return
    offsets = file.split_offsets
    ordered = bool(offsets) and all(a < b for a, b in itertools.pairwise(offsets))
    if ordered and offsets[0] >= 0 and offsets[-1] < file.size_bytes:
        yield from offsets[1:]
    elif file.size_bytes > share_bytes:
        count = max(2, round(8 * file.size_bytes / share_bytes))
        yield from sorted({file.size_bytes * index // count for index in range(1, count)} - {0})


def _distribute(segments: list[_Segment], shares: Sequence[int]) -> Iterator[list[_Segment]]:
    """Yield consecutive runs of segments, each as near to its share as the segments allow; no run is empty."""
    position, wanted_bytes, taken_bytes = 0, 0, 0
    for index, share in enumerate(shares):
        wanted_bytes += share
        run: list[_Segment] = []
        last = index == len(shares) - 1
        while position < len(segments):
            length_bytes = segments[position].length_bytes
            # Take the segment if more than half of it is before the wanted edge.
            if not last and taken_bytes + length_bytes / 2 > wanted_bytes:
                break
            run.append(segments[position])
            taken_bytes += length_bytes
            position += 1
        if run:
            yield run


def _task(
    group: FileGroup,
    output_index: int,
    files: Sequence[LiveFile],
    deletes: Sequence[Sequence[LiveDelete]],
    run: Sequence[_Segment],
    expected_ratio: float,
) -> RewriteTask:
    numbers: dict[tuple[str, int | None], int] = {}
    distinct: list[LiveDelete] = []
    inputs = []
    for position, segments in itertools.groupby(run, key=lambda segment: segment.position):
        first, *rest = segments
        last = rest[-1] if rest else first
        file = files[position]
        for delete in deletes[position]:
            key = (delete.path, delete.content_offset)
            if key not in numbers:
                numbers[key] = len(distinct)
                distinct.append(delete)
        inputs.append(
            InputSlice(
                path=file.path,
                size_bytes=file.size_bytes,
                rows=file.rows,
                spec_id=file.spec_id,
                partition=file.partition,
                sequence_number=file.sequence_number,
                start=first.start,
                end=last.end,
                deletes=tuple(numbers[(delete.path, delete.content_offset)] for delete in deletes[position]),
                first_row_id=file.first_row_id,
                nan_counts=file.nan_counts,
            )
        )
    return RewriteTask(
        group_id=group.group_id,
        output_index=output_index,
        inputs=tuple(inputs),
        deletes=tuple(distinct),
        partition=group.partition,
        expected_ratio=expected_ratio,
    )

"""Cutting groups into tasks: nothing lost, nothing twice, outputs of healthy sizes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.plan.model import CompactionOptions, FileGroup
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.slicing import cut_group, output_shares
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from tests.support.planning import job_for

JOB = job_for(CompactionOptions(target_bytes=1000, min_file_bytes=750, max_file_bytes=1800))


def live_file(number: int, size: int, offsets: tuple[int, ...] = (4,), partition: tuple[object, ...] = ()) -> LiveFile:
    return LiveFile(f"file:///t/{number}", "PARQUET", 0, partition, size, 10, 1, 1, split_offsets=offsets)


def group_of(files: list[LiveFile], expected: int | None = None, **changes: object) -> FileGroup:
    total = sum(file.size_bytes for file in files)
    group = FileGroup(
        0,
        0,
        0,
        (),
        "",
        "rewrite",
        "",
        tuple(files),
        ((),) * len(files),
        total,
        expected or expected_outputs(total, JOB),
    )
    return replace(group, **changes)  # type: ignore[arg-type]


sizes = st.integers(1, 4000)


@st.composite
def live_files(draw: st.DrawFn) -> list[LiveFile]:
    files = []
    for number in range(draw(st.integers(1, 30))):
        size = draw(sizes)
        kind = draw(st.sampled_from(["none", "one", "many", "wrong"]))
        offsets: tuple[int, ...] = ()
        if kind == "one":
            offsets = (min(4, size - 1),)
        elif kind == "many":
            offsets = tuple(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=9))))
        elif kind == "wrong":
            offsets = (size + 5, 3)
        files.append(live_file(number, size, offsets))
    return files


@given(live_files(), st.floats(0.2, 1.2))
def test_every_byte_of_every_file_is_in_exactly_one_slice(files: list[LiveFile], ratio: float) -> None:
    tasks = cut_group(group_of(files), JOB, expected_ratio=ratio)
    assert [task.output_index for task in tasks] == sorted({task.output_index for task in tasks})
    ranges: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        assert task.inputs
        for piece in task.inputs:
            end = piece.size_bytes if piece.end is None else piece.end
            ranges.setdefault(piece.path, []).append((piece.start, end))
    assert set(ranges) == {file.path for file in files}
    for file in files:
        found = sorted(ranges[file.path])
        assert found[0][0] == 0
        assert found[-1][1] == file.size_bytes
        assert all(left[1] == right[0] and left[0] < left[1] for left, right in pairwise(found))


@given(live_files())
def test_cutting_is_deterministic(files: list[LiveFile]) -> None:
    assert cut_group(group_of(files), JOB) == cut_group(group_of(files), JOB)


def test_files_are_cut_at_their_row_groups_only() -> None:
    big = live_file(0, 5000, (4, 900, 2100, 3000, 4100))
    tasks = cut_group(group_of([big]), JOB)
    starts = {piece.start for task in tasks for piece in task.inputs}
    assert starts <= {0, 900, 2100, 3000, 4100}
    assert len(tasks) == 5


def test_whole_small_files_stay_whole() -> None:
    tasks = cut_group(group_of([live_file(n, 100) for n in range(40)]), JOB)
    assert len(tasks) == 4
    assert all(piece.whole for task in tasks for piece in task.inputs)
    assert {len(task.inputs) for task in tasks} == {10}


@pytest.mark.parametrize(
    ("total", "expected", "ratio", "shares"),
    [
        (900, 1, 1.0, [900]),
        (4000, 4, 1.0, [1000] * 4),
        (1600, 2, 1.0, [800, 800]),
        # Two of 600 would both be below the minimum of 750 and be rewritten again.
        (1200, 2, 1.0, [1000, 200]),
        # Four files of 700 would be: so three of about 933.
        (4000, 4, 0.7, [1333, 1333, 1334]),
        (1600, 2, 0.6, [1600]),
    ],
)
def test_shares_make_outputs_that_are_left_alone_next_time(
    total: int, expected: int, ratio: float, shares: list[int]
) -> None:
    assert output_shares(total, expected, JOB, ratio) == shares


@given(st.integers(1, 100_000), st.floats(0.3, 1.0))
def test_at_most_one_output_is_below_the_minimum(total: int, ratio: float) -> None:
    shares = output_shares(total, expected_outputs(total, JOB), JOB, ratio)
    assert sum(shares) == total
    assert sum(share * ratio < 0.99 * JOB.min_file_bytes for share in shares) <= 1
    assert all(share * ratio <= JOB.max_file_bytes for share in shares)


def test_a_task_carries_only_the_deletes_of_its_files() -> None:
    deletes = [LiveDelete(f"file:///d/{n}", DeleteKind.POSITION, "PARQUET", 0, (), 2, 10, 1) for n in range(3)]
    files = [live_file(n, 1000) for n in range(3)]
    group = group_of(files, deletes=((deletes[0], deletes[2]), (deletes[1],), (deletes[2],)))
    tasks = cut_group(group, JOB)
    for number, task in enumerate(tasks):
        applied = [task.deletes[index] for index in task.inputs[0].deletes]
        assert tuple(applied) == group.deletes[number]
        assert set(applied) == set(task.deletes)


def test_files_that_are_spread_come_ordered_by_their_old_partition() -> None:
    files = [live_file(n, 500, partition=("ab"[n % 2],)) for n in range(6)]
    tasks = cut_group(group_of(files, partition=None), JOB)
    assert [piece.partition for task in tasks for piece in task.inputs] == [("a",)] * 3 + [("b",)] * 3

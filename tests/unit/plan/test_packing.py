"""Groups at exactly their limits: a limit is what still fits, as in Iceberg's packing."""

from __future__ import annotations

import pytest

from iceberg_compact_sql.plan.packing import pack_files
from tests.support.planning import MB, data_file


@pytest.mark.parametrize(
    ("sizes", "max_mb", "max_files", "expected"),
    [
        ([4, 6], 10, None, [2]),
        ([4, 6, 1], 10, None, [2, 1]),
        ([4, 7], 10, None, [1, 1]),
        ([10, 10], 10, None, [1, 1]),
        ([11, 1], 10, None, [1, 1]),
        ([1, 1, 1], 10, 3, [3]),
        ([1, 1, 1, 1], 10, 3, [3, 1]),
        ([1, 1], 10, 1, [1, 1]),
        ([], 10, 3, []),
    ],
)
def test_a_group_is_filled_to_its_limit_and_not_beyond(
    sizes: list[int], max_mb: int, max_files: int | None, expected: list[int]
) -> None:
    files = [data_file(size) for size in sizes]
    groups = pack_files(files, max_mb * MB, max_files)
    assert [len(group) for group in groups] == expected
    assert [file for group in groups for file in group] == files

"""How files become groups, and groups become output files: Iceberg's own arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from iceberg_compact_sql.plan.model import CompactionOptions

# Iceberg spreads a remainder over the other outputs while they grow by less than this.
_LARGEST_GROWTH = 1.1


class Sized(Protocol):
    """Anything with a size: data files and delete files are packed alike."""

    @property
    def size_bytes(self) -> int: ...


_S = TypeVar("_S", bound=Sized)


def pack_files(files: Sequence[_S], max_group_bytes: int, max_group_files: int | None) -> list[list[_S]]:
    """Files cut into runs of at most `max_group_bytes` and `max_group_files`, order kept: next-fit, as Iceberg packs.

    No file is lost and none is in two groups. Only a file that is larger than a whole group exceeds the limit, alone.
    """
    groups: list[list[_S]] = []
    current: list[_S] = []
    current_bytes = 0
    for file in files:
        full = current_bytes + file.size_bytes > max_group_bytes or len(current) == max_group_files
        if current and full:
            groups.append(current)
            current, current_bytes = [], 0
        current.append(file)
        current_bytes += file.size_bytes
    if current:
        groups.append(current)
    return groups


def expected_outputs(input_bytes: int, options: CompactionOptions) -> int:
    """How many files a group of this size is rewritten into.

    >>> mb = 1024**2
    >>> options = CompactionOptions(512 * mb, 384 * mb, 921 * mb)
    >>> [expected_outputs(size * mb, options) for size in (3, 512, 540, 600, 950, 1030)]
    [1, 1, 1, 2, 2, 2]
    """
    target = options.target_bytes
    if input_bytes < target:
        return 1
    whole, remainder = divmod(input_bytes, target)
    with_remainder = whole + (1 if remainder else 0)
    if remainder > options.min_file_bytes:
        return with_remainder
    if input_bytes // whole < min(_LARGEST_GROWTH * target, float(options.roll_bytes)):
        return whole
    return with_remainder


def expected_sizes(input_bytes: int, options: CompactionOptions) -> tuple[int, ...]:
    """The sizes that outputs are cut to: even where that leaves none too small, else full files and a rest.

    An even cut below the minimum would make every output a candidate of the next run; one small rest alone is not.
    """
    count = expected_outputs(input_bytes, options)
    even, odd_bytes = divmod(input_bytes, count)
    if count == 1 or even >= options.min_file_bytes:
        return (*([even + 1] * odd_bytes), *([even] * (count - odd_bytes)))
    full = min(options.target_bytes, input_bytes)
    return (*([full] * (count - 1)), input_bytes - full * (count - 1))

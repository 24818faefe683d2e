"""Packs files into groups and counts the output files of a group, as Iceberg does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

# Iceberg adds a remainder to the other outputs if they grow by less than this factor.
_LARGEST_GROWTH = 1.1


class Sized(Protocol):
    """A data file or delete file; both are packed by size."""

    @property
    def size_bytes(self) -> int: ...


class SizeLimits(Protocol):
    """The sizes that decide how many files a group becomes; options of a plan and the job of a rewrite have them."""

    @property
    def target_bytes(self) -> int: ...

    @property
    def min_file_bytes(self) -> int: ...

    @property
    def roll_bytes(self) -> int: ...


_S = TypeVar("_S", bound=Sized)


def pack_files(files: Sequence[_S], max_group_bytes: int, max_group_files: int | None) -> list[list[_S]]:
    """Pack files in order into groups of at most `max_group_bytes` and `max_group_files` (next-fit, as in Iceberg).

    Every file is in exactly one group. Only a single file that is larger than `max_group_bytes` exceeds the limit.
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


def expected_outputs(input_bytes: int, limits: SizeLimits) -> int:
    """Return how many files Iceberg writes for a group of this size.

    >>> from iceberg_compact_sql.plan.model import CompactionOptions
    >>> mb = 1024**2
    >>> options = CompactionOptions(512 * mb, 384 * mb, 921 * mb)
    >>> [expected_outputs(size * mb, options) for size in (3, 512, 540, 600, 950, 1030)]
    [1, 1, 1, 2, 2, 2]
    """
    target = limits.target_bytes
    if input_bytes < target:
        return 1
    whole, remainder = divmod(input_bytes, target)
    with_remainder = whole + (1 if remainder else 0)
    if remainder > limits.min_file_bytes:
        return with_remainder
    if input_bytes // whole < min(_LARGEST_GROWTH * target, float(limits.roll_bytes)):
        return whole
    return with_remainder

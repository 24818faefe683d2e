"""How the partition ranges of manifests overlap, and how many bytes of manifests a lookup must open.

Only the manifest list is needed: it holds the bounds of every partition field of every manifest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, count
from typing import Any

from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.typedef import Record

from iceberg_compact_sql.table.decode_bound import decode_bound
from iceberg_compact_sql.table.partition_keys import loose_partition_key

# Sort key of a partition value: nulls first, NaN last. Unknown bounds sort below and above all values.
SortKey = tuple[Any, ...]
_UNKNOWN_LOW, _NULL, _NAN, _UNKNOWN_HIGH = (-1,), (0,), (2,), (3,)


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The lowest and the highest partition of a manifest, from the bounds of its partition fields.

    A field narrows the range only while all fields before it have one value: the keys end at the first that varies.
    """

    lowest: tuple[SortKey, ...]
    highest: tuple[SortKey, ...]

    @property
    def sort_key(self) -> tuple[SortKey, ...]:
        return tuple(chain.from_iterable(zip(self.lowest, self.highest, strict=True)))


@dataclass(frozen=True, slots=True)
class RangedManifest:
    """A manifest and its partition range."""

    manifest: ManifestFile
    partitions: PartitionRange


def partition_sort_key(partition: Record, order: Sequence[int]) -> tuple[SortKey, ...]:
    """Return the key that entries are sorted by: the given fields of a partition, in that order."""
    return tuple(_sort_key(partition[position]) for position in order)


def partition_range(manifest: ManifestFile, types: Sequence[Any], order: Sequence[int]) -> PartitionRange:
    """Return the partition range of a manifest for the given order of its partition fields."""
    summaries = manifest.partitions or []
    lowest: list[SortKey] = []
    highest: list[SortKey] = []
    for position in order:
        known = len(summaries) == len(types)
        low, high = _bounds(summaries[position], types[position]) if known else (_UNKNOWN_LOW, _UNKNOWN_HIGH)
        lowest.append(low)
        highest.append(high)
        if low != high:
            break
    return PartitionRange(tuple(lowest), tuple(highest))


def overlapping_groups(manifests: Sequence[RangedManifest]) -> list[list[RangedManifest]]:
    """Group manifests whose partition ranges overlap; every other manifest is a group of its own.

    Ranges that share only a boundary do not overlap. A group that is rewritten in order stays within its range, so it
    does not overlap other groups afterwards.
    """
    groups: list[list[RangedManifest]] = []
    highest: tuple[SortKey, ...] = ()
    for ranged in sorted(manifests, key=lambda ranged: ranged.partitions.sort_key):
        if groups and _above(highest, ranged.partitions.lowest):
            groups[-1].append(ranged)
            highest = max(highest, ranged.partitions.highest)
        else:
            groups.append([ranged])
            highest = ranged.partitions.highest
    return groups


def lookup_bytes(group: Sequence[RangedManifest]) -> float:
    """Return how many bytes of manifests a reader opens, on average, to look up a partition at the edge of a range."""
    ranges = [ranged.partitions for ranged in group]
    first = ranges[0].lowest
    # The first field in which the ranges differ; fields before it have one value in all of them.
    level = next(
        index for index in count() if any({r.lowest[index], r.highest[index]} != {first[index]} for r in ranges)
    )
    sizes = [ranged.manifest.manifest_length for ranged in group]
    starts = _WeightedKeys([(r.lowest[level], size) for r, size in zip(ranges, sizes, strict=True)])
    ends = _WeightedKeys([(r.highest[level], size) for r, size in zip(ranges, sizes, strict=True)])

    def opened_bytes(key: SortKey) -> int:
        return starts.up_to(key) - ends.below(key)

    return sum(
        size * (opened_bytes(r.lowest[level]) + opened_bytes(r.highest[level]))
        for r, size in zip(ranges, sizes, strict=True)
    ) / (2 * max(1, sum(sizes)))


class _WeightedKeys:
    """Sort keys with weights; gives the sum of the weights up to a key."""

    def __init__(self, weights: Sequence[tuple[SortKey, int]]) -> None:
        ordered = sorted(weights)
        self._keys = [key for key, _ in ordered]
        self._sums = [0, *accumulate(weight for _, weight in ordered)]

    def below(self, key: SortKey) -> int:
        return self._sums[bisect_left(self._keys, key)]

    def up_to(self, key: SortKey) -> int:
        return self._sums[bisect_right(self._keys, key)]


def _above(highest: tuple[SortKey, ...], lowest: tuple[SortKey, ...]) -> bool:
    common = min(len(highest), len(lowest))
    return highest[:common] > lowest[:common]


def _sort_key(value: Any) -> SortKey:
    if value is None:
        return _NULL
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    return (1, loose_partition_key(0, (value,))[1])


def _bounds(summary: PartitionFieldSummary, field_type: Any) -> tuple[SortKey, SortKey]:
    lower, upper = (_bound_key(field_type, raw) for raw in (summary.lower_bound, summary.upper_bound))
    keys = [key for key in (lower, upper) if key is not None]
    keys += [_NULL] if summary.contains_null else []
    keys += [_NAN] if summary.contains_nan else []
    if not keys or _UNKNOWN_LOW in keys:
        return _UNKNOWN_LOW, _UNKNOWN_HIGH
    return min(keys), max(keys)


def _bound_key(field_type: Any, raw: bytes | None) -> SortKey | None:
    """Return the sort key of a bound; None if there is no bound."""
    if raw is None:
        return None
    value = decode_bound(field_type, raw)
    return _UNKNOWN_LOW if value is None else _sort_key(value)

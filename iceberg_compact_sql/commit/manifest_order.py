"""How manifests lie to each other: the partitions that each one spans, and what a lookup has to open.

Only the manifest list is needed: it holds the bounds of every partition field of every manifest.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, count
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import ManifestFile, PartitionFieldSummary
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from iceberg_compact_sql.commit.partition_keys import loose_partition_key

# A value's place in a field's order: nulls first, NaN last; below and above all of them for what nobody knows.
Place = tuple[Any, ...]
_UNKNOWN_LOW, _NULL, _NAN, _UNKNOWN_HIGH = (-1,), (0,), (2,), (3,)


@dataclass(frozen=True, slots=True)
class Span:
    """The lowest and the highest partition of a manifest, as far as bounds of single fields tell.

    A further field says something only while those before it have one value: the texts end where a field varies.
    """

    lowest: tuple[Place, ...]
    highest: tuple[Place, ...]

    @property
    def order(self) -> tuple[Place, ...]:
        return tuple(chain.from_iterable(zip(self.lowest, self.highest, strict=True)))


@dataclass(frozen=True, slots=True)
class Spanning:
    """A manifest and what it spans."""

    manifest: ManifestFile
    span: Span


def partition_order(partition: Record, order: Sequence[int]) -> tuple[Place, ...]:
    """What entries are sorted by: the given fields of a partition, in that order."""
    return tuple(_place(partition[position]) for position in order)


def span_of(manifest: ManifestFile, types: Sequence[Any], order: Sequence[int]) -> Span:
    """What a manifest spans in the given order of its partition fields."""
    summaries = manifest.partitions or []
    lowest: list[Place] = []
    highest: list[Place] = []
    for position in order:
        known = len(summaries) == len(types)
        low, high = _bounds(summaries[position], types[position]) if known else (_UNKNOWN_LOW, _UNKNOWN_HIGH)
        lowest.append(low)
        highest.append(high)
        if low != high:
            break
    return Span(tuple(lowest), tuple(highest))


def tangles(manifests: Sequence[Spanning]) -> list[list[Spanning]]:
    """Groups of manifests that reach into each other, the others alone; to touch is not to reach.

    A tangle written anew in order stays within what it spanned, and so clear of the others.
    """
    groups: list[list[Spanning]] = []
    reach: tuple[Place, ...] = ()
    for one in sorted(manifests, key=lambda one: one.span.order):
        if groups and _above(reach, one.span.lowest):
            groups[-1].append(one)
            reach = max(reach, one.span.highest)
        else:
            groups.append([one])
            reach = one.span.highest
    return groups


def lookup_bytes(tangle: Sequence[Spanning]) -> float:
    """How many bytes of manifests a reader opens to look up one partition at the edge of one of them, on average."""
    first = tangle[0].span.lowest
    # The first field that tells them apart; those before it have one value in all of them.
    level = next(at for at in count() if any({o.span.lowest[at], o.span.highest[at]} != {first[at]} for o in tangle))
    total = sum(one.manifest.manifest_length for one in tangle)
    ends = _Weighed([(one.span.highest[level], one.manifest.manifest_length) for one in tangle])
    starts = _Weighed([(one.span.lowest[level], one.manifest.manifest_length) for one in tangle])

    def opened(at: Place) -> int:
        return starts.up_to(at) - ends.below(at)

    return sum(
        one.manifest.manifest_length * (opened(one.span.lowest[level]) + opened(one.span.highest[level]))
        for one in tangle
    ) / (2 * max(1, total))


class _Weighed:
    """Places with weights, summed up by place."""

    def __init__(self, weights: Sequence[tuple[Place, int]]) -> None:
        ordered = sorted(weights)
        self._places = [place for place, _ in ordered]
        self._sums = [0, *accumulate(weight for _, weight in ordered)]

    def below(self, place: Place) -> int:
        return self._sums[bisect_left(self._places, place)]

    def up_to(self, place: Place) -> int:
        return self._sums[bisect_right(self._places, place)]


def _above(reach: tuple[Place, ...], lowest: tuple[Place, ...]) -> bool:
    common = min(len(reach), len(lowest))
    return reach[:common] > lowest[:common]


def _place(value: Any) -> Place:
    if value is None:
        return _NULL
    if isinstance(value, float) and math.isnan(value):
        return _NAN
    return (1, loose_partition_key(0, (value,))[1])


def _bounds(summary: PartitionFieldSummary, kind: Any) -> tuple[Place, Place]:
    lower, upper = (_decoded(kind, raw) for raw in (summary.lower_bound, summary.upper_bound))
    held = [place for place in (lower, upper) if place is not None]
    held += [_NULL] if summary.contains_null else []
    held += [_NAN] if summary.contains_nan else []
    if not held or _UNKNOWN_LOW in held:
        return _UNKNOWN_LOW, _UNKNOWN_HIGH
    return min(held), max(held)


def _decoded(kind: Any, raw: bytes | None) -> Place | None:
    if raw is None:
        return None
    try:
        return _place(from_bytes(kind, raw)) if isinstance(kind, PrimitiveType) else _UNKNOWN_LOW
    except Exception:
        # Written before the column's type was promoted (int for long): readers make what they can of it.
        return _UNKNOWN_LOW

"""A set of deleted keys, sorted once and searched in batches: no Python code for each row, a few bytes for each key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from iceberg_compact_sql.rewrite.deletes.keys import Hashes, Int64s, KeyColumn, matching, row_hashes
from iceberg_compact_sql.rewrite.scan.arrays import BoolMask, sorted_distinct

Ranks = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """The range of one column's keys, as numbers or as bytes; None: all keys are null."""

    low: int | bytes | None
    high: int | bytes | None
    has_null: bool


class KeyIndex:
    """Distinct keys with the rank of the newest delete that names each; a rank of n means the n-th sequence number.

    One numeric column is a sorted array of its values. Everything else is sorted by hash and compared by value.
    """

    def __init__(self, columns: Sequence[KeyColumn], ranks: Ranks) -> None:
        self.bounds = tuple(_bounds(column) for column in columns)
        self._single = len(columns) == 1 and columns[0].numbers is not None
        self._null_rank = -1
        self._numbers: Int64s = np.empty(0, np.int64)
        self._hashes: Hashes = np.empty(0, np.uint64)
        self._columns: list[KeyColumn] = []
        if self._single:
            self._load_numbers(columns[0], ranks)
        else:
            self._load_hashed(columns, ranks)

    def __len__(self) -> int:
        return len(self._hashes if not self._single else self._numbers) + (self._null_rank >= 0)

    def match(self, columns: Sequence[KeyColumn], least_rank: int) -> BoolMask:
        """Return which rows have a key of a delete of at least `least_rank`."""
        alike = [
            matching(column, form, only_nulls=bounds.low is None)
            for column, form, bounds in zip(columns, self._form, self.bounds, strict=True)
        ]
        return self._match_numbers(alike[0], least_rank) if self._single else self._match_hashed(alike, least_rank)

    def any_between(self, low: int, high: int) -> bool:
        """Whether a one-column key has a number in [low, high]; True when that is unknown."""
        if not self._single:
            return True
        return int(np.searchsorted(self._numbers, low)) < int(np.searchsorted(self._numbers, high, "right"))

    def as_columns(self) -> tuple[list[KeyColumn], Ranks]:
        """Return the distinct keys, to be merged with more."""
        if not self._single:
            return list(self._columns), self._ranks
        if self._null_rank < 0:
            return [KeyColumn(self._numbers, None, None)], self._ranks
        valid = np.append(np.ones(len(self._numbers), np.bool_), False)
        return [KeyColumn(np.append(self._numbers, 0), None, valid)], np.append(
            self._ranks, np.int32(self._null_rank)
        ).astype(np.int32)

    def _load_numbers(self, column: KeyColumn, ranks: Ranks) -> None:
        assert column.numbers is not None
        numbers = column.numbers
        if column.valid is not None:
            if not column.valid.all():
                self._null_rank = int(ranks[~column.valid].max())
            numbers, ranks = numbers[column.valid], ranks[column.valid]
        if _all_equal(ranks):
            self._numbers = sorted_distinct(numbers)
            self._ranks = np.repeat(ranks[:1], len(self._numbers))
        else:
            # Newest first among equal numbers: keep the first of each run.
            order = np.lexsort((-ranks, numbers))
            numbers, ranks = numbers[order], ranks[order]
            first = np.ones(len(numbers), np.bool_)
            first[1:] = numbers[1:] != numbers[:-1]
            self._numbers, self._ranks = numbers[first], ranks[first]
        self._form = [KeyColumn(self._numbers[:0], None, None)]

    def _load_hashed(self, columns: Sequence[KeyColumn], ranks: Ranks) -> None:
        hashes = row_hashes(columns)
        # Newest first among equal hashes: the first equal key that a search finds decides.
        order = np.argsort(hashes) if _all_equal(ranks) else np.lexsort((-ranks, hashes))
        hashes, ranks = hashes[order], ranks[order]
        columns = [column.take(order) for column in columns]
        # Remove equal neighbours. Two keys with one hash may hide a duplicate, which only costs memory.
        doubled = np.zeros(len(hashes), np.bool_)
        doubled[1:] = hashes[1:] == hashes[:-1]
        suspects = np.flatnonzero(doubled)
        if len(suspects):
            same = _rows_equal([c.take(suspects) for c in columns], [c.take(suspects - 1) for c in columns])
            doubled[suspects] = same
            kept = np.flatnonzero(~doubled)
            hashes, ranks, columns = hashes[kept], ranks[kept], [c.take(kept) for c in columns]
        self._hashes, self._ranks, self._columns = hashes, ranks, list(columns)
        self._form = self._columns

    def _match_numbers(self, column: KeyColumn, least_rank: int) -> BoolMask:
        assert column.numbers is not None
        deleted = np.zeros(len(column), np.bool_)
        if len(self._numbers):
            # Searching in order uses the CPU cache better in a large index.
            order = np.argsort(column.numbers)
            wanted = column.numbers[order]
            at = np.searchsorted(self._numbers, wanted)
            np.minimum(at, len(self._numbers) - 1, out=at)
            deleted[order] = (self._numbers[at] == wanted) & (self._ranks[at] >= least_rank)
        if column.valid is not None:
            deleted = np.where(column.valid, deleted, self._null_rank >= least_rank)
        return deleted

    def _match_hashed(self, columns: Sequence[KeyColumn], least_rank: int) -> BoolMask:
        hashes = row_hashes(columns)
        deleted = np.zeros(len(hashes), np.bool_)
        order = np.argsort(hashes)
        at = np.searchsorted(self._hashes, hashes[order])
        rows, at = self._still_equal(order, at, hashes)
        while len(rows):
            same = _rows_equal([c.take(rows) for c in columns], [c.take(at) for c in self._columns])
            # The first equal key is the newest: the others need not be compared.
            deleted[rows[same]] = self._ranks[at[same]] >= least_rank
            rows, at = self._still_equal(rows[~same], at[~same] + 1, hashes)
        return deleted

    def _still_equal(self, rows: Int64s, at: Int64s, hashes: Hashes) -> tuple[Int64s, Int64s]:
        inside = at < len(self._hashes)
        rows, at = rows[inside], at[inside]
        equal = self._hashes[at] == hashes[rows]
        return rows[equal], at[equal]


def _rows_equal(left: Sequence[KeyColumn], right: Sequence[KeyColumn]) -> BoolMask:
    same = left[0].equals(right[0])
    for mine, theirs in zip(left[1:], right[1:], strict=True):
        same &= mine.equals(theirs)
    return same


def _all_equal(ranks: Ranks) -> bool:
    return len(ranks) == 0 or bool((ranks == ranks[0]).all())


def _bounds(column: KeyColumn) -> KeyBounds:
    has_null = column.valid is not None and not bool(column.valid.all())
    if column.numbers is not None:
        numbers = column.numbers if column.valid is None else column.numbers[column.valid]
        if len(numbers) == 0:
            return KeyBounds(None, None, has_null)
        return KeyBounds(int(numbers.min()), int(numbers.max()), has_null)
    octets = column.octets if column.valid is None else column.octets.filter(column.valid)
    if len(octets) == 0:
        return KeyBounds(None, None, has_null)
    ends = pc.min_max(octets).as_py()
    return KeyBounds(ends["min"], ends["max"], has_null)

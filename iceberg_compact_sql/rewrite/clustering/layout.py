"""The order of a group's rows, and the boundaries that cut it into ranges of equal weight.

A `Layout` is made once from a sample and sent to every task. Each row then belongs to exactly one range, on every
attempt of a task. A last word that differs from row to row cuts equal keys into as many ranges as they need.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from iceberg_compact_sql.plan.layouts.order import ClusterOrder, OrderField
from iceberg_compact_sql.rewrite.clustering.curves import CURVES, Ranks, rank_bits
from iceberg_compact_sql.rewrite.clustering.row_digest import mixed
from iceberg_compact_sql.rewrite.clustering.words import (
    SortKey,
    TextWord,
    Word,
    is_text,
    order_of,
    text_places,
    text_ranks,
)

Bounds = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

# So many rows are enough for the rank cuts of a curve.
_RANKED_ROWS = 100_000
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class KeyCuts:
    """One key of a layout: whether any row has a null in it, and the cut values of a string or binary."""

    has_nulls: bool
    texts: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Where rows go: row i of `bounds` holds the first words of range i + 1, with the tie word at the end.

    `ranks` has one array of rank cuts for each column of a curve. `starts` are the ranges that begin with a new
    partition, in a group that is spread over partitions.
    """

    cuts: tuple[KeyCuts, ...]
    bounds: Bounds
    ranks: tuple[Bounds, ...] = ()
    starts: frozenset[int] = frozenset()
    weights: tuple[int, ...] = ()

    @property
    def ranges(self) -> int:
        return len(self.bounds) + 1


class RowOrder:
    """The keys of an order in one schema: from rows to words, ranges and positions.

    With a `spec` the partition of a row comes first, because the rows of a group are spread over its partitions.
    """

    def __init__(self, schema: Schema, order: ClusterOrder, spec: PartitionSpec | None) -> None:
        # A curve over one column is its order.
        self._curve = CURVES[order.layout] if order.layout in CURVES and len(order.fields) > 1 else None
        fields = order.fields
        if order.layout in CURVES:
            fields = tuple(replace(field, descending=False, nulls_first=True) for field in fields)
        partition = [OrderField(field.source_id, str(field.transform)) for field in spec.fields] if spec else []
        self._partition_keys = len(partition)
        self.keys = tuple(SortKey.of(schema, field) for field in (*partition, *fields))
        self._bits = rank_bits(max(1, len(fields)), order.curve_bytes)
        self._text_bytes = order.text_bytes if self._curve is not None else None

    def columns(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the values of the keys for the rows of a batch."""
        columns = [key.column(batch) for key in self.keys]
        if self._text_bytes is None:
            return columns
        curve_columns = (_leading(column, self._text_bytes) for column in columns[self._partition_keys :])
        return [*columns[: self._partition_keys], *curve_columns]

    def sorted(self, batch: pa.RecordBatch, layout: Layout | None) -> pa.RecordBatch:
        """Return the rows in order, exactly; a curve needs a layout, and makes one of these rows without it."""
        columns = self.columns(batch)
        if self._curve is not None and layout is None:
            has_nulls = [column.null_count > 0 for column in columns]
            layout = self.layout(_every_nth(columns), row_ties("", 0, 0), has_nulls, ranges=1)
        positions = order_of(self._exact_words(columns, layout), batch.num_rows)
        return batch.take(pa.array(positions))

    def ranges(self, batch: pa.RecordBatch, ties: Word, layout: Layout) -> Positions:
        """Return the range of each row."""
        columns = self.columns(batch)
        for column, cuts, key in zip(columns, layout.cuts, self.keys, strict=True):
            if column.null_count and not cuts.has_nulls:
                raise ValueError(f"column {key.field.source_id} has a null that the sample did not have")
        return places_of([*self._placed_words(columns, layout), ties], layout.bounds)[1]

    def layout(self, columns: Sequence[pa.Array], ties: Word, has_nulls: Sequence[bool], *, ranges: int) -> Layout:
        """Return a layout from the keys of sampled rows: ranges of equal weight, which never join two partitions."""
        layout = Layout(tuple(map(KeyCuts, has_nulls)), np.zeros((0, 0), np.uint64))
        if self._curve is not None:
            layout = self._with_ranks(columns, layout)
        if ranges < 2 or not len(ties):
            return layout
        words = [*self._exact_words(columns, layout), ties]
        order = order_of(words, len(ties))
        partition_words = [
            word[order]
            for key, column in list(zip(self.keys, columns, strict=True))[: self._partition_keys]
            for word in key.words(column, _ranks, null_word=True)
        ]
        positions, first_of_partition = _cut_positions(len(order), partition_words, ranges)
        chosen = pa.array(order[positions])
        rows = [column.take(chosen) for column in columns]
        cuts = tuple(
            known if self._is_curve_key(index) else replace(known, texts=_texts(row))
            for index, (known, row) in enumerate(zip(layout.cuts, rows, strict=True))
        )
        layout = replace(layout, cuts=cuts)
        bounds = np.stack([*self._placed_words(rows, layout), ties[order[positions]]], axis=1)
        for number in np.flatnonzero(first_of_partition):
            # The partition begins before the first of its sampled rows.
            bounds[number, self._partition_width(rows, layout) :] = 0
        weights = np.diff(np.concatenate([[0], positions, [len(order)]]))
        starts = frozenset(int(number) + 1 for number in np.flatnonzero(first_of_partition))
        return replace(layout, bounds=bounds, starts=starts, weights=tuple(int(weight) for weight in weights))

    def _is_curve_key(self, index: int) -> bool:
        return self._curve is not None and index >= self._partition_keys

    def _partition_width(self, rows: Sequence[pa.Array], layout: Layout) -> int:
        words = self._key_words(rows[: self._partition_keys], layout, exact=False)
        return sum(1 for _ in words)

    def _with_ranks(self, columns: Sequence[pa.Array], layout: Layout) -> Layout:
        cuts, ranks = list(layout.cuts), []
        steps = np.arange(1, 1 << self._bits, dtype=np.int64)
        for index in range(self._partition_keys, len(self.keys)):
            key, column, known = self.keys[index], columns[index], layout.cuts[index]
            words = key.words(column, _ranks, null_word=known.has_nulls)
            order = order_of(words, len(column))
            chosen = column.take(pa.array(order[(steps * len(order)) >> self._bits])) if len(order) else column
            cuts[index] = replace(known, texts=_texts(chosen))
            placed = key.words(chosen, text_places(cuts[index].texts), null_word=known.has_nulls)
            ranks.append(np.stack(placed, axis=1) if placed else np.zeros((0, 0), np.uint64))
        return replace(layout, cuts=tuple(cuts), ranks=tuple(ranks))

    def _exact_words(self, columns: Sequence[pa.Array], layout: Layout | None) -> list[Word]:
        if self._curve is None:
            return list(self._key_words(columns, layout, exact=True))
        assert layout is not None
        partition = self._key_words(columns[: self._partition_keys], layout, exact=True)
        return [*partition, self._curve_word(columns, layout)]

    def _placed_words(self, columns: Sequence[pa.Array], layout: Layout) -> list[Word]:
        if self._curve is None:
            return list(self._key_words(columns, layout, exact=False))
        partition = self._key_words(columns[: self._partition_keys], layout, exact=False)
        return [*partition, self._curve_word(columns, layout)]

    def _key_words(self, columns: Sequence[pa.Array], layout: Layout | None, *, exact: bool) -> Iterator[Word]:
        """Yield the words of the first keys: exact among these rows, or placed among the cuts of the layout."""
        for index, column in enumerate(columns):
            if exact or layout is None:
                yield from self.keys[index].words(column, _ranks, null_word=column.null_count > 0)
            else:
                cuts = layout.cuts[index]
                yield from self.keys[index].words(column, text_places(cuts.texts), null_word=cuts.has_nulls)

    def _curve_word(self, columns: Sequence[pa.Array], layout: Layout) -> Word:
        assert self._curve is not None
        ranks: list[Ranks] = []
        for index, bounds in zip(range(self._partition_keys, len(self.keys)), layout.ranks, strict=True):
            cuts = layout.cuts[index]
            words = self.keys[index].words(columns[index], text_places(cuts.texts), null_word=cuts.has_nulls)
            # A frequent value lies in the middle of its share.
            low, high = places_of(words, bounds) if len(bounds) else (np.zeros(len(columns[index]), np.int64),) * 2
            ranks.append(((low + high) >> 1).astype(np.uint32))
        return self._curve(ranks, self._bits)


_ranks: TextWord = text_ranks


def row_ties(path: str, first_row: int, rows: int, *, salt: int = 0) -> Word:
    """Return one number for each row of a file, spread evenly, and the same on every attempt of a task."""
    numbers = np.arange(first_row, first_row + rows, dtype=np.uint64)
    return mixed((numbers + np.uint64(mmh3.hash64(path, seed=salt, signed=False)[0])) * _GOLDEN)


def places_of(words: Sequence[Word], bounds: Bounds) -> tuple[Positions, Positions]:
    """Return for each row how many bounds are below it, and how many are not above it.

    A further word is only looked at for rows that equal a bound in all words before it.
    """
    rows = len(words[0])
    if not len(bounds):
        return np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    distinct, starts = np.unique(bounds[:, 0], return_index=True)
    edges = np.append(starts, len(bounds))
    found = np.searchsorted(distinct, words[0])
    equal = distinct[np.minimum(found, len(distinct) - 1)] == words[0]
    low, high = edges[found], edges[found + equal]
    if bounds.shape[1] == 1:
        return low, high
    open_rows = np.flatnonzero(equal)
    found = found[open_rows]
    for number in np.unique(found):
        chosen = open_rows[found == number]
        inner = bounds[edges[number] : edges[number + 1], 1:]
        below, not_above = places_of([word[chosen] for word in words[1:]], inner)
        low[chosen] = edges[number] + below
        high[chosen] = edges[number] + not_above
    return low, high


def _cut_positions(rows: int, partition_words: Sequence[Word], ranges: int) -> tuple[Positions, npt.NDArray[np.bool_]]:
    """Return where a sorted sample is cut, and which cuts are the start of a partition."""
    changes = np.zeros(rows, np.bool_)
    for word in partition_words:
        changes[1:] |= word[1:] != word[:-1]
    edges = np.concatenate([[0], np.flatnonzero(changes), [rows]])
    positions: list[int] = []
    for start, end in itertools.pairwise(edges):
        count = max(1, round(ranges * (end - start) / rows))
        positions.extend(int(start + (end - start) * part // count) for part in range(count))
    chosen = np.unique(np.array(positions[1:], np.int64))
    chosen = chosen[chosen > 0]
    return chosen, changes[chosen]


def _leading(values: pa.Array, size_bytes: int) -> pa.Array:
    """Return the first bytes of strings and binaries; other types as they are."""
    if not is_text(values.type):
        return values
    if pa.types.is_dictionary(values.type):
        return pa.DictionaryArray.from_arrays(values.indices, _leading(values.dictionary, size_bytes))
    wide = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    return pc.binary_slice(values.cast(pa.large_binary() if wide else pa.binary()), 0, size_bytes)


def _texts(values: pa.Array) -> tuple[bytes, ...]:
    """Return the distinct values of a string or binary column in order; nothing for other types."""
    if not is_text(values.type):
        return ()
    plain = values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
    return tuple(sorted({value for value in plain.cast(pa.binary()).to_pylist() if value is not None}))


def _every_nth(columns: Sequence[pa.Array]) -> list[pa.Array]:
    rows = len(columns[0])
    chosen = pa.array(np.arange(0, rows, rows // _RANKED_ROWS + 1))
    return [column.take(chosen) for column in columns]

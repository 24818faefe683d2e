"""Decodes the chunks of one top-level column, encodes them as one chunk per leaf, and proves it against the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_compact_sql.events import stop_if_cancelled
from iceberg_compact_sql.parquet.chunk import ColumnChunk, chunks_of
from iceberg_compact_sql.parquet.column_file import column_file
from iceberg_compact_sql.parquet.footer import FooterError, only_dictionary_pages, read_footer, read_range
from iceberg_compact_sql.parquet.page_index import bloom_filter_ranges, read_page_indexes
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.splice import InputChunk
from iceberg_compact_sql.parquet.thrift import BINARY, LIST, Struct, ThriftList
from iceberg_compact_sql.rewrite.scan.inputs import open_parquet
from iceberg_compact_sql.rewrite.write.checksum import TableDigest
from iceberg_compact_sql.rewrite.write.row_groups import MAX_DISTINCT_SHARE, ProofError, dictionary_pays
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, encode, written_paths

_BATCH_ROWS = 65_536
_INTEGER_DECIMAL_DIGITS = 18
_BITS = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class ColumnFallbackError(FooterError):
    """A column cannot be encoded by itself: its row groups must be decoded as a whole."""


@dataclass(frozen=True, slots=True)
class EncodedColumn:
    """One chunk for each leaf of a top-level column, and the NaN counts of its floats by field id."""

    chunks: tuple[ColumnChunk, ...]
    nan_counts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class _ChunkFacts:
    """The rows of a column's chunks; and the entries of their dictionaries, if pyarrow can read them as such."""

    rows: int
    entries: Sequence[int]

    @staticmethod
    def of(chunks: Sequence[InputChunk], only_dictionaries: bool) -> _ChunkFacts:
        leaf = chunks[0].leaf
        text = only_dictionaries and len(leaf.path) == 1 and leaf.physical == "BYTE_ARRAY"
        pages = [chunk.dictionary for chunk in chunks] if text else []
        entries = [page.values for page in pages if page is not None]
        return _ChunkFacts(sum(chunk.rows for chunk in chunks), entries if len(entries) == len(chunks) else ())


@dataclass(frozen=True, slots=True)
class ColumnEncoder:
    """Encodes single columns; thread-safe. Values of a column may take `max_bytes` of memory."""

    settings: WriterSettings
    checksum: bool
    max_bytes: int

    def encode(self, elements: Sequence[Struct], row_groups: list[list[InputChunk]]) -> EncodedColumn:
        """Return the values of all row groups in order; with checksums they are read back and compared.

        `row_groups` is emptied, so that the input bytes are not held longer than they are needed.

        Raises ColumnFallbackError if the column needs too much memory, or cannot be written in its own Parquet type.
        """
        leaves = [chunk.leaf for chunk in row_groups[0]]
        name = elements[0].need(4, BINARY).decode("utf-8", "surrogateescape")
        wrapped = [self._mostly_dictionaries([chunks[leaf] for chunks in row_groups]) for leaf in range(len(leaves))]
        buffer = column_file(
            elements, [(chunks[0].rows, [(chunk.metadata, chunk.data) for chunk in chunks]) for chunks in row_groups]
        )
        facts = _ChunkFacts.of([chunks[0] for chunks in row_groups], wrapped[0][1])
        row_groups.clear()
        table = self._decoded(buffer, name, facts)
        del buffer
        dictionaries = self._dictionary_paths(table, leaves, wrapped)
        column = table.column(0)
        if pa.types.is_dictionary(column.type) and not dictionaries:
            plain = table.schema.field(0).with_type(column.type.value_type)
            table = table.cast(pa.schema([plain]))
        return self.encode_values(table, leaves, dictionaries)

    @staticmethod
    def _mostly_dictionaries(chunks: Sequence[InputChunk]) -> tuple[bool, bool]:
        """Return whether most rows are in chunks with dictionary pages only, and whether all are."""
        held = [only_dictionary_pages(chunk.metadata) for chunk in chunks]
        rows = sum(chunk.rows for chunk, is_held in zip(chunks, held, strict=True) if is_held)
        return 2 * rows > sum(chunk.rows for chunk in chunks), all(held)

    def _decoded(self, buffer: pa.Buffer, name: str, facts: _ChunkFacts) -> pa.Table:
        text = bool(facts.entries) and self._shared_dictionary_pays(buffer, name, facts)
        file = open_parquet(pa.BufferReader(buffer), read_dictionary=[name] if text else [], pre_buffer=False)
        batches: list[pa.RecordBatch] = []
        memory_bytes = 0
        for batch in file.iter_batches(_BATCH_ROWS, use_threads=False):
            stop_if_cancelled()
            batches.append(batch)
            memory_bytes += batch.nbytes if not text else batch.column(0).indices.nbytes
            if memory_bytes > self.max_bytes:
                raise ColumnFallbackError(f"column {name!r} needs more than {self.max_bytes} bytes of memory")
        table = pa.Table.from_batches(batches, schema=batches[0].schema)
        if table.num_rows != facts.rows:
            raise ColumnFallbackError(f"column {name!r} holds {table.num_rows} rows")
        return table.unify_dictionaries() if text else table

    def _shared_dictionary_pays(self, buffer: pa.Buffer, name: str, facts: _ChunkFacts) -> bool:
        """Estimate from two dictionaries, the first and a middle one, whether one for all is small enough."""
        entries = facts.entries
        if len(entries) == 1:
            return True
        file = open_parquet(pa.BufferReader(buffer), read_dictionary=[name], pre_buffer=False)
        first, middle = (
            file.read_row_group(index, use_threads=False).column(0).chunk(0).dictionary
            for index in (0, len(entries) // 2)
        )
        if not len(first) or not len(middle):
            return True
        new_share = 1 - (pc.sum(pc.is_in(middle, value_set=first)).as_py() or 0) / len(middle)
        expected = entries[0] + new_share * sum(entries[1:])
        if new_share <= 0.9:
            # New values become rare where dictionaries overlap; where they hardly do, the sum is right.
            expected = min(expected, entries[0] * (1 + 12 * new_share))
        expected_bytes = expected * first.nbytes / len(first)
        return bool(
            expected <= MAX_DISTINCT_SHARE * facts.rows and expected_bytes <= 2 * self.settings.dictionary_bytes
        )

    def _dictionary_paths(
        self, table: pa.Table, leaves: Sequence[LeafColumn], wrapped: Sequence[tuple[bool, bool]]
    ) -> list[str]:
        if not any(mostly for mostly, _ in wrapped):
            return []
        column = table.column(0)
        if not pa.types.is_nested(column.type):
            if wrapped[0][1] and leaves[0].physical == "BYTE_ARRAY" and not pa.types.is_dictionary(column.type):
                # Its dictionaries were found not to pay together.
                return []
            return [table.schema.field(0).name] if dictionary_pays(column, self.settings.dictionary_bytes) else []
        paths = written_paths(table.schema)
        return [path for path, (mostly, _) in zip(paths, wrapped, strict=True) if mostly]

    def encode_values(
        self, table: pa.Table, leaves: Sequence[LeafColumn], dictionaries: Sequence[str]
    ) -> EncodedColumn:
        """Return the chunks of a table of one column, whose leaves are known; with checksums they are read back."""
        names = {leaf.name for leaf in leaves}
        settings = replace(
            self.settings,
            required_columns=frozenset(),
            blooms=tuple(bloom for bloom in self.settings.blooms if bloom.column_path in names),
            columns_without_statistics=self.settings.columns_without_statistics & names,
            decimal_as_integer=not any(_is_wide_small_decimal(leaf) for leaf in leaves),
        )
        buffer = encode(table, settings, dictionaries)
        file = pa.BufferReader(buffer)
        footer = read_footer(file, buffer.size)
        written = [(leaf.physical, leaf.type_length, leaf.levels) for leaf in footer.leaves]
        if written != [(leaf.physical, leaf.type_length, leaf.levels) for leaf in leaves]:
            raise ColumnFallbackError(f"column {leaves[0].path[0]!r} is stored in a type that is not written here")
        if self.checksum:
            self._compare(table, buffer)
        (group,) = footer.row_groups
        blooms = bloom_filter_ranges(file, footer, group)
        chunks: list[ColumnChunk] = []
        for leaf, chunk in zip(
            leaves, chunks_of(footer, group, read_page_indexes(file, footer, [group])[0]), strict=True
        ):
            start, end = group.chunk_ranges[chunk.leaf.index]
            bloom = blooms.get(chunk.leaf.index)
            chunks.append(
                replace(
                    chunk,
                    leaf=leaf,
                    metadata=chunk.metadata.replaced({3: _path_field(leaf)}),
                    pieces=(memoryview(buffer)[start:end],),
                    bloom_filter=None if bloom is None else read_range(file, bloom[0], bloom[1] - bloom[0]),
                    struct=Struct({}),
                )
            )
        return EncodedColumn(tuple(chunks), _nan_counts(table.column(0), leaves))

    @staticmethod
    def _compare(table: pa.Table, buffer: pa.Buffer) -> None:
        """Decode what was encoded, and compare it with the values bit by bit."""
        name, column = table.schema.field(0).name, table.column(0)
        dictionary = pa.types.is_dictionary(column.type)
        stored = open_parquet(pa.BufferReader(buffer), read_dictionary=[name] if dictionary else [], pre_buffer=False)
        digests = None
        if pa.types.is_nested(column.type):
            # Floats inside nested columns compare by value, so that NaN differs from itself: compare digests instead.
            digests = TableDigest(table.schema), TableDigest(table.schema)
            for batch in table.to_batches(_BATCH_ROWS):
                digests[0].update(batch)
        row = 0
        for batch in stored.iter_batches(_BATCH_ROWS, use_threads=False):
            stop_if_cancelled()
            if digests is not None:
                digests[1].update(batch)
            else:
                expected = column.slice(row, batch.num_rows)
                if not _same_bits(expected, pa.chunked_array([batch.column(0)])):
                    raise ProofError(f"the written rows read back differently in column {name}")
            row += batch.num_rows
        if row != len(column) or (digests is not None and digests[0].digest() != digests[1].digest()):
            raise ProofError(f"the written rows read back differently in column {name}")


def _same_bits(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_dictionary(left.type):
        if not all(chunk.dictionary.equals(left.chunk(0).dictionary) for chunk in (*left.chunks, *right.chunks)):
            return _same_bits(left.cast(left.type.value_type), right.cast(left.type.value_type))
        return bool(_indices(left).equals(_indices(right)))
    if pa.types.is_floating(left.type):
        bits = _BITS[left.type.bit_width]
        left, right = (pa.chunked_array([chunk.view(bits) for chunk in side.chunks], bits) for side in (left, right))
    return bool(left.equals(right))


def _indices(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.indices for chunk in column.chunks])


def _is_wide_small_decimal(leaf: LeafColumn) -> bool:
    """Whether the column stores a decimal as bytes that pyarrow would store as an integer."""
    logical = leaf.logical
    return (
        logical is not None
        and logical[0] == "DECIMAL"
        and leaf.physical == "FIXED_LEN_BYTE_ARRAY"
        and isinstance(logical[1], int)
        and logical[1] <= _INTEGER_DECIMAL_DIGITS
    )


def _path_field(leaf: LeafColumn) -> tuple[int, Any]:
    return LIST, ThriftList(BINARY, [part.encode("utf-8", "surrogateescape") for part in leaf.path])


def _nan_counts(column: pa.ChunkedArray, leaves: Sequence[LeafColumn]) -> dict[int, int]:
    """Return NaN counts by field id; floats in lists and maps have none in Iceberg."""
    counts: dict[int, int] = {}
    for leaf in leaves:
        if leaf.physical in ("FLOAT", "DOUBLE") and not leaf.repeated and leaf.field_id is not None:
            values = column if len(leaf.path) == 1 else pc.struct_field(column, list(leaf.path[1:]))
            if pa.types.is_floating(values.type):
                counts[leaf.field_id] = int(pc.sum(pc.is_nan(values)).as_py() or 0)
    return counts

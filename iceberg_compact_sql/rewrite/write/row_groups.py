"""Encodes rows to one row group in memory, and proves it against the rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

from iceberg_compact_sql import events
from iceberg_compact_sql.parquet.footer import ParquetFooter, RowGroupInfo, read_footer
from iceberg_compact_sql.rewrite.write.checksum import TableDigest
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, encode, leaf_paths

# A dictionary with more entries than this share of the values saves nothing.
MAX_DISTINCT_SHARE = 0.5
_SAMPLE_ROWS = 32_768
_READ_BACK_ROWS = 65_536
_READ_BACK_BYTES = 8 * 1024**2


class ProofError(Exception):
    """The written rows are not the rows that were read: the output must not be committed."""


@dataclass(frozen=True, slots=True)
class EncodedRowGroup:
    """A Parquet file of one row group in memory, proved against its input rows."""

    buffer: pa.Buffer
    footer: ParquetFooter
    rows: int
    nan_counts: Mapping[int, int]


@dataclass(slots=True)
class DictionaryVotes:
    """For each leaf column, how many of the rows read so far are in pages that all use a dictionary."""

    rows: int = 0
    held: Counter[str] = field(default_factory=Counter)

    def count(self, footer: ParquetFooter, group: RowGroupInfo, paths_by_id: Mapping[int, str]) -> None:
        self.rows += group.rows
        for leaf in footer.leaves:
            if leaf.name in group.dictionary_columns:
                path = paths_by_id.get(leaf.field_id) if leaf.field_id is not None else leaf.name
                if path is not None:
                    self.held[path] += group.rows

    def winners(self) -> frozenset[str]:
        return frozenset(path for path, rows in self.held.items() if 2 * rows > self.rows)


class RowGroupEncoder:
    """Encodes row groups of one table; thread-safe, since it holds no state of a row group."""

    def __init__(self, schema: Schema, arrow_schema: pa.Schema, settings: WriterSettings, *, checksum: bool) -> None:
        self._schema = schema
        self._arrow_schema = arrow_schema
        self._settings = settings
        self._checksum = checksum
        self._floats = tuple(_float_columns(schema.fields, ()))
        names = dict(leaf_paths(schema))
        self.paths_by_id = {schema.find_field(name).field_id: path for name, path in names.items()}

    def encode(self, batches: Sequence[pa.RecordBatch], dictionaries: Collection[str]) -> EncodedRowGroup:
        """Return one row group of these rows in order; with checksums it is read back and compared by leaf column."""
        events.reach("rewrite.encode", rows=sum(batch.num_rows for batch in batches))
        table, dictionary_columns = self._prepared(batches, dictionaries)
        expected = self._digest(batches) if self._checksum else None
        buffer = encode(table, self._settings, dictionary_columns)
        footer = read_footer(pa.BufferReader(buffer), buffer.size)
        if footer.rows != table.num_rows:
            raise ProofError(f"{table.num_rows} rows were encoded as {footer.rows}")
        if expected is not None:
            events.reach("rewrite.verify", rows=table.num_rows)
            self._compare(expected, buffer, table)
        return EncodedRowGroup(buffer, footer, table.num_rows, self._nan_counts(table))

    def _prepared(
        self, batches: Sequence[pa.RecordBatch], dictionaries: Collection[str]
    ) -> tuple[pa.Table, frozenset[str]]:
        """Return the rows as one table, and the leaf columns for which a dictionary pays."""
        columns: list[pa.ChunkedArray] = []
        chosen = set(dictionaries)
        for index, column in enumerate(self._arrow_schema):
            chunks = [batch.column(index) for batch in batches]
            if any(pa.types.is_dictionary(chunk.type) for chunk in chunks):
                merged = self._one_dictionary(chunks, column.type)
            else:
                merged = pa.chunked_array(chunks, column.type)
            if column.name in chosen and not dictionary_pays(merged, self._settings.dictionary_bytes):
                chosen.discard(column.name)
                if pa.types.is_dictionary(merged.type):
                    merged = merged.cast(column.type)
            columns.append(merged)
        fields = [column.with_type(values.type) for column, values in zip(self._arrow_schema, columns, strict=True)]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields)), frozenset(chosen)

    @staticmethod
    def _one_dictionary(chunks: Sequence[pa.Array], plain: pa.DataType) -> pa.ChunkedArray:
        """Return the chunks with one shared dictionary, or with none if they differ too much."""
        types = {chunk.type for chunk in chunks}
        if len(types) == 1 and _dictionaries_agree(chunks):
            return pa.chunked_array(chunks).unify_dictionaries()
        dense = [chunk.cast(plain) if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]
        return pa.chunked_array(dense, plain)

    def _digest(self, batches: Iterable[pa.RecordBatch]) -> tuple[bytes, ...]:
        digest = TableDigest(self._arrow_schema)
        for batch in batches:
            digest.update(batch)
        return digest.digest()

    def _compare(self, expected: tuple[bytes, ...], buffer: pa.Buffer, written: pa.Table) -> None:
        dictionaries = [column.name for column in written.schema if pa.types.is_dictionary(column.type)]
        stored = pq.ParquetFile(pa.BufferReader(buffer), read_dictionary=dictionaries, pre_buffer=False)
        row_bytes = max(1, written.nbytes // max(1, written.num_rows))
        batch_rows = max(1, min(_READ_BACK_ROWS, _READ_BACK_BYTES // row_bytes))
        stored_digest = self._digest(stored.iter_batches(batch_size=batch_rows, use_threads=False))
        if stored_digest != expected:
            differing = [
                path
                for path, before, after in zip(self.paths_by_id.values(), expected, stored_digest, strict=True)
                if before != after
            ]
            raise ProofError(f"the written rows read back differently in column {', '.join(differing)}")

    def _nan_counts(self, table: pa.Table) -> dict[int, int]:
        counts = {}
        for field_id, path in self._floats:
            column = table.column(path[0])
            if len(path) > 1:
                column = pc.struct_field(column, list(path[1:]))
            counts[field_id] = int(pc.sum(pc.is_nan(column)).as_py() or 0)
        return counts


def dictionary_pays(column: pa.ChunkedArray, dictionary_bytes: int) -> bool:
    """Whether a dictionary saves bytes: one that fits small input files can overflow in one large row group."""
    rows = len(column)
    if rows == 0 or pa.types.is_nested(column.type):
        return rows > 0
    if pa.types.is_dictionary(column.type):
        values = column.chunk(0).dictionary
        return len(values) <= MAX_DISTINCT_SHARE * rows and values.nbytes <= dictionary_bytes
    sample = column.slice(0, _SAMPLE_ROWS)
    if isinstance(sample.type, pa.BaseExtensionType):
        sample = pa.chunked_array([chunk.storage for chunk in sample.chunks], sample.type.storage_type)
    return bool(pc.count_distinct(sample, mode="all").as_py() <= MAX_DISTINCT_SHARE * len(sample))


def _dictionaries_agree(chunks: Sequence[pa.DictionaryArray]) -> bool:
    """Whether unifying the dictionaries pays: they are small beside the rows, or have mostly the same entries."""
    rows = sum(map(len, chunks))
    if sum(len(chunk.dictionary) for chunk in chunks) <= MAX_DISTINCT_SHARE * rows:
        return True
    first, *others = (chunk.dictionary for chunk in chunks)
    if not others:
        return len(first) <= MAX_DISTINCT_SHARE * rows
    middle = others[len(others) // 2]
    known = pc.sum(pc.is_in(middle, value_set=first)).as_py() or 0
    return bool(known >= MAX_DISTINCT_SHARE * len(middle))


def arrow_width_bytes(schema: pa.Schema) -> int:
    """Return the minimum bytes of a row in memory: fixed-width columns in full, an offset for the others."""
    return sum(_width(column.type) for column in schema)


def _width(data_type: pa.DataType) -> int:
    if pa.types.is_struct(data_type):
        return sum(_width(data_type.field(index).type) for index in range(data_type.num_fields))
    try:
        return max(1, int(data_type.bit_width) // 8)
    except ValueError:
        return 4


def _float_columns(columns: Iterable[NestedField], path: tuple[int, ...]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield float columns with their position in the row; those in lists and maps have no NaN count in Iceberg."""
    for index, column in enumerate(columns):
        if isinstance(column.field_type, FloatType | DoubleType):
            yield column.field_id, (*path, index)
        elif isinstance(column.field_type, StructType):
            yield from _float_columns(column.field_type.fields, (*path, index))

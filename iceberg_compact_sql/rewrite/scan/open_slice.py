"""An open input slice: its row groups, its columns by field id, and bounded batches of chosen columns."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json

from iceberg_compact_sql.parquet.chunk_facts import ChunkFacts
from iceberg_compact_sql.parquet.footer import ENCRYPTED_MAGIC, FooterError, read_footer_tree
from iceberg_compact_sql.parquet.thrift import Struct
from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY
from iceberg_compact_sql.rewrite.scan.defaults import identity_values
from iceberg_compact_sql.rewrite.scan.fields import FileField, children_of, file_fields
from iceberg_compact_sql.rewrite.scan.file_end import FileEnd
from iceberg_compact_sql.rewrite.scan.inputs import (
    InputFileError,
    ProjectionError,
    input_errors,
    open_input,
    open_parquet,
)
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob

# Larger row groups are read page by page; smaller ones by coalesced reads, which are faster on object stores.
_BUFFERED_FROM_BYTES = 64 * 1024**2
_BUFFER_BYTES = 1024**2
_BATCH_BYTES = 16 * 1024**2
_BATCH_ROWS = 128 * 1024


@dataclass(frozen=True)
class TableSchema:
    """The parts of a job that decide how columns are resolved, parsed once."""

    schema: Schema
    specs: Mapping[int, PartitionSpec]
    mapping: NameMapping | None
    format_version: int

    @staticmethod
    def of(job: RewriteJob) -> TableSchema:
        specs = [PartitionSpec.model_validate_json(text) for text in job.specs_json]
        return TableSchema(
            schema=Schema.model_validate_json(job.schema_json),
            specs={spec.spec_id: spec for spec in specs},
            mapping=parse_mapping_from_json(job.name_mapping_json) if job.name_mapping_json else None,
            format_version=job.format_version,
        )


@dataclass(frozen=True, slots=True)
class RowGroupRange:
    """A row group of a slice, with the row number in the file of its first row."""

    index: int
    rows: int
    first_row: int
    compressed_bytes: int
    batch_rows: int
    buffered: bool = field(default=False)


class OpenSlice:
    """An open Parquet file; anything that cannot be read raises `InputFileError` with its path.

    `footer` is the parsed footer and its offset, or the error that prevents parsing. Reading is thread-safe: each row
    group is decoded by its own reader over the same open file.
    """

    def __init__(self, io: FileIO, table: TableSchema, input_slice: InputSlice) -> None:
        self.path = input_slice.path
        self.table = table
        self.slice = input_slice
        self._io = io
        self._lock = threading.Lock()
        self._file: pa.NativeFile | None = open_input(io, input_slice.path, input_slice.size_bytes)
        try:
            with input_errors(input_slice.path):
                end = FileEnd.of(self.file)
                self._refuse_encrypted(end)
                parquet = open_parquet(end.parquet_source())
                self.metadata: pq.FileMetaData = parquet.metadata
                self.parquet_schema: pq.ParquetSchema = parquet.schema
                self.arrow_schema: pa.Schema = parquet.schema_arrow
                self.fields: tuple[FileField, ...] = file_fields(self.arrow_schema, table.mapping)
                self.footer = _footer_of(end)
                self.chunks = ChunkFacts(self.footer[0]) if isinstance(self.footer, tuple) else None
                spec = table.specs.get(input_slice.spec_id)
                if spec is None:
                    raise ProjectionError(f"its partition spec {input_slice.spec_id} is unknown")
                self.identity: Mapping[int, Any] = identity_values(spec, input_slice.partition)
                self.row_groups = tuple(self._row_groups())
        except BaseException:
            self.rest()
            raise

    @property
    def file(self) -> pa.NativeFile:
        """The open file; opened again if it was closed by `rest`."""
        with self._lock:
            if self._file is None:
                self._file = open_input(self._io, self.path, self.slice.size_bytes)
            return self._file

    def rest(self) -> None:
        """Close the file until it is needed again; what was read of its footer stays."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def hold(self) -> None:
        """Read the whole file into memory and close it: many small files would need many handles."""
        file = self.file
        with input_errors(self.path):
            content = file.read_at(file.size(), 0)
        with self._lock:
            self._file = pa.BufferReader(content)
        file.close()

    @cached_property
    def own_ids(self) -> bool:
        """Whether the field ids are in the file and not from the name mapping."""

        def any_id(arrow: pa.Field) -> bool:
            return FIELD_ID_KEY in (arrow.metadata or {}) or any(any_id(child) for child in children_of(arrow))

        return any(any_id(arrow) for arrow in self.arrow_schema)

    def batches(
        self, row_group: RowGroupRange, names: Sequence[str], dictionaries: Sequence[str] = ()
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield top-level columns of a row group in small batches, each with the row number of its first row.

        The rows are counted: a number other than the footer's raises InputFileError.
        """
        if not names:
            yield from self._empty_batches(row_group)
            return
        with input_errors(self.path):
            parquet = open_parquet(
                self.file,
                metadata=self.metadata,
                read_dictionary=list(dictionaries),
                pre_buffer=not row_group.buffered,
                buffer_size=_BUFFER_BYTES if row_group.buffered else 0,
            )
            row, end = row_group.first_row, row_group.first_row + row_group.rows
            for batch in parquet.iter_batches(
                row_group.batch_rows, row_groups=[row_group.index], columns=list(names), use_threads=False
            ):
                yield row, batch
                row += batch.num_rows
            if row != end:
                rows = row - row_group.first_row
                raise InputFileError(
                    self.path, f"row group {row_group.index} holds {rows} rows, its footer says {row_group.rows}"
                )

    def close(self) -> None:
        self.rest()

    def _empty_batches(self, row_group: RowGroupRange) -> Iterator[tuple[int, pa.RecordBatch]]:
        for first in range(0, row_group.rows, row_group.batch_rows):
            rows = min(row_group.batch_rows, row_group.rows - first)
            counted = pa.RecordBatch.from_arrays([pa.nulls(rows)], names=[""])
            yield row_group.first_row + first, counted.select([])

    def _row_groups(self) -> Iterator[RowGroupRange]:
        first_row = 0
        end = self.slice.end
        for index in range(self.metadata.num_row_groups):
            group = self.metadata.row_group(index)
            # If the footer cannot be parsed, the offsets are unknown: the first slice takes all row groups.
            start, compressed = self.chunks.extent(index) if self.chunks else (0, max(0, group.total_byte_size))
            if group.num_rows and start >= self.slice.start and (end is None or start < end):
                row_bytes = max(1, group.total_byte_size // group.num_rows)
                yield RowGroupRange(
                    index=index,
                    rows=group.num_rows,
                    first_row=first_row,
                    compressed_bytes=compressed,
                    batch_rows=max(1, min(_BATCH_ROWS, _BATCH_BYTES // row_bytes)),
                    buffered=compressed >= _BUFFERED_FROM_BYTES,
                )
            first_row += group.num_rows

    def _refuse_encrypted(self, end: FileEnd) -> None:
        if end.size_bytes < 12:
            raise InputFileError(self.path, f"it has {end.size_bytes} bytes, too few for a Parquet file")
        if end.content[-4:] == ENCRYPTED_MAGIC:
            raise InputFileError(self.path, "the file is encrypted, which is not supported")


def _footer_of(end: FileEnd) -> tuple[Struct, int] | FooterError:
    try:
        return read_footer_tree(end, end.size_bytes)
    except FooterError as error:
        return error

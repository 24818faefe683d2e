"""Live rows of input files, one row group at a time, in the table's current schema."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from iceberg_compact_sql.events import reach, stop_if_cancelled
from iceberg_compact_sql.parquet.footer import FooterError, ParquetFooter, checked_footer
from iceberg_compact_sql.rewrite.deletes.load import load_deletes
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.scan.fields import FileField, file_fields, plain_type
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError, input_errors
from iceberg_compact_sql.rewrite.scan.lineage import (
    LAST_UPDATED,
    ROW_ID,
    fill_lineage,
    filled_last_updated,
    filled_row_ids,
    lineage_base,
    lineage_leaves,
)
from iceberg_compact_sql.rewrite.scan.open_ahead import open_ahead
from iceberg_compact_sql.rewrite.scan.open_slice import OpenSlice, RowGroupRange, TableSchema
from iceberg_compact_sql.rewrite.scan.projection import Projection
from iceberg_compact_sql.rewrite.scan.schema_match import no_copy_reason
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask

Mask = np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
__all__ = ["InputFileError", "InputReader", "SliceRowGroup", "open_inputs", "output_arrow_schema"]


def output_arrow_schema(job: RewriteJob) -> pa.Schema:
    """Return the schema of the rows of `InputReader.read`: the table's current one, with field ids at every level."""
    return arrow_schema(Schema.model_validate_json(job.schema_json))


@dataclass(frozen=True, slots=True)
class SliceRowGroup:
    """A row group of a slice; `has_deletes` if deletes remove at least one of its rows."""

    index: int
    rows: int
    compressed_bytes: int
    first_row: int
    has_deletes: bool


class InputReader:
    """One input slice: which row groups it has, whether they may be copied, and their live rows.

    `footer` is None when the footer cannot be parsed completely; such a file is decoded, never copied. `base` is a
    footer with the schema that copied row groups have: in format version 3, the columns of row lineage are added, and
    `stored_lineage` columns of the file are replaced. `read` is thread-safe, for different row groups and for the same
    one.
    """

    def __init__(self, data: OpenSlice, deleted: RowBitmap, *, dictionaries: bool) -> None:
        self.slice: InputSlice = data.slice
        self._data = data
        self._deleted = deleted
        self._dictionaries = dictionaries
        self._lineage = ROW_ID.field_id in {field.field_id for field in data.table.schema.fields}
        self._groups: Mapping[int, RowGroupRange] = {group.index: group for group in data.row_groups}
        # Known before any row is read: deletes of every kind are already row positions.
        self.deleted_rows: Mapping[int, int] = {
            group.index: deleted.count(group.first_row, group.rows) for group in data.row_groups
        }
        self.row_groups: tuple[SliceRowGroup, ...] = tuple(
            SliceRowGroup(g.index, g.rows, g.compressed_bytes, g.first_row, self.deleted_rows[g.index] > 0)
            for g in data.row_groups
        )
        with input_errors(data.path):
            # Built for its checks: a file that does not match the table is refused before any row is read.
            self._projection(data.fields)
        wanted = {field.field_id for field in data.table.schema.fields} - set(data.identity)
        self._names = [field.name for field in data.fields if field.field_id in wanted]
        self.footer: ParquetFooter | None = None
        self.no_copy_reason: str | None = None
        try:
            if isinstance(data.footer, FooterError):
                raise data.footer
            self.footer = checked_footer(*data.footer)
        except FooterError as error:
            self.no_copy_reason = f"its footer cannot be parsed: {error}"
        if self.no_copy_reason is None:
            self.no_copy_reason = no_copy_reason(
                data.table.schema, data.fields, data.parquet_schema, own_ids=data.own_ids, identity=data.identity
            )
        self.base = self.footer
        self.stored_lineage = 0
        if self.no_copy_reason is None and self._lineage:
            self._add_lineage()

    def _add_lineage(self) -> None:
        assert self.footer is not None
        stored = lineage_leaves(self.footer)
        if stored is None:
            self.no_copy_reason = "its columns of row lineage are not the last ones"
        else:
            self.base, self.stored_lineage = lineage_base(self.footer, stored), stored

    @property
    def has_lineage(self) -> bool:
        """Whether the table's rows have row ids, which their new file must store."""
        return self._lineage

    @property
    def file(self) -> pa.NativeFile:
        """The open file of the input."""
        return self._data.file

    def rest(self) -> None:
        """Close the file until it is read again, to save handles and memory."""
        self._data.rest()

    def hold(self) -> None:
        """Keep the content of a small file in memory instead of an open file."""
        if not isinstance(self.file, pa.BufferReader):
            self._data.hold()

    @property
    def identity(self) -> Mapping[int, Any]:
        """Return values of identity partition columns by field id; readers use them instead of the file's values."""
        return self._data.identity

    @property
    def table_schema(self) -> Schema:
        return self._data.table.schema

    @property
    def fits(self) -> bool:
        """Whether row groups may be copied unchanged; codec and deletes are checked elsewhere."""
        return self.no_copy_reason is None

    @property
    def live_rows(self) -> int:
        return sum(group.rows - self.deleted_rows[group.index] for group in self.row_groups)

    def read(self, index: int) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a row group, in order and in the table's schema; empty batches are left out."""
        group = self._groups[index]
        reach("rewrite.read", path=self.slice.path, row_group=index)
        if self.deleted_rows[index] == group.rows:
            return
        projection: Projection | None = None
        for first_row, batch in self._data.batches(group, self._names, self._dictionary_columns(index)):
            stop_if_cancelled()
            with input_errors(self._data.path):
                if projection is None:
                    # The batch has the requested columns, some of them as dictionaries.
                    fields = file_fields(batch.schema, self._data.table.mapping) if self._names else ()
                    projection = self._projection(fields)
                mask = self._deleted.mask(first_row, batch.num_rows)
                if mask is not None:
                    if mask.all():
                        continue
                    batch = _without(batch, mask)
                projected = projection.apply(batch)
                if self._lineage:
                    projected = self._with_lineage(projected, first_row, mask)
            yield projected

    def read_row_ids(self, index: int) -> pa.Array:
        """Return the ids of all rows of a row group; no other column is read."""
        group = self._groups[index]
        positions = np.arange(group.first_row, group.first_row + group.rows, dtype=np.int64)
        return filled_row_ids(self._stored(index, ROW_ID), positions, self.slice.first_row_id)

    def read_last_updated(self, index: int) -> pa.Array:
        """Return the sequence numbers of the last changes of all rows of a row group; no other column is read."""
        rows = self._groups[index].rows
        stored = self._stored(index, LAST_UPDATED)
        return filled_last_updated(stored, rows, self.slice.first_row_id, self.slice.sequence_number)

    def _stored(self, index: int, column: NestedField) -> pa.Array | None:
        """Return a column of lineage as the file stores it; None if it does not, or if its values do not count."""
        if self.slice.first_row_id is None or column.field_id not in {field.field_id for field in self._data.fields}:
            return None
        reach("rewrite.read_lineage", path=self.slice.path, row_group=index, column=column.name)
        batches = [batch for _, batch in self._data.batches(self._groups[index], [column.name])]
        return pa.concat_arrays([batch.column(0) for batch in batches])

    def _with_lineage(self, batch: pa.RecordBatch, first_row: int, mask: Mask | None) -> pa.RecordBatch:
        live = np.arange(batch.num_rows) if mask is None else np.flatnonzero(~mask)
        return fill_lineage(
            batch,
            live.astype(np.int64) + first_row,
            first_row_id=self.slice.first_row_id,
            sequence_number=self.slice.sequence_number,
        )

    def close(self) -> None:
        self._data.close()

    def __enter__(self) -> InputReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _projection(self, fields: tuple[FileField, ...]) -> Projection:
        return Projection(
            self._data.table.schema,
            fields,
            identity=self._data.identity,
            format_version=self._data.table.format_version,
            dictionaries=self._dictionaries,
        )

    def _dictionary_columns(self, index: int) -> list[str]:
        """Return string and binary columns with only dictionary pages: kept as dictionaries, they cost a third less."""
        if not self._dictionaries or self.footer is None:
            return []
        encoded = self.footer.row_groups[index].dictionary_columns
        return [field.name for field in self._data.fields if field.name in encoded and _is_text(plain_type(field.type))]


def open_inputs(
    job: RewriteJob,
    task: RewriteTask,
    io: FileIO,
    *,
    dictionaries: bool = False,
    columns: Collection[int] | None = None,
) -> Iterator[InputReader]:
    """Yield the inputs of a task in order; the caller closes each.

    The deletes of all inputs are loaded before the first one. With `dictionaries`, top-level strings and binaries may
    be dictionaries with 32-bit indices. `columns` are the ids of the top-level columns to read; None reads all.
    """
    table = TableSchema.of(job)
    deleted = load_deletes(job, task, io, table)
    if columns is not None:
        wanted = [column for column in table.schema.fields if column.field_id in columns]
        table = replace(table, schema=Schema(*wanted))
    with contextlib.closing(open_ahead(io, table, task.inputs)) as slices:
        for data in slices:
            reach("rewrite.open", path=data.path)
            try:
                reader = InputReader(data, deleted.get(data.path, RowBitmap()), dictionaries=dictionaries)
            except BaseException:
                data.close()
                raise
            yield reader


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _without(batch: pa.RecordBatch, mask: Mask) -> pa.RecordBatch:
    if batch.num_columns == 0:
        live = int(np.count_nonzero(~mask))
        return pa.RecordBatch.from_arrays([pa.nulls(live)], names=[""]).select([])
    return batch.filter(pa.array(~mask))

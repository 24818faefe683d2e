"""Live rows of input files, a row group at a time, in the table's current schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.parquet.footer import FooterError, ParquetFooter, checked_footer
from iceberg_compact_sql.rewrite.deletes.load import load_deletes
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.scan.fields import FileField, file_fields, plain_type
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError, naming_file
from iceberg_compact_sql.rewrite.scan.open_slice import DataFile, RowGroupRange, TableSchema
from iceberg_compact_sql.rewrite.scan.projection import Projection
from iceberg_compact_sql.rewrite.scan.schema_match import misfit
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask
from iceberg_compact_sql.storage.paths import same_file_key

__all__ = ["InputFileError", "InputReader", "RowGroupPart", "open_inputs", "output_arrow_schema"]


def output_arrow_schema(job: RewriteJob) -> pa.Schema:
    """The table's current schema as all rows come out of `InputReader.read`, field ids at every level."""
    return arrow_schema(Schema.model_validate_json(job.schema_json))


@dataclass(frozen=True, slots=True)
class RowGroupPart:
    """A row group that belongs to a slice; `touched` if deletes remove at least one of its rows."""

    index: int
    rows: int
    compressed_bytes: int
    first_row: int
    touched: bool


class InputReader:
    """One input slice: which row groups it has, whether they may be copied, and their live rows.

    `footer` is None where the footer cannot be walked to its last byte; such a file is read, never copied. `read` may
    be called from several threads, for different row groups or for the same.
    """

    def __init__(self, data: DataFile, deleted: RowBitmap, *, dictionaries: bool) -> None:
        self.slice: InputSlice = data.slice
        self.file: pa.NativeFile = data.file
        self._data = data
        self._deleted = deleted
        self._dictionaries = dictionaries
        self._groups: Mapping[int, RowGroupRange] = {group.index: group for group in data.row_groups}
        # Known before anything is read: deletes of every kind are positions by now.
        self.deleted_rows: Mapping[int, int] = {
            group.index: deleted.count(group.first_row, group.rows) for group in data.row_groups
        }
        self.parts: tuple[RowGroupPart, ...] = tuple(
            RowGroupPart(g.index, g.rows, g.compressed_bytes, g.first_row, self.deleted_rows[g.index] > 0)
            for g in data.row_groups
        )
        with naming_file(data.path):
            projection = self._projection(data.fields)
        self._names = [field.name for field in data.fields if _is_wanted(field, data.table.schema)]
        self.footer: ParquetFooter | None = None
        self.misfit_reason: str | None = None
        try:
            if isinstance(data.footer, FooterError):
                raise data.footer
            self.footer = checked_footer(*data.footer)
        except FooterError as error:
            self.misfit_reason = f"its footer cannot be walked: {error}"
        if self.misfit_reason is None:
            self.misfit_reason = misfit(
                data.table.schema, data.fields, data.parquet_schema, own_ids=data.own_ids, identity=data.identity
            )
        self.missing_ids: frozenset[int] = projection.missing_ids

    @property
    def fits(self) -> bool:
        """Whether row groups may be copied as they are; codec and deletes are not looked at here."""
        return self.misfit_reason is None

    @property
    def live_rows(self) -> int:
        return sum(part.rows - self.deleted_rows[part.index] for part in self.parts)

    def read(self, index: int) -> Iterator[pa.RecordBatch]:
        """Live rows of a row group, in order and in the table's schema; a batch without any is left out."""
        group = self._groups[index]
        reach("rewrite.read", path=self.slice.path, row_group=index)
        if self.deleted_rows[index] == group.rows:
            return
        projection: Projection | None = None
        for first_row, batch in self._data.batches(group, self._names, self._dictionary_columns(index)):
            with naming_file(self._data.path):
                if projection is None:
                    # The columns of a batch are those that were asked for, and perhaps dictionaries.
                    fields = file_fields(batch.schema, self._data.table.mapping) if self._names else ()
                    projection = self._projection(fields)
                mask = self._deleted.mask(first_row, batch.num_rows)
                if mask is not None:
                    if mask.all():
                        continue
                    batch = _without(batch, mask)
                projected = projection.apply(batch)
            yield projected

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
        """Strings and binaries that are dictionaries throughout in the file: kept so, they cost a third less."""
        if not self._dictionaries or self.footer is None:
            return []
        encoded = self.footer.row_groups[index].dictionary_columns
        return [field.name for field in self._data.fields if field.name in encoded and _is_text(plain_type(field.type))]


def open_inputs(job: RewriteJob, task: RewriteTask, io: FileIO, *, dictionaries: bool = False) -> Iterator[InputReader]:
    """The inputs of a task one after the other, in order; who takes one closes it.

    The deletes of all of them are loaded before the first comes out. With `dictionaries`, top-level strings and
    binaries may come as dictionaries with 32-bit indices.
    """
    table = TableSchema.of(job)
    deleted = load_deletes(job, task, io, table)
    for part in task.inputs:
        reach("rewrite.open", path=part.path)
        data = DataFile(io, table, part)
        try:
            reader = InputReader(data, deleted.get(same_file_key(part.path), RowBitmap()), dictionaries=dictionaries)
        except BaseException:
            data.close()
            raise
        yield reader


def _is_wanted(field: FileField, schema: Schema) -> bool:
    ids = {wanted.field_id for wanted in schema.fields}
    return field.field_id in ids


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _without(batch: pa.RecordBatch, mask: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> pa.RecordBatch:
    if batch.num_columns == 0:
        live = int(np.count_nonzero(~mask))
        return pa.RecordBatch.from_arrays([pa.nulls(live)], names=[""]).select([])
    return batch.filter(pa.array(~mask))

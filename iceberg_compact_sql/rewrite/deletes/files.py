"""Reads batches of delete files of any format, with columns by field id."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import orc
from pyiceberg.io import FileIO, InputFile, InputStream
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.typedef import Record
from pyiceberg.types import ListType, MapType, StructType

from iceberg_compact_sql.parquet.chunk_facts import ChunkFacts, ChunkStatistics
from iceberg_compact_sql.pyiceberg_internals import AvroFile
from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY, arrow_schema
from iceberg_compact_sql.rewrite.scan.fields import FileField, file_fields, walk
from iceberg_compact_sql.rewrite.scan.inputs import (
    InputFileError,
    ProjectionError,
    input_errors,
    open_input,
    open_parquet,
)
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import LiveDelete

POSITION_FIELD_ID = 2147483545

_ORC_ID_KEY = b"iceberg.id"
_BATCH_ROWS = 256 * 1024
_AVRO_BATCH_ROWS = 16 * 1024
_BY_NAME = {"file_path": PATH_FIELD_ID, "pos": POSITION_FIELD_ID}

# Decides from the statistics of a row group's column whether the row group can be skipped.
RowGroupTest = Callable[[ChunkStatistics], bool]


def read_delete_columns(
    io: FileIO,
    delete: LiveDelete,
    field_ids: Sequence[int],
    *,
    mapping: NameMapping | None = None,
    dictionaries: bool = False,
    skip: RowGroupTest | None = None,
) -> Iterator[list[pa.Array]]:
    """Yield batches of the columns with the given ids; raise `InputFileError` if a column is missing.

    `skip` is asked about the first column of each row group of a Parquet file. With `dictionaries` that column comes
    as a dictionary where it is one in the file.
    """
    readers = {"PARQUET": _parquet_batches, "ORC": _orc_batches, "AVRO": _avro_batches}
    read = readers.get(delete.file_format.upper())
    if read is None:
        raise InputFileError(delete.path, f"delete files of format {delete.file_format} are not supported")
    with input_errors(delete.path):
        for batch in read(io, delete, field_ids, mapping, dictionaries, skip):
            fields = _fields(batch.schema, mapping)
            yield [column_by_id(batch, fields, field_id) for field_id in field_ids]


def column_by_id(batch: pa.RecordBatch, fields: Sequence[FileField], field_id: int) -> pa.Array:
    """Return a column or a struct's child, null wherever a struct around it is null."""
    path = path_to(fields, field_id)
    if path is None:
        raise ProjectionError(f"it has no column with the field id {field_id}")
    array = batch.column(path[0])
    for index in path[1:]:
        array = array.storage if isinstance(array, pa.ExtensionArray) else array
        array = array.flatten()[index]
    return array


def path_to(fields: Sequence[FileField], field_id: int) -> tuple[int, ...] | None:
    """Return the positions that lead through structs to a field; not for fields inside lists and maps."""
    for i, field in enumerate(fields):
        if field.field_id == field_id:
            return (i,)
        if pa.types.is_struct(field.type):
            below = path_to(field.children, field_id)
            if below is not None:
                return (i, *below)
    return None


def leaf_index(fields: Sequence[FileField], field_id: int) -> int | None:
    """Return the index of a Parquet column among all leaf columns of a file."""
    leaves = [field for field in walk(fields) if not field.children]
    return next((i for i, leaf in enumerate(leaves) if leaf.field_id == field_id), None)


def _fields(schema: pa.Schema, mapping: NameMapping | None) -> tuple[FileField, ...]:
    named = [_named_by_spec(_with_parquet_id(field)) for field in schema]
    return file_fields(pa.schema(named), mapping)


def _with_parquet_id(field: pa.Field) -> pa.Field:
    field_id = (field.metadata or {}).get(_ORC_ID_KEY)
    if pa.types.is_struct(field.type):
        field = field.with_type(pa.struct([_with_parquet_id(field.type.field(i)) for i in range(len(field.type))]))
    return field if field_id is None else field.with_metadata({FIELD_ID_KEY: field_id})


def _named_by_spec(field: pa.Field) -> pa.Field:
    """Find a position delete's columns by the names in the specification: old writers left out their ids."""
    if field.name in _BY_NAME and FIELD_ID_KEY not in (field.metadata or {}):
        return field.with_metadata({FIELD_ID_KEY: str(_BY_NAME[field.name]).encode()})
    return field


def _parquet_batches(
    io: FileIO,
    delete: LiveDelete,
    field_ids: Sequence[int],
    mapping: NameMapping | None,
    dictionaries: bool,
    skip: RowGroupTest | None,
) -> Iterator[pa.RecordBatch]:
    with open_input(io, delete.path, delete.size_bytes) as file:
        parquet = open_parquet(file)
        fields = _fields(parquet.schema_arrow, mapping)
        names = []
        for field_id in field_ids:
            path = path_to(fields, field_id)
            if path is None:
                raise ProjectionError(f"it has no column with the field id {field_id}")
            names.append(fields[path[0]].name)
        row_groups = list(range(parquet.metadata.num_row_groups))
        leaf = leaf_index(fields, field_ids[0])
        chunks = ChunkFacts.of(file) if dictionaries or (skip is not None and len(row_groups) > 1) else None
        if leaf is not None and chunks is not None:
            if skip is not None and len(row_groups) > 1:
                known = {i: chunks.statistics(i, leaf) for i in row_groups}
                row_groups = [i for i, statistics in known.items() if statistics is None or not skip(statistics)]
            if dictionaries and all(chunks.may_be_dictionary(i, leaf) for i in row_groups):
                parquet = open_parquet(file, read_dictionary=names[:1], metadata=parquet.metadata)
        if row_groups:
            yield from parquet.iter_batches(_BATCH_ROWS, row_groups=row_groups, columns=names, use_threads=False)


def _orc_batches(
    io: FileIO,
    delete: LiveDelete,
    field_ids: Sequence[int],
    mapping: NameMapping | None,
    dictionaries: bool,
    skip: RowGroupTest | None,
) -> Iterator[pa.RecordBatch]:
    with open_input(io, delete.path, delete.size_bytes) as file:
        reader = orc.ORCFile(file)
        for stripe in range(reader.nstripes):
            batch = reader.read_stripe(stripe)
            # A stripe does not have the attributes of the file's schema, which hold the ids.
            yield pa.RecordBatch.from_arrays(batch.columns, schema=reader.schema)


def _avro_batches(
    io: FileIO,
    delete: LiveDelete,
    field_ids: Sequence[int],
    mapping: NameMapping | None,
    dictionaries: bool,
    skip: RowGroupTest | None,
) -> Iterator[pa.RecordBatch]:
    source = _ExactPath(io, delete.path, delete.size_bytes)
    with AvroFile[Record](source) as reader:
        schema = reader.schema
        if any(isinstance(f.field_type, StructType | ListType | MapType) and f.name != "row" for f in schema.fields):
            raise ProjectionError("Avro delete files with nested columns are not supported")
        kept = [i for i, field in enumerate(schema.fields) if not isinstance(field.field_type, StructType)]
        arrow = arrow_schema(Schema(*(schema.fields[i] for i in kept)))
        rows: list[list[Any]] = []
        for record in reader:
            rows.append([record[i] for i in kept])
            if len(rows) == _AVRO_BATCH_ROWS:
                yield _batch_of(rows, arrow)
                rows = []
        if rows:
            yield _batch_of(rows, arrow)


def _batch_of(rows: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for i, field in enumerate(schema):
        values = [row[i] for row in rows]
        if pa.types.is_timestamp(field.type) or pa.types.is_time(field.type):
            arrays.append(pa.array(values, pa.int64()).view(field.type))
        elif pa.types.is_date32(field.type):
            arrays.append(pa.array(values, pa.int32()).view(field.type))
        elif isinstance(field.type, pa.BaseExtensionType):
            stored = [None if value is None else value.bytes for value in values]
            arrays.append(field.type.wrap_array(pa.array(stored, field.type.storage_type)))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _ExactPath(InputFile):
    """A pyiceberg input file that is opened by its exact path."""

    def __init__(self, io: FileIO, location: str, size_bytes: int) -> None:
        super().__init__(location)
        self._io = io
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        stream: InputStream = open_input(self._io, self.location, self._size_bytes)
        return stream

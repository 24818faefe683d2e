"""Input files by hand, and what the reader makes of them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema

from iceberg_compact_sql.rewrite.live_rows import InputReader, open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.task import InputSlice, RewriteJob, RewriteTask
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete

PATH_ID, POSITION_ID = 2147483546, 2147483545


def with_id(name: str, kind: pa.DataType, field_id: int | None, *, required: bool = False) -> pa.Field:
    """An Arrow field that goes to Parquet with a field id."""
    metadata = {} if field_id is None else {"PARQUET:field_id": str(field_id)}
    return pa.field(name, kind, nullable=not required, metadata=metadata)


def write_file(folder: Path, fields: Sequence[pa.Field], rows: Sequence[Any] | pa.Table, **options: Any) -> str:
    """A Parquet file of rows given as tuples, or of a table's columns; its path."""
    path = folder / f"{secrets.token_hex(4)}.parquet"
    schema = pa.schema(fields)
    if isinstance(rows, pa.Table):
        table = pa.table(rows.columns, schema=schema)
    else:
        columns = [[row[i] for row in rows] for i in range(len(fields))]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, fields, strict=True)], schema=schema)
    pq.write_table(table, path, **options)
    return str(path)


def numbers(folder: Path, rows: int, **options: Any) -> str:
    """Write a file with a column `a` of the numbers from 0; gives its path."""
    return write_file(folder, [with_id("a", pa.int64(), 1)], [(i,) for i in range(rows)], **options)


def job_of(
    schema: Schema,
    *,
    specs: Sequence[PartitionSpec] = (UNPARTITIONED_PARTITION_SPEC,),
    mapping: str | None = None,
    **more: Any,
) -> RewriteJob:
    """A job that only reading looks at."""
    return RewriteJob(
        run_id="run",
        table_location="file:///nowhere",
        schema_json=schema.model_dump_json(),
        specs_json=tuple(spec.model_dump_json() for spec in specs),
        output_spec_id=specs[0].spec_id,
        name_mapping_json=mapping,
        properties={},
        io_properties={},
        **more,
    )


def slice_of(path: str, deletes: Iterable[int] = (), **more: Any) -> InputSlice:
    given: dict[str, Any] = {"size_bytes": 0, "rows": 0, "spec_id": 0, "partition": (), "sequence_number": 1} | more
    return InputSlice(path=path, deletes=tuple(deletes), **given)


def task_of(inputs: Sequence[InputSlice], deletes: Sequence[LiveDelete] = ()) -> RewriteTask:
    return RewriteTask(group_id=0, output_index=0, inputs=tuple(inputs), deletes=tuple(deletes), partition=())


def delete_of(path: str, kind: DeleteKind, *, sequence_number: int = 2, **more: Any) -> LiveDelete:
    given: dict[str, Any] = {"file_format": "PARQUET", "spec_id": 0, "partition": (), "size_bytes": 0, "rows": 0} | more
    return LiveDelete(path=path, kind=kind, sequence_number=sequence_number, **given)


def position_delete(folder: Path, rows: Sequence[tuple[str, int]], **options: Any) -> LiveDelete:
    fields = [
        with_id("file_path", pa.string(), PATH_ID, required=True),
        with_id("pos", pa.int64(), POSITION_ID, required=True),
    ]
    return delete_of(write_file(folder, fields, rows, **options), DeleteKind.POSITION)


def equality_delete(
    folder: Path, fields: Sequence[pa.Field], rows: Sequence[Any], *, ids: Sequence[int], sequence_number: int = 2
) -> LiveDelete:
    path = write_file(folder, fields, rows)
    return delete_of(path, DeleteKind.EQUALITY, sequence_number=sequence_number, equality_ids=tuple(ids))


def readers(job: RewriteJob, task: RewriteTask, *, dictionaries: bool = False) -> list[InputReader]:
    return list(open_inputs(job, task, load_file_io({}, "/"), dictionaries=dictionaries))


def read_table(job: RewriteJob, task: RewriteTask, *, dictionaries: bool = False) -> pa.Table:
    """All live rows of a task, validated array by array, and their number checked against the readers' count."""
    batches: list[pa.RecordBatch] = []
    expected = 0
    schema = output_arrow_schema(job)
    for reader in readers(job, task, dictionaries=dictionaries):
        with reader:
            expected += reader.live_rows
            for part in reader.row_groups:
                for batch in reader.read(part.index):
                    batch.validate(full=True)
                    assert [_value_type(f.type) for f in batch.schema] == [f.type for f in schema]
                    decoded = [a.dictionary_decode() if pa.types.is_dictionary(a.type) else a for a in batch.columns]
                    batches.append(pa.RecordBatch.from_arrays(decoded, schema=schema))
    table = pa.Table.from_batches(batches, schema=schema)
    assert table.num_rows == expected
    return table


def _value_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def read_rows(job: RewriteJob, task: RewriteTask, *, dictionaries: bool = False) -> list[tuple[Any, ...]]:
    """All live rows of a task as tuples."""
    table = read_table(job, task, dictionaries=dictionaries)
    return [tuple(row.values()) for row in table.to_pylist()]

"""Equality deletes of a task's files, turned into row positions before any row is rewritten.

Only key columns are decoded for this, and only of row groups whose statistics do not rule the keys out. A row group
without a matching key can still be copied. Keys that exceed their share of memory are processed in several passes.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.parquet.chunk_facts import ChunkStatistics
from iceberg_compact_sql.rewrite.deletes.files import column_by_id, leaf_index, path_to, read_delete_columns
from iceberg_compact_sql.rewrite.deletes.key_index import KeyBounds, KeyIndex
from iceberg_compact_sql.rewrite.deletes.keys import KeyColumn, concat_columns, key_column
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.scan.arrays import repeated
from iceberg_compact_sql.rewrite.scan.defaults import missing_column
from iceberg_compact_sql.rewrite.scan.fields import FileField, file_fields
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError, input_errors
from iceberg_compact_sql.rewrite.scan.open_slice import OpenSlice, RowGroupRange, TableSchema
from iceberg_compact_sql.rewrite.task import InputSlice
from iceberg_compact_sql.table.model import LiveDelete


@dataclass(frozen=True, slots=True)
class KeySet:
    """Delete files over the same columns in the same scope, and the slices they apply to.

    `ranks[i]` orders `deletes[i]` by sequence number. Deletes of at least a slice's rank apply to it. So a key is kept
    once, with its newest delete, for slices of all sequence numbers.
    """

    field_ids: tuple[int, ...]
    deletes: tuple[LiveDelete, ...]
    ranks: tuple[int, ...]
    slices: tuple[tuple[InputSlice, int], ...]


def key_sets(slices: Sequence[InputSlice], deletes: Mapping[int, LiveDelete]) -> list[KeySet]:
    """Group the equality deletes of a task; every slice is in one set for each of its groups of deletes."""
    scopes: dict[tuple[Any, ...], list[int]] = {}
    for number, delete in deletes.items():
        scope = (tuple(sorted(delete.equality_ids)), delete.spec_id, repr(delete.partition))
        scopes.setdefault(scope, []).append(number)
    sets = []
    for scope, numbers in scopes.items():
        shared: list[tuple[InputSlice, int]] = []
        apart: dict[tuple[int, ...], list[InputSlice]] = {}
        sequences = sorted({deletes[n].sequence_number for n in numbers})
        for input_slice in slices:
            own = tuple(n for n in numbers if n in input_slice.deletes)
            if not own:
                continue
            # In one scope only the sequence number decides what applies to a file. Newer deletes that the planner left
            # out have keys outside the file's bounds and match nothing: so one index serves all files.
            if all(deletes[n].sequence_number > input_slice.sequence_number for n in own):
                shared.append((input_slice, bisect.bisect_right(sequences, input_slice.sequence_number)))
            else:
                apart.setdefault(own, []).append(input_slice)
        if shared:
            files = tuple(deletes[n] for n in numbers)
            ranks = tuple(sequences.index(delete.sequence_number) for delete in files)
            sets.append(KeySet(scope[0], files, ranks, tuple(shared)))
        for own, parts in apart.items():
            files = tuple(deletes[n] for n in own)
            sets.append(KeySet(scope[0], files, (0,) * len(files), tuple((input_slice, 0) for input_slice in parts)))
    return sets


def add_equality_deletes(
    io: FileIO, table: TableSchema, keys: KeySet, targets: Mapping[str, RowBitmap], *, memory_bytes: int, threads: int
) -> None:
    """Add the rows that a set of equality deletes removes from its slices, in as many passes as memory needs."""
    by_path: dict[str, list[tuple[InputSlice, int]]] = {}
    for input_slice, rank in keys.slices:
        by_path.setdefault(input_slice.path, []).append((input_slice, rank))

    def mark(path: str, index: KeyIndex) -> None:
        for input_slice, rank in by_path[path]:
            _mark(io, table, input_slice, keys.field_ids, index, rank, targets[path])

    for index in load_key_indexes(io, table, keys, memory_bytes):
        with ThreadPool(max_workers=max(1, threads)) as pool:
            for done in [pool.submit(mark, path, index) for path in by_path]:
                done.result()


def load_key_indexes(io: FileIO, table: TableSchema, keys: KeySet, memory_bytes: int) -> Iterator[KeyIndex]:
    """Yield the distinct keys of a set's delete files, in indexes of at most about `memory_bytes` each."""
    pending: list[list[KeyColumn]] = []
    ranks: list[np.ndarray[Any, np.dtype[np.int32]]] = []
    held = 0
    # Merging too often costs time; merging never would hold every duplicate in memory.
    settled = 0
    for delete, rank in zip(keys.deletes, keys.ranks, strict=True):
        for arrays in read_delete_columns(io, delete, keys.field_ids, mapping=table.mapping):
            with input_errors(delete.path):
                columns = [key_column(array) for array in arrays]
            pending.append(columns)
            ranks.append(np.full(len(columns[0]), rank, np.int32))
            held += _size(columns)
            if held <= memory_bytes:
                continue
            index = _index(pending, ranks)
            merged, merged_ranks = index.as_columns()
            settled = _size(merged)
            if settled > memory_bytes // 2:
                yield index
                pending, ranks, held = [], [], 0
            else:
                pending, ranks, held = [merged], [merged_ranks], settled
    if pending:
        yield _index(pending, ranks)


def _index(pending: list[list[KeyColumn]], ranks: list[np.ndarray[Any, np.dtype[np.int32]]]) -> KeyIndex:
    """Build an index; release the parts meanwhile, so that keys are in memory twice only briefly."""
    columns = []
    for i in range(len(pending[0])):
        columns.append(concat_columns([part[i] for part in pending]))
    all_ranks = np.concatenate(ranks)
    pending.clear()
    ranks.clear()
    return KeyIndex(columns, all_ranks)


def _size(columns: Sequence[KeyColumn]) -> int:
    # A rank for each key, and a hash for keys that are not plain numbers.
    extra = 4 if len(columns) == 1 and columns[0].numbers is not None else 12
    return sum(column.size_bytes for column in columns) + extra * len(columns[0])


def _mark(
    io: FileIO,
    table: TableSchema,
    input_slice: InputSlice,
    field_ids: Sequence[int],
    index: KeyIndex,
    least_rank: int,
    deleted: RowBitmap,
) -> None:
    data = OpenSlice(io, table, input_slice)
    try:
        with input_errors(input_slice.path):
            # Readers compare keys with the identity partition value, even if the file holds another value.
            paths = {
                field_id: path_to(data.fields, field_id) if field_id not in data.identity else None
                for field_id in field_ids
            }
            names = list(dict.fromkeys(data.fields[path[0]].name for path in paths.values() if path is not None))
            constants = {field_id: _constant(data, field_id) for field_id, path in paths.items() if path is None}
            if _file_ruled_out(data, field_ids, index):
                return
        for row_group in data.row_groups:
            if _ruled_out(data, row_group, field_ids, index):
                continue
            for row, batch in data.batches(row_group, names):
                with input_errors(input_slice.path):
                    fields = file_fields(batch.schema, table.mapping) if names else ()
                    columns = [_column(batch, fields, field_id, constants) for field_id in field_ids]
                    deleted.add(np.flatnonzero(index.match(columns, least_rank)) + row)
    finally:
        data.close()


def _column(
    batch: pa.RecordBatch, fields: Sequence[FileField], field_id: int, constants: Mapping[int, pa.Scalar]
) -> KeyColumn:
    if field_id in constants:
        return key_column(repeated(constants[field_id], batch.num_rows))
    return key_column(column_by_id(batch, fields, field_id))


def _constant(data: OpenSlice, field_id: int) -> pa.Scalar:
    """Return the value of a key column that is constant in a file; a missing column that the table dropped is null."""
    try:
        return missing_column(data.table.schema.find_field(field_id), data.identity)
    except (ValueError, ProjectionError):
        return pa.scalar(None, pa.null())


def _ruled_out(data: OpenSlice, row_group: RowGroupRange, field_ids: Sequence[int], index: KeyIndex) -> bool:
    """Whether statistics prove that no row of a row group has a key of the index."""
    return any(
        _column_ruled_out(data, (row_group.index,), field_id, bounds, index.any_between)
        for field_id, bounds in zip(field_ids, index.bounds, strict=True)
        if field_id not in data.identity
    )


def _file_ruled_out(data: OpenSlice, field_ids: Sequence[int], index: KeyIndex) -> bool:
    """Whether the file's own values of an identity column are all outside the keys.

    Iceberg's planner (DeleteFileIndex) then does not apply the delete to the file, whatever the partition value is.
    It compares the ranges of whole files only.
    """
    return any(
        _column_ruled_out(data, range(data.metadata.num_row_groups), field_id, bounds)
        for field_id, bounds in zip(field_ids, index.bounds, strict=True)
        if field_id in data.identity
    )


def _column_ruled_out(
    data: OpenSlice,
    row_groups: Sequence[int],
    field_id: int,
    bounds: KeyBounds,
    any_between: Callable[[int, int], bool] = lambda low, high: True,
) -> bool:
    """Whether the statistics of some row groups exclude all keys; `any_between` finds gaps between the keys."""
    leaf = leaf_index(data.fields, field_id)
    path = path_to(data.fields, field_id)
    if leaf is None or path is None or data.chunks is None or not row_groups:
        return False
    all_statistics = [data.chunks.statistics(row_group, leaf) for row_group in row_groups]
    statistics = [chunk for chunk in all_statistics if chunk is not None]
    # Without a null count a null key may match. Inside a struct the count includes null structs, which is right.
    if len(statistics) < len(all_statistics) or (
        bounds.has_null and any(chunk.null_count != 0 for chunk in statistics)
    ):
        return False
    if bounds.low is None or bounds.high is None:
        return True
    if len(path) == 1 and not bounds.has_null and _all_null(data, row_groups, statistics):
        return True
    kind = data.fields[path[0]].type
    least, most = bounds.low, bounds.high
    lows, highs = [chunk.low for chunk in statistics], [chunk.high for chunk in statistics]
    if len(path) > 1 or None in lows or None in highs:
        return False
    low, high = min(lows), max(highs)  # type: ignore[type-var]
    if isinstance(low, int) and isinstance(high, int) and isinstance(least, int) and isinstance(most, int):
        return _plain_number(kind) and (most < low or least > high or not any_between(low, high))
    if isinstance(low, bytes) and isinstance(high, bytes) and isinstance(least, bytes) and isinstance(most, bytes):
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) and (most < low or least > high)
    return False


def _all_null(data: OpenSlice, row_groups: Sequence[int], statistics: Sequence[ChunkStatistics]) -> bool:
    rows = (data.metadata.row_group(index).num_rows for index in row_groups)
    return all(chunk.null_count == count for chunk, count in zip(statistics, rows, strict=True))


def _plain_number(kind: pa.DataType) -> bool:
    """Types whose stored number is the key's number, ordered as signed."""
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
        or (pa.types.is_time64(kind) and kind.unit == "us")
    )

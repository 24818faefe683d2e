"""Equality deletes of a task's files, turned into row positions before any row is rewritten.

Only key columns are decoded for this, and only of row groups whose statistics do not rule the keys out. A row group
that no key really hits is then as good as untouched. Keys beyond their share of memory are worked through in passes.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.rewrite.deletes.files import column_by_id, leaf_index, path_to, read_delete_columns
from iceberg_compact_sql.rewrite.deletes.key_index import KeyBounds, KeyIndex
from iceberg_compact_sql.rewrite.deletes.keys import KeyColumn, concat_columns, key_column
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.scan.arrays import repeated
from iceberg_compact_sql.rewrite.scan.defaults import missing_column
from iceberg_compact_sql.rewrite.scan.fields import FileField, file_fields
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError, naming_file
from iceberg_compact_sql.rewrite.scan.open_slice import DataFile, RowGroupRange, TableSchema
from iceberg_compact_sql.rewrite.task import InputSlice
from iceberg_compact_sql.storage.paths import same_file_key
from iceberg_compact_sql.table.model import LiveDelete


@dataclass(frozen=True, slots=True)
class KeySet:
    """Delete files over the same columns in the same scope, and the slices they apply to.

    `ranks[i]` orders `deletes[i]` by age. A slice is hit by the deletes of at least its own rank: a key is kept once,
    with its newest delete, however many files' different ages ask for it.
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
        for part in slices:
            own = tuple(n for n in numbers if n in part.deletes)
            if not own:
                continue
            # In one scope the age alone decides what applies to a file. What the planner left out of the younger ones
            # has keys outside the file's bounds and hits nothing: so one index serves files of all ages.
            if all(deletes[n].sequence_number > part.sequence_number for n in own):
                shared.append((part, bisect.bisect_right(sequences, part.sequence_number)))
            else:
                apart.setdefault(own, []).append(part)
        if shared:
            files = tuple(deletes[n] for n in numbers)
            ranks = tuple(sequences.index(delete.sequence_number) for delete in files)
            sets.append(KeySet(scope[0], files, ranks, tuple(shared)))
        for own, parts in apart.items():
            files = tuple(deletes[n] for n in own)
            sets.append(KeySet(scope[0], files, (0,) * len(files), tuple((part, 0) for part in parts)))
    return sets


def add_equality_deletes(
    io: FileIO, table: TableSchema, keys: KeySet, targets: Mapping[str, RowBitmap], *, memory_bytes: int, threads: int
) -> None:
    """Add the rows that a set of equality deletes removes from its slices, in as many passes as memory asks for."""
    by_path: dict[str, list[tuple[InputSlice, int]]] = {}
    for part, rank in keys.slices:
        by_path.setdefault(same_file_key(part.path), []).append((part, rank))

    def mark(path: str, index: KeyIndex) -> None:
        for part, rank in by_path[path]:
            _mark(io, table, part, keys.field_ids, index, rank, targets[path])

    for index in load_key_indexes(io, table, keys, memory_bytes):
        with ThreadPoolExecutor(max_workers=max(1, threads)) as pool:
            for done in [pool.submit(mark, path, index) for path in by_path]:
                done.result()


def load_key_indexes(io: FileIO, table: TableSchema, keys: KeySet, memory_bytes: int) -> Iterator[KeyIndex]:
    """The keys of a set's delete files, de-duplicated, in indexes of at most about `memory_bytes` each."""
    pending: list[list[KeyColumn]] = []
    ranks: list[np.ndarray[Any, np.dtype[np.int32]]] = []
    held = 0
    # Merging twice as often as needed would cost time, merging never would hold every duplicate.
    settled = 0
    for delete, rank in zip(keys.deletes, keys.ranks, strict=True):
        for arrays in read_delete_columns(io, delete, keys.field_ids, mapping=table.mapping):
            with naming_file(delete.path):
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
    """Build an index; the parts are let go on the way, so that keys are not held twice for longer than needed."""
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
    part: InputSlice,
    field_ids: Sequence[int],
    index: KeyIndex,
    least_rank: int,
    deleted: RowBitmap,
) -> None:
    data = DataFile(io, table, part)
    try:
        with naming_file(part.path):
            paths = {field_id: path_to(data.fields, field_id) for field_id in field_ids}
            names = list(dict.fromkeys(data.fields[path[0]].name for path in paths.values() if path is not None))
            absent = {field_id: _absent(data, field_id) for field_id, path in paths.items() if path is None}
        for row_group in data.row_groups:
            if _ruled_out(data, row_group, field_ids, index):
                continue
            for row, batch in data.batches(row_group, names):
                with naming_file(part.path):
                    fields = file_fields(batch.schema, table.mapping) if names else ()
                    columns = [_column(batch, fields, field_id, absent) for field_id in field_ids]
                    deleted.add(np.flatnonzero(index.match(columns, least_rank)) + row)
    finally:
        data.close()


def _column(
    batch: pa.RecordBatch, fields: Sequence[FileField], field_id: int, absent: Mapping[int, pa.Scalar]
) -> KeyColumn:
    if field_id in absent:
        return key_column(repeated(absent[field_id], batch.num_rows))
    return key_column(column_by_id(batch, fields, field_id))


def _absent(data: DataFile, field_id: int) -> pa.Scalar:
    """The value of a key column in a file that lacks it; a column that the table dropped since is null there."""
    try:
        return missing_column(data.table.schema.find_field(field_id), data.identity)
    except (ValueError, ProjectionError):
        return pa.scalar(None, pa.null())


def _ruled_out(data: DataFile, row_group: RowGroupRange, field_ids: Sequence[int], index: KeyIndex) -> bool:
    """Whether statistics prove that no row of a row group has a key of the index."""
    return any(
        _column_ruled_out(data, row_group, field_id, bounds, index)
        for field_id, bounds in zip(field_ids, index.bounds, strict=True)
    )


def _column_ruled_out(
    data: DataFile, row_group: RowGroupRange, field_id: int, bounds: KeyBounds, index: KeyIndex
) -> bool:
    leaf = leaf_index(data.fields, field_id)
    path = path_to(data.fields, field_id)
    if leaf is None or path is None or data.chunks is None:
        return False
    statistics = data.chunks.statistics(row_group.index, leaf)
    # Without a count of nulls a null key may hit; inside a struct they count the struct's nulls too, which is right.
    if statistics is None or (bounds.has_null and statistics.null_count != 0):
        return False
    if bounds.low is None or bounds.high is None:
        return True
    kind = data.fields[path[0]].type
    least, most, low, high = bounds.low, bounds.high, statistics.low, statistics.high
    if len(path) > 1 or low is None or high is None:
        return False
    if isinstance(low, int) and isinstance(high, int) and isinstance(least, int) and isinstance(most, int):
        return _plain_number(kind) and (most < low or least > high or not index.any_between(low, high))
    if isinstance(low, bytes) and isinstance(high, bytes) and isinstance(least, bytes) and isinstance(most, bytes):
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) and (most < low or least > high)
    return False


def _plain_number(kind: pa.DataType) -> bool:
    """Types whose stored number is the key's number, ordered as signed."""
    return bool(
        pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.unit == "us")
        or (pa.types.is_time64(kind) and kind.unit == "us")
    )

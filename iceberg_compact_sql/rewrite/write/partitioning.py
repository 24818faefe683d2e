"""Spreading rows over the partitions of a spec: exact values, typed as a manifest holds them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import IcebergType, StructType, UUIDType

_MICROS_PER_HOUR = 3_600_000_000
_MICROS_PER_DAY = 24 * _MICROS_PER_HOUR


class PartitioningError(ValueError):
    """The rows cannot be spread over this spec; the text says why."""


class PartitionSplitter:
    """Takes batches of rows apart by the partition that each row belongs to."""

    def __init__(self, schema: Schema, spec: PartitionSpec) -> None:
        self._columns = tuple(partition_column(schema, field) for field in spec.fields)

    def split(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        """Each partition of the batch once, with its rows in their order; together they are all rows."""
        positions = list(self._positions(batch))
        for partition, chosen in positions:
            yield partition, batch if len(positions) == 1 else batch.take(pa.array(chosen))

    def count(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], int]]:
        """Each partition of the batch once, with the number of its rows."""
        for partition, chosen in self._positions(batch):
            yield partition, len(chosen)

    def _positions(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], npt.NDArray[np.int64]]]:
        rows = batch.num_rows
        if rows == 0:
            return
        codes = np.zeros(rows, dtype=np.int64)
        values = [column(batch) for column in self._columns]
        for array in values:
            # Combined codes stay small: they are renumbered after each column.
            encoded = _bitwise(array).dictionary_encode(null_encoding="encode")
            indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            _, codes = np.unique(codes * (len(encoded.dictionary) + 1) + indices, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
        ends = np.append(starts[1:], rows)
        for start, end in zip(starts, ends, strict=True):
            chosen = order[start:end]
            yield tuple(_typed(array, int(chosen[0])) for array in values), chosen


def partition_column(schema: Schema, field: PartitionField) -> Callable[[pa.RecordBatch], pa.Array]:
    """Return a function that gives the values of a partition field for the rows of a batch."""
    if isinstance(field.transform, VoidTransform):
        return lambda batch: pa.nulls(batch.num_rows)
    path = path_to(schema, field.source_id)
    if path is None:
        raise PartitioningError(f"partition field '{field.name}' is made from a column that the table no longer has")
    transform = _arrow_transform(field.transform, schema.find_type(field.source_id))
    return lambda batch: transform(_plain(column_at(batch, path)))


def path_to(schema: Schema, field_id: int) -> tuple[int, ...] | None:
    """Return the position of a column in a row, level by level; None for columns in lists and maps."""

    def find(columns: tuple[Any, ...], path: tuple[int, ...]) -> tuple[int, ...] | None:
        for index, column in enumerate(columns):
            if column.field_id == field_id:
                return (*path, index)
            if isinstance(column.field_type, StructType):
                found = find(column.field_type.fields, (*path, index))
                if found is not None:
                    return found
        return None

    return find(schema.fields, ())


def column_at(batch: pa.RecordBatch, path: tuple[int, ...]) -> pa.Array:
    """Return a column; uuids as their 16 bytes, dictionaries as they are. A field of a null struct is null."""
    column = batch.column(path[0])
    if len(path) > 1:
        column = pc.struct_field(column, list(path[1:]))
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _plain(column: pa.Array) -> pa.Array:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _arrow_transform(transform: Transform[Any, Any], source: IcebergType) -> Callable[[pa.Array], pa.Array]:
    """The transform on whole columns; uuids come and go as their 16 bytes."""
    if isinstance(transform, IdentityTransform):
        if isinstance(source, UUIDType):
            return _as_uuid
        return lambda column: column
    if isinstance(transform, DayTransform):
        return lambda column: _days(column)
    if isinstance(transform, HourTransform):
        return lambda column: _units_since_1970(column, _MICROS_PER_HOUR)
    if isinstance(transform, MonthTransform):
        return lambda column: _months(column).cast(pa.int32())
    if isinstance(transform, YearTransform):
        return lambda column: _floor_divide(_months(column), 12)
    if isinstance(transform, BucketTransform | TruncateTransform):
        return _on_distinct(transform, source)
    raise PartitioningError(f"the partition transform {transform} is not known")


def _on_distinct(transform: Transform[Any, Any], source: IcebergType) -> Callable[[pa.Array], pa.Array]:
    """A transform by pyiceberg-core where that takes the type, else value by value, once for each distinct value."""
    by_value = transform.transform(source)
    is_uuid = isinstance(source, UUIDType)
    result = pa.int32() if isinstance(transform, BucketTransform) else None

    def apply(column: pa.Array) -> pa.Array:
        if not is_uuid:
            try:
                vectorised = transform.pyarrow_transform(source)(column)
                return vectorised.combine_chunks() if isinstance(vectorised, pa.ChunkedArray) else vectorised
            except (pa.ArrowException, ValueError, TypeError, NotImplementedError, ModuleNotFoundError):
                # pyiceberg's core does not support this type: transform the few distinct values one by one.
                pass
        encoded = column.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if is_uuid:
            distinct = [uuid.UUID(bytes=value) for value in distinct]
        changed = pa.array([by_value(value) for value in distinct], type=result or column.type)
        return changed.take(encoded.indices)

    return apply


def _as_uuid(column: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), column)


def _days(column: pa.Array) -> pa.Array:
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    return _units_since_1970(column, _MICROS_PER_DAY)


def _months(column: pa.Array) -> pa.Array:
    """Months since January 1970, also before it."""
    days = _days(column).cast(pa.date32())
    years = pc.subtract(pc.year(days), 1970)
    return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(days), 1))


def _units_since_1970(column: pa.Array, unit_micros: int) -> pa.Array:
    in_nanos = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return _floor_divide(column.cast(pa.int64()), unit_micros * 1000 if in_nanos else unit_micros)


def _floor_divide(column: pa.Array, divisor: int) -> pa.Array:
    """Division that rounds down, so that times before 1970 fall into the right day."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False) // divisor
    return pa.array(values.astype(np.int32), mask=column.is_null().to_numpy(zero_copy_only=False))


def _bitwise(column: pa.Array) -> pa.Array:
    """The column as something that can be numbered with floats told apart by their bits, all NaN being one."""
    if isinstance(column.type, pa.BaseExtensionType):
        return column.storage
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).fill_null(0.0).to_numpy(zero_copy_only=False).copy()
        values[np.isnan(values)] = np.nan
        return pa.array(values.view(np.int64), mask=column.is_null().to_numpy(zero_copy_only=False))
    return column


def _typed(column: pa.Array, index: int) -> Any:
    """A value as a manifest's partition record holds it: days, micros and months as numbers, uuid as such."""
    scalar = column[index]
    if not scalar.is_valid:
        return None
    if isinstance(column.type, pa.BaseExtensionType):
        return uuid.UUID(bytes=column.storage[index].as_py())
    if pa.types.is_temporal(column.type):
        return int(scalar.value)
    return scalar.as_py()

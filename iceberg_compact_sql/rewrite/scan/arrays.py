"""Builds Arrow arrays from their parts, as the Parquet writer needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

Int64s = np.ndarray[Any, np.dtype[np.int64]]
BoolMask = np.ndarray[Any, np.dtype[np.bool_]]


def repeated(value: pa.Scalar, length: int) -> pa.Array:
    """Return an array of one repeated value; also for null and extension types, which `pa.repeat` refuses."""
    if not value.is_valid:
        return null_array(value.type, length)
    if isinstance(value.type, pa.BaseExtensionType):
        return value.type.wrap_array(pa.repeat(value.value, length))
    return pa.repeat(value, length)


def null_array(kind: pa.DataType, length: int) -> pa.Array:
    """Return `length` nulls; required children of a null struct get fillers, since the writer refuses nulls there."""
    if not pa.types.is_struct(kind):
        if isinstance(kind, pa.BaseExtensionType):
            return kind.wrap_array(pa.nulls(length, kind.storage_type))
        return pa.nulls(length, kind)
    children = []
    for field in (kind.field(i) for i in range(kind.num_fields)):
        nulls = null_array(field.type, length)
        children.append(nulls if field.nullable else without_validity(nulls))
    return pa.Array.from_buffers(kind, length, [bitmap(np.zeros(length, dtype=np.bool_))], children=children)


def without_validity(array: pa.Array) -> pa.Array:
    """Return the same array without nulls; only for children of null slots."""
    if isinstance(array, pa.ExtensionArray):
        return array.type.wrap_array(without_validity(array.storage))
    kind = array.type
    if pa.types.is_struct(kind):
        children = [array.field(i) for i in range(kind.num_fields)]
        return pa.Array.from_buffers(kind, len(array), [None], children=children)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets, items = list_items(array)
        return pa.Array.from_buffers(kind, len(array), [None, offsets], children=[items])
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], offset=array.offset)


def list_items(array: pa.Array) -> tuple[pa.Buffer, pa.Array]:
    """Return offsets from zero, and only the items that this slice of a list or map array uses."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = int(offsets[0]), int(offsets[-1])
    return pa.py_buffer((offsets - first).astype(np.int32)), array.values.slice(first, last - first)


def validity(array: pa.Array) -> BoolMask | None:
    """Return which slots hold a value, or None if all do."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def bitmap(valid: BoolMask | None) -> pa.Buffer | None:
    """Return Arrow's validity buffer for a mask."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def sorted_distinct(numbers: Int64s) -> Int64s:
    """Return the distinct numbers in order, by one sort: `np.unique` uses a hash table and is several times slower."""
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered if first.all() else ordered[first]

"""Reads the values of a leaf column as the table's type: the promotions of Iceberg's specification, never lossy."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from iceberg_compact_sql.format_versions import rules_of
from iceberg_compact_sql.rewrite.scan.fields import plain_type
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError

Converter = Callable[[pa.Array], pa.Array]

_WIDENED_INTEGERS = {
    pa.int32(): (pa.int8(), pa.int16(), pa.uint8(), pa.uint16()),
    pa.int64(): (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32()),
}


def leaf_converter(name: str, source: pa.DataType, target: pa.DataType, *, format_version: int) -> Converter:
    """Return a function that reads arrays of `source` as `target`; raise `ProjectionError` if the spec forbids it.

    Values never change: a widening is exact, and a conversion of units that would lose digits fails when it runs.
    """
    if isinstance(target, pa.BaseExtensionType):
        inner = leaf_converter(name, source, target.storage_type, format_version=format_version)
        return lambda array: target.wrap_array(inner(array))
    if isinstance(source, pa.BaseExtensionType):
        inner = leaf_converter(name, source.storage_type, target, format_version=format_version)
        return lambda array: inner(array.storage)
    if pa.types.is_dictionary(source):
        inner = leaf_converter(name, source.value_type, target, format_version=format_version)
        return lambda array: inner(array.dictionary_decode())
    if source.equals(target):
        return _same
    if pa.types.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    if source in _WIDENED_INTEGERS.get(target, ()):
        return _cast(target)
    if pa.types.is_floating(source) and pa.types.is_floating(target) and source.bit_width < target.bit_width:
        return _cast(target)
    if pa.types.is_decimal(source) and pa.types.is_decimal(target):
        if source.scale == target.scale and source.precision <= target.precision:
            return _cast(target)
    elif pa.types.is_timestamp(target):
        if pa.types.is_timestamp(source):
            return _timestamps(source, target)
        if pa.types.is_date32(source) and target.tz is None and rules_of(format_version).date_becomes_timestamp:
            return _cast(target)
    elif (pa.types.is_time(target) and pa.types.is_time(source)) or (
        pa.types.is_date32(target) and pa.types.is_date64(source)
    ):
        return _cast(target)
    elif _is_bytes(target) and _is_bytes(source):
        return _bytes(source, target)
    elif pa.types.is_fixed_size_binary(source) and pa.types.is_binary(target):
        return _cast(target)
    elif pa.types.is_duration(source) and pa.types.is_int64(target):
        return lambda array: array.view(pa.int64())
    raise ProjectionError(f"column '{name}' is stored as {source}, which cannot be read as {target}")


def dictionary_converter(name: str, source: pa.DataType, target: pa.DataType, *, format_version: int) -> Converter:
    """As `leaf_converter`, for a column of strings or binaries that stays a dictionary with 32-bit indices."""
    values = leaf_converter(name, plain_type(source).value_type, target, format_version=format_version)

    def convert(array: pa.Array) -> pa.Array:
        indices = array.indices if pa.types.is_int32(array.indices.type) else array.indices.cast(pa.int32())
        return pa.DictionaryArray.from_arrays(indices, values(array.dictionary))

    return convert


def _same(array: pa.Array) -> pa.Array:
    return array


def _cast(target: pa.DataType) -> Converter:
    return lambda array: pc.cast(array, target, safe=True)


def _timestamps(source: pa.DataType, target: pa.DataType) -> Converter:
    """Change the unit exactly. The time zone is only a label: Iceberg reads the stored instant in both cases."""
    unit_changed = pa.timestamp(target.unit, tz=source.tz)

    def convert(array: pa.Array) -> pa.Array:
        if source.unit != target.unit:
            array = pc.cast(array, unit_changed, safe=True)
        return array if source.tz == target.tz else array.view(target)

    return convert


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
    )


def _bytes(source: pa.DataType, target: pa.DataType) -> Converter:
    """Return strings and binaries with other offsets or another type; the bytes stay, so they are not validated."""

    def convert(array: pa.Array) -> pa.Array:
        if pa.types.is_string_view(source) or pa.types.is_large_string(source):
            array = pc.cast(array, pa.string())
        elif pa.types.is_binary_view(source) or pa.types.is_large_binary(source):
            array = pc.cast(array, pa.binary())
        return array if array.type.equals(target) else array.view(target)

    return convert

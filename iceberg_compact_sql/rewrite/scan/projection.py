"""Batches of one file as rows of the table's current schema, resolved by field id at every level.

Null lists, maps and structs stay apart from empty ones: nested arrays are rebuilt from their own validity and offsets,
which are taken relative to the slice that a batch may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from iceberg_compact_sql.rewrite.scan.arrays import (
    BoolMask,
    bitmap,
    list_items,
    null_array,
    repeated,
    validity,
    without_validity,
)
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_field, arrow_type
from iceberg_compact_sql.rewrite.scan.defaults import missing_column
from iceberg_compact_sql.rewrite.scan.fields import FileField, is_list, plain_type
from iceberg_compact_sql.rewrite.scan.inputs import ProjectionError
from iceberg_compact_sql.rewrite.scan.values import Converter, dictionary_converter, leaf_converter


@dataclass(frozen=True, slots=True)
class _Column:
    """One output column or struct child: a converted source, or one value for all rows."""

    field: pa.Field
    source: int | None
    convert: Converter | None
    value: pa.Scalar | None

    def read(self, sources: Sequence[pa.Array], length: int) -> pa.Array:
        if self.source is None or self.convert is None:
            return repeated(self.value, length)
        return self.convert(sources[self.source])


class Projection:
    """Converts batches of one file to the table's schema; built once for each file, checked against every batch."""

    def __init__(
        self,
        schema: Schema,
        fields: Sequence[FileField],
        *,
        identity: Mapping[int, Any],
        format_version: int,
        dictionaries: bool = False,
    ) -> None:
        builder = _Builder(identity, format_version, dictionaries)
        self._columns = builder.columns(schema.fields, fields)
        self.schema = pa.schema([column.field for column in self._columns])

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the same rows in the table's schema; strings may stay dictionaries if requested."""
        sources = batch.columns
        arrays = [column.read(sources, batch.num_rows) for column in self._columns]
        for column, array in zip(self._columns, arrays, strict=True):
            if not column.field.nullable and array.null_count:
                raise ProjectionError(f"the required column '{column.field.name}' holds {array.null_count} nulls")
        schema = self.schema
        for i, array in enumerate(arrays):
            if pa.types.is_dictionary(array.type):
                schema = schema.set(i, schema.field(i).with_type(array.type))
            elif not array.type.equals(schema.field(i).type):
                raise ProjectionError(f"column '{schema.field(i).name}' came out as {array.type}")
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Builder:
    def __init__(self, identity: Mapping[int, Any], format_version: int, dictionaries: bool) -> None:
        self.identity = identity
        self.format_version = format_version
        self.dictionaries = dictionaries

    def columns(self, wanted: Iterable[NestedField], fields: Sequence[FileField], depth: int = 0) -> list[_Column]:
        by_id = {field.field_id: i for i, field in enumerate(fields) if field.field_id is not None}
        columns = []
        for field in wanted:
            target = arrow_field(field)
            # An identity partition value replaces the file's values, as in Iceberg's readers.
            source = by_id.get(field.field_id) if field.field_id not in self.identity else None
            if source is None:
                columns.append(_Column(target, None, None, missing_column(field, self.identity)))
            else:
                columns.append(_Column(target, source, self.converter(field, fields[source], depth), None))
        return columns

    def converter(self, field: NestedField, source: FileField, depth: int) -> Converter:
        kind, target, stored = field.field_type, arrow_type(field.field_type), plain_type(source.type)
        if isinstance(kind, StructType | ListType | MapType) and pa.types.is_null(stored):
            return lambda array: null_array(target, len(array))
        if isinstance(kind, StructType) and pa.types.is_struct(stored):
            return _struct_converter(target, self.columns(kind.fields, source.children, depth + 1))
        if isinstance(kind, ListType) and is_list(stored):
            self._check_id(kind.element_field, source.children[0])
            return _list_converter(target, self.converter(kind.element_field, source.children[0], depth + 1))
        if isinstance(kind, MapType) and pa.types.is_map(stored):
            for below, child in zip((kind.key_field, kind.value_field), source.children, strict=True):
                self._check_id(below, child)
            keys = self.converter(kind.key_field, source.children[0], depth + 1)
            values = self.converter(kind.value_field, source.children[1], depth + 1)
            return _map_converter(target, keys, values)
        if isinstance(kind, StructType | ListType | MapType) or source.children:
            raise ProjectionError(f"column '{field.name}' is stored as {stored}, which cannot be read as {kind}")
        keeps = self.dictionaries and depth == 0 and pa.types.is_dictionary(stored)
        if keeps and (pa.types.is_string(target) or pa.types.is_binary(target)):
            return dictionary_converter(field.name, stored, target, format_version=self.format_version)
        return leaf_converter(field.name, source.type, target, format_version=self.format_version)

    def _check_id(self, field: NestedField, source: FileField) -> None:
        # A list has one element. Another id there means that the outer id belongs to another column.
        if source.field_id is not None and source.field_id != field.field_id:
            raise ProjectionError(
                f"the {field.name} of a list or map has the field id {source.field_id}, the table says {field.field_id}"
            )


def _struct_converter(target: pa.DataType, columns: Sequence[_Column]) -> Converter:
    def convert(array: pa.Array) -> pa.Array:
        array = _storage(array)
        # `field` respects the array's slice and does not apply the parent's nulls.
        sources = [array.field(i) for i in range(array.type.num_fields)]
        children = [column.read(sources, len(array)) for column in columns]
        valid = validity(array)
        for i, column in enumerate(columns):
            if not column.field.nullable and children[i].null_count:
                children[i] = _required(column.field.name, children[i], valid)
        return pa.Array.from_buffers(target, len(array), [bitmap(valid)], children=children)

    return convert


def _list_converter(target: pa.DataType, element: Converter) -> Converter:
    def convert(array: pa.Array) -> pa.Array:
        array = _storage(array)
        if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            array = pc.cast(array, pa.large_list(array.type.value_field))
        offsets, values = list_items(array)
        items = element(values)
        if not target.value_field.nullable and items.null_count:
            raise ProjectionError("a list with required elements holds nulls")
        return pa.Array.from_buffers(target, len(array), [bitmap(validity(array)), offsets], children=[items])

    return convert


def _map_converter(target: pa.DataType, keys: Converter, values: Converter) -> Converter:
    entries_type = pa.struct([target.key_field, target.item_field])

    def convert(array: pa.Array) -> pa.Array:
        array = _storage(array)
        offsets, entries = list_items(array)
        children = [keys(entries.field(0)), values(entries.field(1))]
        for field, child in zip((target.key_field, target.item_field), children, strict=True):
            if not field.nullable and child.null_count:
                raise ProjectionError(f"the required {field.name} of a map holds nulls")
        items = pa.Array.from_buffers(entries_type, len(entries), [None], children=children)
        return pa.Array.from_buffers(target, len(array), [bitmap(validity(array)), offsets], children=[items])

    return convert


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _required(name: str, child: pa.Array, valid: BoolMask | None) -> pa.Array:
    """Return a required child without its nulls, which are valid only where the whole struct is null."""
    absent = child.is_null().to_numpy(zero_copy_only=False)
    if valid is None or bool((absent & valid).any()):
        raise ProjectionError(f"the required field '{name}' holds nulls")
    return without_validity(child)

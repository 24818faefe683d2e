"""The metrics of a data file for its manifest entry, from the footer alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, PrimitiveType, StructType

from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.parquet.thrift import BINARY, I64, STRUCT, TRUE, Struct
from iceberg_compact_sql.parquet.value_order import order_key
from iceberg_compact_sql.rewrite.write.bounds import BoundCodec, bound_codec

DEFAULT_MODE = "write.metadata.metrics.default"
COLUMN_MODE_PREFIX = "write.metadata.metrics.column."
MAX_INFERRED_COLUMNS = "write.metadata.metrics.max-inferred-column-defaults"
DEFAULT_MAX_INFERRED_COLUMNS = 100
DEFAULT_TRUNCATE_LENGTH = 16

_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_TYPE_ORDER, _TOTAL_ORDER = 1, 2
_JAVA_WRITER = re.compile(r"parquet-mr version ")


@dataclass(frozen=True, slots=True)
class MetricsMode:
    """What is kept of a column: counts or nothing, and bounds cut to a length (None: whole)."""

    counts: bool = True
    bounds: bool = True
    length: int | None = None


NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(bounds=False)
FULL = MetricsMode()
TRUNCATED = MetricsMode(length=DEFAULT_TRUNCATE_LENGTH)


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """A file's metrics by field id; a column that is missing in a mapping is one of which nothing is known."""

    column_sizes: Mapping[int, int]
    value_counts: Mapping[int, int]
    null_value_counts: Mapping[int, int]
    nan_value_counts: Mapping[int, int]
    lower_bounds: Mapping[int, bytes]
    upper_bounds: Mapping[int, bytes]
    split_offsets: tuple[int, ...]


def file_metrics(
    footer: ParquetFooter,
    schema: Schema,
    properties: Mapping[str, str],
    nan_counts: Mapping[int, int] | None = None,
    *,
    sorted_columns: Collection[str] = (),
) -> FileMetrics:
    """Metrics for the table's columns that the file has, by its field ids and the table's `write.metadata.metrics.*`.

    Bounds are never narrower than the data: where a row group does not state its own, the column has none. As in
    Iceberg's own writers, columns inside lists and maps have counts and no bounds. If `nan_counts` is given, a float
    that it lacks has no bounds: Java takes a missing NaN count for 0, and deletes whole files by bounds.
    """
    fields = {field.field_id: field for field in _leaf_fields(schema.as_struct())}
    modes = column_modes(schema, properties, sorted_columns)
    sizes: dict[int, int] = {}
    values: dict[int, int] = {}
    nulls: dict[int, int] = {}
    lower: dict[int, bytes] = {}
    upper: dict[int, bytes] = {}
    columns = [footer.column_trees(group.index) for group in footer.row_groups if group.rows]
    for leaf in footer.leaves:
        field = fields.get(leaf.field_id) if leaf.field_id is not None else None
        if field is None:
            continue
        field_id, mode = field.field_id, modes[field.field_id]
        chunks = [row_group[leaf.index][1] for row_group in columns]
        sizes[field_id] = sum(chunk.need(7, I64) for chunk in chunks)
        if not mode.counts:
            continue
        values[field_id] = sum(chunk.need(5, I64) for chunk in chunks)
        null_counts = [chunk_nulls(chunk, leaf) for chunk in chunks]
        if None not in null_counts:
            nulls[field_id] = sum(count for count in null_counts if count is not None)
        may_bound = not leaf.repeated and not (is_float(leaf) and nan_counts is not None and field_id not in nan_counts)
        codec = bound_codec(leaf, field.field_type) if mode.bounds and may_bound else None
        found = _extremes(footer, leaf, chunks, codec) if codec else None
        if codec and found:
            least = codec.encode(found[0], False, mode.length)
            greatest = codec.encode(found[1], True, mode.length)
            if least is not None:
                lower[field_id] = least
            if greatest is not None:
                upper[field_id] = greatest
    return FileMetrics(
        column_sizes=sizes,
        value_counts=values,
        null_value_counts=nulls,
        nan_value_counts={key: count for key, count in (nan_counts or {}).items() if key in values},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=tuple(sorted(group.start for group in footer.row_groups if group.rows)),
    )


def column_modes(
    schema: Schema, properties: Mapping[str, str], sorted_columns: Collection[str] = ()
) -> dict[int, MetricsMode]:
    """Each leaf field's metrics mode; a mode that cannot be read counts as not set, as in Iceberg."""
    leaves = list(_leaf_fields(schema.as_struct()))
    default = _mode(properties.get(DEFAULT_MODE))
    modes = {field.field_id: default or TRUNCATED for field in leaves}
    if default is None:
        limit = _limit(properties.get(MAX_INFERRED_COLUMNS))
        modes.update((field.field_id, NONE) for field in leaves[limit:])
    for field in leaves:
        name = schema.find_column_name(field.field_id)
        if name in sorted_columns and not modes[field.field_id].bounds:
            modes[field.field_id] = TRUNCATED
        asked = _mode(properties.get(f"{COLUMN_MODE_PREFIX}{name}"))
        if asked is not None:
            modes[field.field_id] = asked
    return modes


def _mode(text: str | None) -> MetricsMode | None:
    name = (text or "").strip().lower()
    found = _TRUNCATE.fullmatch(name)
    if found and int(found[1]) > 0:
        return MetricsMode(length=int(found[1]))
    return {"none": NONE, "counts": COUNTS, "full": FULL}.get(name)


def _limit(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else DEFAULT_MAX_INFERRED_COLUMNS


def _leaf_fields(struct: StructType) -> Iterator[NestedField]:
    """Primitive fields at any depth; a struct's own come before those nested in it, as Iceberg counts them."""
    nested: list[NestedField] = []
    for field in struct.fields:
        if isinstance(field.field_type, PrimitiveType):
            yield field
        else:
            nested.append(field)
    for field in nested:
        yield from _leaf_fields(_children(field.field_type))


def _children(container: IcebergType) -> StructType:
    if isinstance(container, StructType):
        return container
    if isinstance(container, ListType):
        return StructType(container.element_field)
    if isinstance(container, MapType):
        return StructType(container.key_field, container.value_field)
    # Types without children, such as variant, have no leaf columns to measure.
    return StructType()


def chunk_values(chunk: Struct) -> int:
    """How many values a column chunk holds, nulls included."""
    count: int = chunk.need(5, I64)
    return count


def chunk_extremes(
    footer: ParquetFooter, leaf: LeafColumn, chunk: Struct, kind: IcebergType
) -> tuple[bytes | None, bytes | None] | None:
    """The least and greatest value of one column chunk as bounds of the column's type, not cut short."""
    codec = bound_codec(leaf, kind)
    found = _extremes(footer, leaf, [chunk], codec) if codec is not None else None
    return (
        None
        if codec is None or found is None
        else (codec.encode(found[0], False, None), codec.encode(found[1], True, None))
    )


def chunk_nulls(chunk: Struct, leaf: LeafColumn) -> int | None:
    """How many nulls a column chunk holds, or None if its statistics do not say it."""
    if not leaf.optional:
        return 0
    statistics = chunk.get(12, STRUCT)
    count: int | None = None if statistics is None else statistics.get(3, I64)
    return count if count is not None and 0 <= count <= chunk.need(5, I64) else None


def is_float(leaf: LeafColumn) -> bool:
    """Whether the values of a column may be NaN."""
    return leaf.physical in ("FLOAT", "DOUBLE")


def is_nan_free(footer: ParquetFooter, leaf: LeafColumn, chunk: Struct) -> bool:
    """Whether the statistics of a float chunk prove that it holds no NaN.

    Java's writer orders NaN above all numbers, so that it becomes the greatest value. Other writers leave NaN out.
    """
    if chunk_nulls(chunk, leaf) == chunk_values(chunk):
        return True
    statistics = chunk.get(12, STRUCT)
    order = None if footer.column_orders is None else footer.column_orders[leaf.index]
    key = order_key(leaf, order)
    if key is None or statistics is None or not _JAVA_WRITER.match(footer.created_by):
        return False
    low, high = statistics.get(6, BINARY), statistics.get(5, BINARY)
    try:
        # A comparison with NaN is False.
        return low is not None and high is not None and bool(key(low) <= key(high))
    except ValueError:
        return False


def _extremes(
    footer: ParquetFooter, leaf: LeafColumn, chunks: list[Struct], codec: BoundCodec
) -> tuple[Any, Any] | None:
    """The least and greatest value over all row groups; None unless each one with values states both."""
    order = _TYPE_ORDER if footer.column_orders is None else footer.column_orders[leaf.index]
    # Without column orders the order of min_value and max_value is unknown; the deprecated fields do not need one.
    known_order = footer.column_orders is not None and (
        order == _TYPE_ORDER or (order == _TOTAL_ORDER and leaf.physical in ("FLOAT", "DOUBLE"))
    )
    least: Any = None
    greatest: Any = None
    for chunk in chunks:
        if chunk_nulls(chunk, leaf) == chunk_values(chunk):
            continue
        stated = _stated(chunk, leaf, known_order, codec)
        if stated is None:
            return None
        least = stated[0] if least is None else min(least, stated[0])
        greatest = stated[1] if greatest is None else max(greatest, stated[1])
    return None if least is None or not codec.usable(least, greatest) else (least, greatest)


def _stated(chunk: Struct, leaf: LeafColumn, known_order: bool, codec: BoundCodec) -> tuple[Any, Any] | None:
    statistics = chunk.get(12, STRUCT)
    if statistics is None:
        return None
    least, greatest = statistics.get(6, BINARY), statistics.get(5, BINARY)
    if known_order and least is not None and greatest is not None:
        exact = statistics.get(8, TRUE) is not False and statistics.get(7, TRUE) is not False
        if codec.needs_exact and not exact:
            return None
    elif leaf.physical in ("INT32", "INT64", "FLOAT", "DOUBLE"):
        least, greatest = statistics.get(2, BINARY), statistics.get(1, BINARY)
    else:
        return None
    if least is None or greatest is None:
        return None
    parsed = codec.parse(least), codec.parse(greatest)
    if parsed[0] is None or parsed[1] is None or parsed[0] > parsed[1]:
        return None
    return parsed

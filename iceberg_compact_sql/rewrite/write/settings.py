"""From the table's write properties to a Parquet row group in memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, ListType, MapType, NestedField, StructType

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.rewrite.scan.lineage import LAST_UPDATED, ROW_ID, has_lineage

PREFIX = "write.parquet."
CODEC = PREFIX + "compression-codec"
LEVEL = PREFIX + "compression-level"
ROW_GROUP_BYTES = PREFIX + "row-group-size-bytes"
PAGE_BYTES = PREFIX + "page-size-bytes"
PAGE_ROWS = PREFIX + "page-row-limit"
PAGE_VERSION = PREFIX + "page-version"
DICTIONARY_BYTES = PREFIX + "dict-size-bytes"
BLOOM_ENABLED = PREFIX + "bloom-filter-enabled.column."
BLOOM_FPP = PREFIX + "bloom-filter-fpp.column."
BLOOM_NDV = PREFIX + "bloom-filter-ndv.column."
BLOOM_MAX_BYTES = PREFIX + "bloom-filter-max-bytes"
STATS_ENABLED = PREFIX + "stats-enabled.column."

# How Iceberg's codec names are written in a Parquet footer; pyarrow takes the same names, except for none.
_CODECS = {
    "zstd": "ZSTD",
    "snappy": "SNAPPY",
    "gzip": "GZIP",
    "brotli": "BROTLI",
    "lz4": "LZ4_RAW",
    "lz4_raw": "LZ4_RAW",
    "uncompressed": "UNCOMPRESSED",
    "none": "UNCOMPRESSED",
}
_CODECS_WITH_LEVEL = frozenset({"ZSTD", "GZIP", "BROTLI"})
# Settings of Java's writer for when it checks its buffers: a writer that cuts by bytes does not need them.
_JAVA_ONLY = frozenset({PREFIX + "row-group-check-min-record-count", PREFIX + "row-group-check-max-record-count"})


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A bloom filter that the table asks for on one column; `ndv` None: as many as the row group has rows."""

    column_path: str
    false_positive_rate: float
    distinct_values: int | None

    def fitted(self, rows: int, max_bytes: int) -> dict[str, Any]:
        """pyarrow's options for a row group of so many rows, the filter within its size limit."""
        wanted = max(1, self.distinct_values or rows)
        # Size of a split-block filter: bits = -8 n / ln(1 - p^(1/8)).
        bits_per_value = -8.0 / math.log(1.0 - self.false_positive_rate ** (1.0 / 8.0))
        return {"ndv": max(1, min(wanted, int(max_bytes * 8 / bits_per_value))), "fpp": self.false_positive_rate}


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What the table's properties ask of its files, as far as pyarrow can do it; `notes` say what it cannot."""

    codec: str = "ZSTD"
    level: int | None = None
    row_group_bytes: int = 128 * 1024**2
    page_bytes: int = 1024**2
    page_rows: int = 20_000
    page_version: str = "1.0"
    dictionary_bytes: int = 2 * 1024**2
    bloom_max_bytes: int = 1024**2
    blooms: tuple[BloomFilter, ...] = ()
    columns_without_statistics: frozenset[str] = frozenset()
    decimal_as_integer: bool = True
    # Top-level columns that are written as required, as in the row groups that they share a file with.
    required_columns: frozenset[str] = frozenset()
    notes: tuple[str, ...] = field(default=())


def writer_settings(properties: Mapping[str, str], schema: Schema) -> WriterSettings:
    """Read every `write.parquet.*` property; a value that means nothing is an InvalidArgumentError."""
    notes: list[str] = []
    paths = dict(leaf_paths(schema))
    codec = properties.get(CODEC, "zstd").lower()
    if codec not in _CODECS:
        raise InvalidArgumentError(
            f"'{CODEC}' is '{codec}'", argument=CODEC, value=codec, hint=f"Known codecs: {', '.join(sorted(_CODECS))}."
        )
    for name in sorted(properties):
        if name.startswith(PREFIX) and not _is_known(name):
            notes.append(f"'{name}' is not known to this writer and was not used.")
    page_version = properties.get(PAGE_VERSION, "v1").lower()
    return WriterSettings(
        codec=_CODECS[codec],
        level=_level(properties, _CODECS[codec], notes),
        row_group_bytes=_positive(properties, ROW_GROUP_BYTES, 128 * 1024**2),
        page_bytes=_positive(properties, PAGE_BYTES, 1024**2),
        page_rows=_positive(properties, PAGE_ROWS, 20_000),
        page_version="2.0" if page_version == "v2" else "1.0",
        dictionary_bytes=_positive(properties, DICTIONARY_BYTES, 2 * 1024**2),
        bloom_max_bytes=_positive(properties, BLOOM_MAX_BYTES, 1024**2),
        blooms=tuple(_blooms(properties, schema, paths, notes)),
        columns_without_statistics=frozenset(
            paths[name]
            for name in _columns(properties, STATS_ENABLED, notes, paths)
            if properties[STATS_ENABLED + name].lower() == "false"
        ),
        notes=tuple(notes),
    )


def leaf_paths(schema: Schema) -> Iterator[tuple[str, str]]:
    """Yield Iceberg's names of all leaf columns with their dotted paths in a Parquet file.

    >>> from pyiceberg.types import LongType
    >>> dict(leaf_paths(Schema(NestedField(1, "a", ListType(2, LongType())))))
    {'a.element': 'a.list.element'}
    """
    for column in schema.fields:
        yield from _leaves(column, (), ())


def _leaves(column: NestedField, names: tuple[str, ...], path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    names, path = (*names, column.name), (*path, column.name)
    kind = column.field_type
    if isinstance(kind, StructType):
        for child in kind.fields:
            yield from _leaves(child, names, path)
    elif isinstance(kind, ListType):
        yield from _leaves(kind.element_field, names, (*path, "list"))
    elif isinstance(kind, MapType):
        yield from _leaves(kind.key_field, names, (*path, "key_value"))
        yield from _leaves(kind.value_field, names, (*path, "key_value"))
    else:
        yield ".".join(names), ".".join(path)


def encode(table: pa.Table, settings: WriterSettings, dictionary_columns: Collection[str]) -> pa.Buffer:
    """Return the rows as a Parquet file of one row group; columns outside `dictionary_columns` are written plain.

    A dictionary only where it pays: trying one that falls back to PLAIN costs time and bytes.
    """
    rows = table.num_rows
    table = _with_required(table, settings.required_columns)
    # Row ids mostly count up; the sequence numbers of their last changes are few.
    row_ids = {ROW_ID.name} if has_lineage(table.schema) else set()
    dictionaries = {*dictionary_columns, LAST_UPDATED.name} - row_ids if row_ids else set(dictionary_columns)
    sink = pa.BufferOutputStream()
    if settings.columns_without_statistics:
        paths = written_paths(table.schema)
        statistics: bool | list[str] = [path for path in paths if path not in settings.columns_without_statistics]
    else:
        statistics = True
    with pq.ParquetWriter(
        sink,
        table.schema,
        version="2.6",
        compression="NONE" if settings.codec == "UNCOMPRESSED" else settings.codec,
        compression_level=settings.level,
        use_dictionary=sorted(dictionaries) or False,
        column_encoding=dict.fromkeys(row_ids, "DELTA_BINARY_PACKED") or None,
        dictionary_pagesize_limit=settings.dictionary_bytes,
        data_page_size=settings.page_bytes,
        max_rows_per_page=settings.page_rows,
        data_page_version=settings.page_version,
        write_statistics=statistics,
        write_page_index=True,
        # Readers use field ids; pyarrow's own copy of the schema in the footer would only add bytes.
        store_schema=False,
        store_decimal_as_integer=settings.decimal_as_integer,
        bloom_filter_options={b.column_path: b.fitted(rows, settings.bloom_max_bytes) for b in settings.blooms} or None,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, rows))
    return sink.getvalue()


def _with_required(table: pa.Table, names: Collection[str]) -> pa.Table:
    if not names:
        return table
    holes = [name for name in names if table.column(name).null_count]
    if holes:
        raise ValueError(f"column {holes[0]} has nulls, but is written as required")
    fields = [column.with_nullable(False) if column.name in names else column for column in table.schema]
    return pa.Table.from_arrays(table.columns, schema=pa.schema(fields))


def written_paths(schema: pa.Schema) -> list[str]:
    """Return the dotted paths of the leaf columns in a file of this schema, in order."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema, store_schema=False):
        pass
    parquet = pq.read_metadata(pa.BufferReader(sink.getvalue())).schema
    return [parquet.column(index).path for index in range(len(parquet.names))]


def _is_known(name: str) -> bool:
    exact = {
        CODEC,
        LEVEL,
        ROW_GROUP_BYTES,
        PAGE_BYTES,
        PAGE_ROWS,
        PAGE_VERSION,
        DICTIONARY_BYTES,
        BLOOM_MAX_BYTES,
    }
    prefixes = (BLOOM_ENABLED, BLOOM_FPP, BLOOM_NDV, STATS_ENABLED)
    return name in exact or name in _JAVA_ONLY or name.startswith(prefixes)


def _level(properties: Mapping[str, str], codec: str, notes: list[str]) -> int | None:
    given = properties.get(LEVEL)
    if given is None or given.lower() == "null":
        return None
    try:
        level = int(given)
    except ValueError:
        raise InvalidArgumentError(
            f"'{LEVEL}' is '{given}' but must be a number", argument=LEVEL, value=given
        ) from None
    if codec not in _CODECS_WITH_LEVEL:
        notes.append(f"'{LEVEL}' was not used: {codec.lower()} has no levels.")
        return None
    return level


def _positive(properties: Mapping[str, str], name: str, default: int) -> int:
    given = properties.get(name)
    if given is None:
        return default
    try:
        value = int(given)
    except ValueError:
        value = 0
    if value <= 0:
        raise InvalidArgumentError(f"'{name}' is '{given}' but must be a number > 0", argument=name, value=given)
    return value


def _columns(properties: Mapping[str, str], prefix: str, notes: list[str], paths: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(properties):
        if name.startswith(prefix):
            column = name.removeprefix(prefix)
            if column in paths:
                yield column
            else:
                notes.append(f"'{name}' was not used: the table has no such column.")


def _blooms(
    properties: Mapping[str, str], schema: Schema, paths: Mapping[str, str], notes: list[str]
) -> Iterator[BloomFilter]:
    for column in _columns(properties, BLOOM_ENABLED, notes, paths):
        if properties[BLOOM_ENABLED + column].lower() != "true":
            continue
        if isinstance(schema.find_type(column), BooleanType):
            notes.append(f"No bloom filter on '{column}': pyarrow writes none for booleans.")
            continue
        given = properties.get(BLOOM_FPP + column, "0.01")
        try:
            rate = float(given)
        except ValueError:
            rate = 0.0
        if not 0.0 < rate < 1.0:
            raise InvalidArgumentError(
                f"'{BLOOM_FPP}{column}' is '{given}' but must be between 0 and 1",
                argument=BLOOM_FPP + column,
                value=given,
            )
        distinct = _positive(properties, BLOOM_NDV + column, 0) if BLOOM_NDV + column in properties else None
        yield BloomFilter(paths[column], rate, distinct)

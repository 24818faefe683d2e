"""The footer of a Parquet file: row groups, their byte ranges, and the signature that joined files must share."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from iceberg_compact_sql.parquet.schema import PHYSICAL_TYPES, LeafColumn, read_schema
from iceberg_compact_sql.parquet.thrift import BINARY, I16, I32, I64, STRUCT, TRUE, FooterError, Struct, read_struct

__all__ = [
    "FooterError",
    "ParquetFooter",
    "RowGroupInfo",
    "checked_footer",
    "parse_footer",
    "read_footer",
    "read_footer_tree",
    "read_range",
]

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
CODECS = ("UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW")
FIRST_READ_BYTES = 64 * 1024
MAX_FOOTER_BYTES = 32 * 1024**2

_DICTIONARY_ENCODINGS = frozenset({2, 8})
_PLAIN, _PLAIN_DICTIONARY = 0, 2
_DATA_PAGES = frozenset({0, 3})
_CREATED_BY = re.compile(r"(parquet-mr|parquet-cpp)(?!-)(?: version (\d+)\.(\d+))?")
# Older writers wrote wrong chunk sizes, statistics or delta encodings. Readers correct them by the writer's name, and a
# joined file has another writer's name.
_FIRST_TRUSTED_VERSION = {"parquet-mr": (1, 8), "parquet-cpp": (1, 3)}
# Wire types of optional fields: checked once here, so that later code can rely on them.
_ROW_GROUP_TYPES = {5: I64, 7: I16}
_CHUNK_TYPES = {2: I64, 4: I64, 5: I32, 6: I64, 7: I32}
_METADATA_TYPES = {10: I64, 11: I64, 12: STRUCT, 14: I64, 15: I32}
_STATISTICS_TYPES = {1: BINARY, 2: BINARY, 3: I64, 5: BINARY, 6: BINARY, 7: TRUE, 8: TRUE}


@dataclass(frozen=True, slots=True)
class RowGroupInfo:
    """A row group and where its pages are: bytes [start, end) of the file, each leaf's chunk in `chunk_ranges`.

    `dictionary_columns` are leaf columns whose data pages are all dictionary-encoded, as far as the footer shows it.
    """

    index: int
    rows: int
    first_row: int
    start: int
    end: int
    compressed_bytes: int
    codecs: frozenset[str]
    dictionary_columns: frozenset[str]
    chunk_ranges: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    uncompressed_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """The footer of a file; row groups of footers with equal `signature` may be joined into one file.

    `data_end` is where the footer starts in the file, None if only its bytes were parsed.
    """

    rows: int
    row_groups: tuple[RowGroupInfo, ...]
    signature: Hashable = field(repr=False)
    leaves: tuple[LeafColumn, ...] = field(repr=False)
    column_orders: tuple[int, ...] | None = field(repr=False)
    created_by: str
    tree: Struct = field(repr=False, compare=False)
    data_end: int | None = None

    def row_group_tree(self, index: int) -> Struct:
        groups: Sequence[Struct] = self.tree.elements(4, STRUCT) or ()
        return groups[index]

    def column_trees(self, index: int) -> list[tuple[Struct, Struct]]:
        """Return each leaf's ColumnChunk and ColumnMetaData in a row group."""
        chunks = self.row_group_tree(index).elements(1, STRUCT) or ()
        return [(chunk, chunk.need(3, STRUCT)) for chunk in chunks]

    @property
    def key_value_metadata(self) -> dict[str, bytes]:
        pairs = self.tree.elements(5, STRUCT) or ()
        return {pair.need(1, BINARY).decode("utf-8", "replace"): pair.get(2, BINARY) or b"" for pair in pairs}


def read_footer(file: Any, size: int | None = None) -> ParquetFooter:
    """Read the footer from the end of an open file in one ranged read, or two if it is long."""
    return checked_footer(*read_footer_tree(file, size))


def read_footer_tree(file: Any, size: int | None = None) -> tuple[Struct, int]:
    """Return the parsed footer of an open file and its offset; nothing in it is checked yet."""
    size = _size_of(file) if size is None else size
    if size < 12:
        raise FooterError(f"{size} bytes are too few for a Parquet file")
    tail = read_range(file, max(0, size - FIRST_READ_BYTES), min(size, FIRST_READ_BYTES))
    if tail[-4:] == ENCRYPTED_MAGIC:
        raise FooterError("the footer is encrypted")
    if tail[-4:] != MAGIC:
        raise FooterError("the file does not end with the magic bytes of Parquet")
    length = int.from_bytes(tail[-8:-4], "little")
    if not 0 < length <= size - 12:
        raise FooterError(f"the footer length is {length} in a file of {size} bytes")
    if length > MAX_FOOTER_BYTES:
        raise FooterError(f"the footer has {length} bytes, more than {MAX_FOOTER_BYTES}")
    start = size - 8 - length
    raw = tail[-8 - length : -8] if length + 8 <= len(tail) else read_range(file, start, length)
    return _read_whole_struct(raw), start


def parse_footer(raw: bytes, *, data_end: int | None = None) -> ParquetFooter:
    """Parse the Thrift bytes of a footer; raise FooterError for missing, extra, out-of-bounds or encrypted parts."""
    return checked_footer(_read_whole_struct(raw), data_end)


def _read_whole_struct(raw: bytes) -> Struct:
    tree, end = read_struct(raw, 0)
    if end != len(raw):
        raise FooterError(f"{len(raw) - end} bytes are left over after the footer")
    return tree


def read_range(file: Any, offset: int, length: int) -> bytes:
    """Return exactly the bytes [offset, offset + length) of an open file; raise FooterError if there are fewer."""
    if hasattr(file, "read_at"):
        data = file.read_at(length, offset)
    else:
        file.seek(offset)
        data = file.read(length)
    if len(data) != length:
        raise FooterError(f"{len(data)} of {length} bytes at {offset} could be read: the file is truncated")
    return bytes(data)


def _size_of(file: Any) -> int:
    if callable(getattr(file, "size", None)):
        return int(file.size())
    file.seek(0, 2)
    return int(file.tell())


def checked_footer(tree: Struct, data_end: int | None) -> ParquetFooter:
    """Return the checked footer; raise FooterError for missing, out-of-bounds or encrypted parts."""
    if 8 in tree.fields or 9 in tree.fields:
        raise FooterError("columns are encrypted")
    created_by = (tree.get(6, BINARY) or b"").decode("utf-8", "replace")
    _check_writer(created_by)
    leaves, schema = read_schema(tree.elements(2, STRUCT) or ())
    orders = _column_orders(tree, len(leaves))
    row_groups: list[RowGroupInfo] = []
    rows = 0
    for index, group in enumerate(tree.elements(4, STRUCT) or ()):
        info = _row_group(group, index, rows, leaves, data_end)
        row_groups.append(info)
        rows += info.rows
    if tree.need(3, I64) != rows:
        raise FooterError(f"the row groups have {rows} rows, the footer says {tree.need(3, I64)}")
    return ParquetFooter(rows, tuple(row_groups), (schema, orders), leaves, orders, created_by, tree, data_end)


def _check_writer(created_by: str) -> None:
    match = _CREATED_BY.match(created_by)
    if match is None:
        return
    version = (int(match[2]), int(match[3])) if match[2] else (0, 0)
    if version < _FIRST_TRUSTED_VERSION[match[1]]:
        raise FooterError(f"files of {created_by!r} have known faults that readers correct by the writer's name")


def _column_orders(tree: Struct, leaf_count: int) -> tuple[int, ...] | None:
    orders = tree.elements(7, STRUCT)
    if orders is None:
        return None
    if len(orders) != leaf_count or any(len(order.fields) != 1 for order in orders):
        raise FooterError("the number of column orders is not the number of columns")
    return tuple(next(iter(order.fields)) for order in orders)


def _row_group(
    group: Struct, index: int, first_row: int, leaves: tuple[LeafColumn, ...], data_end: int | None
) -> RowGroupInfo:
    rows = group.need(3, I64)
    _check_types(group, _ROW_GROUP_TYPES)
    chunks = group.elements(1, STRUCT) or ()
    if rows < 0 or len(chunks) != len(leaves):
        raise FooterError(f"row group {index} has {rows} rows and {len(chunks)} of {len(leaves)} columns")
    ranges: list[tuple[int, int]] = []
    codecs: set[str] = set()
    dictionary: set[str] = set()
    uncompressed_bytes = 0
    for chunk, leaf in zip(chunks, leaves, strict=True):
        meta = _chunk_metadata(chunk, leaf, rows)
        if rows:
            ranges.append(_chunk_range(meta, leaf, data_end))
        codec = meta.need(4, I32)
        codecs.add(CODECS[codec] if 0 <= codec < len(CODECS) else f"CODEC_{codec}")
        uncompressed_bytes += meta.need(6, I64)
        if only_dictionary_pages(meta):
            dictionary.add(leaf.name)
    ordered = sorted(ranges)
    if any(left[1] > right[0] for left, right in pairwise(ordered)):
        raise FooterError(f"columns of row group {index} overlap")
    return RowGroupInfo(
        index=index,
        rows=rows,
        first_row=first_row,
        start=ordered[0][0] if ordered else 0,
        end=ordered[-1][1] if ordered else 0,
        compressed_bytes=sum(end - start for start, end in ranges),
        codecs=frozenset(codecs),
        dictionary_columns=frozenset(dictionary),
        chunk_ranges=tuple(ranges),
        uncompressed_bytes=uncompressed_bytes,
    )


def _chunk_metadata(chunk: Struct, leaf: LeafColumn, rows: int) -> Struct:
    if chunk.get(1, BINARY):
        raise FooterError(f"column {leaf.name!r} is stored in another file")
    if 8 in chunk.fields or 9 in chunk.fields:
        raise FooterError(f"column {leaf.name!r} is encrypted")
    meta: Struct = chunk.need(3, STRUCT)
    _check_types(chunk, _CHUNK_TYPES)
    _check_types(meta, _METADATA_TYPES)
    if (statistics := meta.get(12, STRUCT)) is not None:
        _check_types(statistics, _STATISTICS_TYPES)
    path = tuple(part.decode("utf-8", "surrogateescape") for part in meta.elements(3, BINARY) or ())
    type_id = meta.need(1, I32)
    if path != leaf.path or not 0 <= type_id < len(PHYSICAL_TYPES) or PHYSICAL_TYPES[type_id] != leaf.physical:
        raise FooterError(f"a column chunk of {'.'.join(path)!r} is in the position of {leaf.name!r}")
    values = meta.need(5, I64)
    if values < rows or (values != rows and not leaf.repeated):
        raise FooterError(f"column {leaf.name!r} has {values} values in {rows} rows")
    return meta


def _check_types(tree: Struct, types: Mapping[int, int]) -> None:
    for field_id, wire_type in types.items():
        tree.get(field_id, wire_type)


def _chunk_range(meta: Struct, leaf: LeafColumn, data_end: int | None) -> tuple[int, int]:
    start = meta.need(9, I64)
    dictionary = meta.get(11, I64)
    # As in every reader: 0 means "no dictionary", and a dictionary is always before the data pages.
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    end = start + meta.need(7, I64)
    if start < len(MAGIC) or end <= start or (data_end is not None and end > data_end):
        raise FooterError(f"column {leaf.name!r} has the invalid byte range {start} to {end}")
    if not start <= meta.need(9, I64) < end:
        raise FooterError(f"the data pages of column {leaf.name!r} are outside its range")
    return start, end


def only_dictionary_pages(meta: Struct) -> bool:
    """Whether all data pages use the dictionary; False also when the footer does not show it."""
    statistics = meta.elements(13, STRUCT)
    if statistics:
        used = {page.need(2, I32) for page in statistics if page.need(1, I32) in _DATA_PAGES and page.need(3, I32) > 0}
        return bool(used) and used <= _DICTIONARY_ENCODINGS
    encodings = set(meta.elements(2, I32) or ())
    # Before RLE_DICTIONARY, dictionary pages were PLAIN_DICTIONARY too, so PLAIN means that some data pages are plain.
    return _PLAIN_DICTIONARY in encodings and _PLAIN not in encodings

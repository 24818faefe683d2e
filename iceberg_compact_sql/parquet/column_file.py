"""A Parquet file in memory, made of the chunks of one top-level column of many files, for pyarrow to read.

pyarrow opens it once, however many chunks there are, and reads no other column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.parquet.footer import MAGIC, ParquetFooter
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList, write_struct
from iceberg_compact_sql.version import CREATED_BY


def column_elements(footer: ParquetFooter) -> list[list[Struct]]:
    """Return the schema elements of each top-level column, with those below it."""
    elements: Sequence[Struct] = footer.tree.elements(2, STRUCT) or ()
    columns: list[list[Struct]] = []
    position = 1
    while position < len(elements):
        end = _end_of(elements, position)
        columns.append(list(elements[position:end]))
        position = end
    return columns


def _end_of(elements: Sequence[Struct], position: int) -> int:
    waiting = 1
    while waiting:
        waiting += (elements[position].get(5, I32) or 0) - 1
        position += 1
    return position


def column_file(
    elements: Sequence[Struct], row_groups: Sequence[tuple[int, Sequence[tuple[Struct, Any]]]]
) -> pa.Buffer:
    """Return a file of one top-level column: row groups of (rows, chunks), a chunk of its metadata and bytes.

    Offsets in the metadata count from the first byte of the chunk.
    """
    pieces: list[Any] = [MAGIC]
    position = len(MAGIC)
    groups: list[Struct] = []
    rows_total = 0
    for rows, chunks in row_groups:
        columns = []
        for meta, data in chunks:
            pieces.append(data)
            fields = {field_id: meta.fields[field_id] for field_id in range(1, 8)}
            fields[9] = (I64, position + meta.need(9, I64))
            if meta.get(11, I64) is not None:
                fields[11] = (I64, position + meta.need(11, I64))
            columns.append(Struct({2: (I64, 0), 3: (STRUCT, Struct(fields))}))
            position += len(data)
        groups.append(Struct({1: (LIST, ThriftList(STRUCT, columns)), 2: (I64, 0), 3: (I64, rows)}))
        rows_total += rows
    root = Struct({4: (BINARY, b"table"), 5: (I32, 1)})
    footer = write_struct(
        Struct(
            {
                1: (I32, 2),
                2: (LIST, ThriftList(STRUCT, [root, *elements])),
                3: (I64, rows_total),
                4: (LIST, ThriftList(STRUCT, groups)),
                6: (BINARY, CREATED_BY.encode()),
            }
        )
    )
    pieces += [footer, len(footer).to_bytes(4, "little"), MAGIC]
    return pa.py_buffer(b"".join(pieces))


def leaf_ranges(columns: Sequence[Sequence[Struct]]) -> Iterator[range]:
    """Yield the leaf columns of each top-level column."""
    first = 0
    for elements in columns:
        leaves = sum(element.get(1, I32) is not None for element in elements)
        yield range(first, first + leaves)
        first += leaves

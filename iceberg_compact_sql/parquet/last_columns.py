"""Columns that a row group gets when it is copied, behind those of its file, which are copied as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from iceberg_compact_sql.parquet.chunk import ColumnChunk
from iceberg_compact_sql.parquet.footer import FooterError, ParquetFooter
from iceberg_compact_sql.parquet.schema import read_schema
from iceberg_compact_sql.parquet.thrift import BINARY, I32, I64, LIST, STRUCT, Struct, ThriftList

_TYPE_DEFINED_ORDER = 1


@dataclass(frozen=True, slots=True)
class LastColumns:
    """Chunks that stand behind the columns of a copied row group; `base` has the schema with both.

    The last `replaced` leaf columns of the row group are not copied.
    """

    base: ParquetFooter
    replaced: int
    chunks: tuple[ColumnChunk, ...] = field(repr=False)

    @property
    def size_bytes(self) -> int:
        return sum(chunk.metadata.need(7, I64) for chunk in self.chunks)

    def with_sizes(self, tree: Struct, chunks: Sequence[ColumnChunk]) -> Struct:
        """Return the RowGroup struct with the sizes of these chunks, which are all of its columns."""
        changes: dict[int, tuple[int, Any] | None] = {2: (I64, sum(chunk.uncompressed_bytes for chunk in chunks))}
        if 6 in tree.fields:
            changes[6] = (I64, sum(chunk.metadata.need(7, I64) for chunk in chunks))
        return tree.replaced(changes)


def with_last_columns(footer: ParquetFooter, elements: Sequence[Struct], replaced: int) -> ParquetFooter:
    """Return the schema of a footer with `elements` in place of its last columns; it has no row groups.

    `elements` and the last `replaced` columns of the footer are primitive columns at the top level.
    """
    old: Sequence[Struct] = footer.tree.elements(2, STRUCT) or ()
    kept = len(footer.leaves) - replaced
    if any(len(leaf.path) != 1 for leaf in footer.leaves[kept:]):
        raise FooterError("a column that is replaced is not at the top level")
    children = old[0].need(5, I32) - replaced + len(elements)
    root = old[0].replaced({5: (I32, children)})
    leaves, (_, *entries) = _read(elements)
    signature: Any = footer.signature
    old_entries: Sequence[Any] = signature[0][1:]
    orders = footer.column_orders
    if orders is not None:
        orders = (*orders[:kept], *(_TYPE_DEFINED_ORDER for _ in elements))
    fields: dict[int, tuple[int, Any]] = {
        1: (I32, footer.tree.get(1, I32) or 1),
        2: (LIST, ThriftList(STRUCT, [root, *old[1 : len(old) - replaced], *elements])),
        3: (I64, 0),
        4: (LIST, ThriftList(STRUCT, [])),
    }
    if footer.tree.get(6, BINARY) is not None:
        fields[6] = footer.tree.fields[6]
    if orders is not None:
        fields[7] = (LIST, ThriftList(STRUCT, [Struct({order: (STRUCT, Struct({}))}) for order in orders]))
    return ParquetFooter(
        rows=0,
        row_groups=(),
        signature=((children, *old_entries[: len(old_entries) - replaced], *entries), orders),
        leaves=(*footer.leaves[:kept], *(replace(leaf, index=kept + leaf.index) for leaf in leaves)),
        column_orders=orders,
        created_by=footer.created_by,
        tree=Struct(fields),
    )


def _read(elements: Sequence[Struct]) -> tuple[Any, Any]:
    root = Struct({4: (BINARY, b"table"), 5: (I32, len(elements))})
    return read_schema([root, *elements])

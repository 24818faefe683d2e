"""Chunks of row lineage for row groups whose other columns are copied or spliced.

Lineage is inferred from the file of a row and from the row's position, so that each row group that moves to another
file needs both columns. Columns that an input stores already are decoded only where they have nulls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from iceberg_compact_sql.parquet.chunk import ColumnChunk
from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.last_columns import LastColumns
from iceberg_compact_sql.parquet.schema import LeafColumn
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY
from iceberg_compact_sql.rewrite.scan.lineage import LAST_UPDATED, LINEAGE
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.rewrite.write.column_encoder import ColumnEncoder, ColumnFallbackError
from iceberg_compact_sql.rewrite.write.metrics import chunk_nulls

BYTES_PER_VALUE = 8


def lineage_memory_bytes(job: RewriteJob) -> int:
    """Return the memory that a column of lineage of one copied row group may take; row groups above are decoded."""
    return job.memory_bytes // 3


def lineage_columns(reader: InputReader, row_group: SliceRowGroup, encoder: ColumnEncoder) -> LastColumns | None:
    """Return the columns that a copied row group gets; None if the table has no lineage, or if it has both already."""
    if not reader.has_lineage or _stores_all(reader, row_group.index):
        return None
    assert reader.base is not None
    chunks = (
        row_id_chunk(reader.base, [(reader, row_group)], encoder),
        last_updated_chunk(reader.base, [(reader, row_group)], encoder),
    )
    return LastColumns(reader.base, reader.stored_lineage, chunks)


def row_id_chunk(
    base: ParquetFooter, row_groups: Sequence[tuple[InputReader, SliceRowGroup]], encoder: ColumnEncoder
) -> ColumnChunk:
    """Return the ids of all rows of these row groups, in order."""
    _check_memory(row_groups, encoder)
    arrays = (reader.read_row_ids(row_group.index) for reader, row_group in row_groups)
    return _encoded(arrays, base.leaves[-2], encoder, ())


def last_updated_chunk(
    base: ParquetFooter, row_groups: Sequence[tuple[InputReader, SliceRowGroup]], encoder: ColumnEncoder
) -> ColumnChunk:
    """Return the sequence numbers of the last changes of all rows of these row groups, in order."""
    _check_memory(row_groups, encoder)
    arrays = (reader.read_last_updated(row_group.index) for reader, row_group in row_groups)
    # A row group has few of them.
    return _encoded(arrays, base.leaves[-1], encoder, (LAST_UPDATED.name,))


def _check_memory(row_groups: Sequence[tuple[InputReader, SliceRowGroup]], encoder: ColumnEncoder) -> None:
    rows = sum(row_group.rows for _, row_group in row_groups)
    if rows * BYTES_PER_VALUE > encoder.max_bytes:
        raise ColumnFallbackError(f"the lineage of {rows} rows needs more than {encoder.max_bytes} bytes of memory")


def _encoded(
    arrays: Iterable[pa.Array], leaf: LeafColumn, encoder: ColumnEncoder, dictionaries: Sequence[str]
) -> ColumnChunk:
    field = pa.field(leaf.name, pa.int64(), metadata={FIELD_ID_KEY: str(leaf.field_id).encode()})
    table = pa.Table.from_arrays([pa.chunked_array(list(arrays), pa.int64())], schema=pa.schema([field]))
    (chunk,) = encoder.encode_values(table, [leaf], dictionaries).chunks
    return chunk


def _stores_all(reader: InputReader, index: int) -> bool:
    """Whether the file stores both columns as we would write them, without nulls: then they are copied too."""
    footer, base = reader.footer, reader.base
    assert footer is not None and base is not None
    if reader.slice.first_row_id is None or footer.signature != base.signature:
        return False
    leaves, trees = footer.leaves[-len(LINEAGE) :], footer.column_trees(index)[-len(LINEAGE) :]
    return all(chunk_nulls(meta, leaf) == 0 for leaf, (_, meta) in zip(leaves, trees, strict=True))

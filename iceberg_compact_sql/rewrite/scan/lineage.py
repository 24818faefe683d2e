"""Row lineage of format version 3: the id of each row, and the sequence number of its last change.

Both are columns of a data file only where they differ from what a reader would infer. A rewrite stores both for every
row, so that a row keeps them in its new file.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.last_columns import with_last_columns
from iceberg_compact_sql.parquet.schema import OPTIONAL, PHYSICAL_TYPES
from iceberg_compact_sql.parquet.thrift import BINARY, I32, Struct
from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY

# The reserved field ids and names of the specification.
ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)
LINEAGE = (ROW_ID, LAST_UPDATED)
_LINEAGE_IDS = frozenset(field.field_id for field in LINEAGE)
# How both are stored in Parquet: as in Java's files, without a logical type.
_ELEMENTS = tuple(
    Struct(
        {
            1: (I32, PHYSICAL_TYPES.index("INT64")),
            3: (I32, OPTIONAL),
            4: (BINARY, field.name.encode()),
            9: (I32, field.field_id),
        }
    )
    for field in LINEAGE
)


def with_lineage(schema: Schema) -> Schema:
    """Return a table's schema with the two columns of row lineage last, in the order in which Java writes them."""
    taken = sorted({ROW_ID.name, LAST_UPDATED.name} & {field.name for field in schema.fields})
    if taken:
        raise UnsupportedError(
            f"the table has a column named '{taken[0]}', which format version 3 reserves for row lineage",
            hint="Rename the column with ALTER TABLE.",
        )
    return Schema(
        *schema.fields,
        ROW_ID,
        LAST_UPDATED,
        schema_id=schema.schema_id,
        identifier_field_ids=schema.identifier_field_ids,
    )


def has_lineage(schema: pa.Schema) -> bool:
    """Whether rows of this schema have the columns of row lineage; a column of a user may have their names."""
    return any((field.metadata or {}).get(FIELD_ID_KEY) == str(ROW_ID.field_id).encode() for field in schema)


def lineage_leaves(footer: ParquetFooter) -> int | None:
    """Return how many columns of lineage a file has, which stand last in it; None if they stand elsewhere."""
    stored = [leaf.index for leaf in footer.leaves if leaf.field_id in _LINEAGE_IDS]
    first = len(footer.leaves) - len(stored)
    return len(stored) if stored == list(range(first, len(footer.leaves))) else None


def lineage_base(footer: ParquetFooter, stored: int) -> ParquetFooter:
    """Return the schema of a file with both columns last; its last `stored` columns are such ones already."""
    return with_last_columns(footer, _ELEMENTS, stored)


def fill_lineage(
    batch: pa.RecordBatch,
    positions: npt.NDArray[np.int64],
    *,
    first_row_id: int | None,
    sequence_number: int,
) -> pa.RecordBatch:
    """Return the rows with the ids and sequence numbers that every reader infers for them.

    `positions` are the rows' numbers in their file, deleted rows counted.
    """
    *columns, row_ids, last_updated = batch.columns
    row_ids = filled_row_ids(row_ids, positions, first_row_id)
    last_updated = filled_last_updated(last_updated, batch.num_rows, first_row_id, sequence_number)
    return pa.RecordBatch.from_arrays([*columns, row_ids, last_updated], schema=batch.schema)


def filled_row_ids(stored: pa.Array | None, positions: npt.NDArray[np.int64], first_row_id: int | None) -> pa.Array:
    """Return the ids of rows: the stored ones, else the file's first row id plus the row's number in the file.

    A file without a first row id has no lineage yet, whatever it stores: its rows get theirs from the file that they
    are written to.
    """
    if first_row_id is None:
        return pa.nulls(len(positions), pa.int64())
    if stored is not None and stored.null_count == 0:
        return stored
    inferred = pa.array(positions + first_row_id, pa.int64())
    return inferred if stored is None or stored.null_count == len(stored) else pc.coalesce(stored, inferred)


def filled_last_updated(stored: pa.Array | None, rows: int, first_row_id: int | None, sequence_number: int) -> pa.Array:
    """Return the sequence numbers of the last changes: the stored ones, else the data sequence number of the file."""
    if first_row_id is None:
        return pa.nulls(rows, pa.int64())
    if stored is None:
        return pa.array(np.full(rows, sequence_number, np.int64))
    return pc.fill_null(stored, sequence_number)

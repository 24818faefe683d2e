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
from iceberg_compact_sql.rewrite.scan.arrow_types import FIELD_ID_KEY

# The reserved field ids and names of the specification.
ROW_ID = NestedField(2147483540, "_row_id", LongType(), required=False)
LAST_UPDATED = NestedField(2147483539, "_last_updated_sequence_number", LongType(), required=False)


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


def fill_lineage(
    batch: pa.RecordBatch,
    positions: npt.NDArray[np.int64],
    *,
    first_row_id: int | None,
    sequence_number: int,
) -> pa.RecordBatch:
    """Return the rows with the ids and sequence numbers that every reader infers for them.

    `positions` are the rows' numbers in their file, deleted rows counted. A file without a first row id has no lineage
    yet, whatever it stores: its rows get theirs from the file that they are written to.
    """
    *columns, row_ids, last_updated = batch.columns
    if first_row_id is None:
        row_ids = last_updated = pa.nulls(batch.num_rows, pa.int64())
    else:
        row_ids = pc.coalesce(row_ids, pa.array(positions + first_row_id, pa.int64()))
        last_updated = pc.fill_null(last_updated, sequence_number)
    return pa.RecordBatch.from_arrays([*columns, row_ids, last_updated], schema=batch.schema)

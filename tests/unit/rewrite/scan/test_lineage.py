"""Row lineage of format version 3: stored values come first, then what a reader infers from the file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.rewrite.scan.arrow_types import arrow_schema
from iceberg_compact_sql.rewrite.scan.lineage import LAST_UPDATED, ROW_ID, fill_lineage, has_lineage, with_lineage

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True))
WIDE = with_lineage(SCHEMA)


def batch(row_ids: list[int | None], last_updated: list[int | None]) -> pa.RecordBatch:
    arrays = [
        pa.array(range(len(row_ids)), pa.int64()),
        pa.array(row_ids, pa.int64()),
        pa.array(last_updated, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(WIDE))


def test_the_columns_stand_last_with_their_reserved_ids() -> None:
    assert [(field.field_id, field.name) for field in WIDE.fields] == [
        (1, "id"),
        (2147483540, "_row_id"),
        (2147483539, "_last_updated_sequence_number"),
    ]
    assert has_lineage(arrow_schema(WIDE)) and not has_lineage(arrow_schema(SCHEMA))
    assert not has_lineage(pa.schema([pa.field("_row_id", pa.int64())]))


@pytest.mark.parametrize("name", [ROW_ID.name, LAST_UPDATED.name])
def test_a_column_of_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedError, match=f"a column named '{name}'"):
        with_lineage(Schema(NestedField(7, name, LongType(), required=False)))


def test_stored_values_come_before_inferred_ones() -> None:
    filled = fill_lineage(
        batch([None, 7, None], [3, None, None]), np.array([0, 2, 5]), first_row_id=100, sequence_number=9
    )
    assert filled.column(1).to_pylist() == [100, 7, 105]
    assert filled.column(2).to_pylist() == [3, 9, 9]


def test_a_file_without_a_first_row_id_has_no_lineage_whatever_it_stores() -> None:
    filled = fill_lineage(batch([4, None], [5, 6]), np.array([0, 1]), first_row_id=None, sequence_number=9)
    assert filled.column(1).null_count == filled.column(2).null_count == 2
    assert filled.schema.equals(arrow_schema(WIDE), check_metadata=True)

"""The sum of row digests: equal for equal rows in any order and form, different when a row is lost or changed."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from iceberg_compact_sql.rewrite.clustering.row_digest import rows_digest

ROWS = 70_000
NAN_OTHER_BITS = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]


def _rows(count: int = ROWS) -> pa.RecordBatch:
    numbers = range(count)
    columns: dict[str, pa.Array] = {
        "n": pa.array([None if i % 13 == 0 else i for i in numbers], pa.int32()),
        "x": pa.array([i / 7 for i in numbers]),
        "b": pa.array([None if i % 17 == 0 else i % 2 == 0 for i in numbers]),
        "s": pa.array([None if i % 19 == 0 else "x" * (i % 40) + str(i % 50) for i in numbers]),
        "long": pa.array(["y" * 1500 + str(i) if i % 10_000 == 0 else "" for i in numbers]),
        "l": pa.array([None if i % 5 == 0 else list(range(i % 4)) for i in numbers], pa.list_(pa.int64())),
        "m": pa.array([[(str(i % 3), i)] * (i % 3) for i in numbers], pa.map_(pa.string(), pa.int64())),
        "st": pa.array([None if i % 6 == 0 else {"a": i % 9, "t": str(i % 8)} for i in numbers]),
        "f": pa.array([bytes([i % 256]) * 11 for i in numbers], pa.binary(11)),
        "z": pa.nulls(count),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def test_order_chunks_and_dictionaries_do_not_count() -> None:
    rows = _rows()
    expected = rows_digest(rows)
    shuffled = rows.take(pa.array(np.random.default_rng(1).permutation(ROWS)))
    assert rows_digest(shuffled) == expected
    parts = [rows_digest(shuffled.slice(start, 12_345)) for start in range(0, ROWS, 12_345)]
    assert sum(parts) % 2**64 == expected
    encoded = [c.dictionary_encode() if pa.types.is_string(c.type) else c for c in rows.columns]
    assert rows_digest(pa.RecordBatch.from_arrays(encoded, names=rows.schema.names)) == expected


@pytest.mark.parametrize("column", range(9))
def test_a_changed_value_counts_in_every_column(column: int) -> None:
    rows = _rows(100)
    for position in (50, 53):
        values: list[Any] = rows.column(column).to_pylist()
        values[position] = next(value for value in values if value != values[position])
        changed = rows.set_column(column, rows.schema.field(column), pa.array(values, rows.schema.field(column).type))
        assert rows_digest(changed) != rows_digest(rows)


def test_lost_doubled_and_exchanged_values_count() -> None:
    rows = _rows(1000)
    expected = rows_digest(rows)
    positions = np.arange(1000)
    assert rows_digest(rows.slice(1)) != expected
    assert rows_digest(rows.take(pa.array(np.where(positions == 7, 8, positions)))) != expected
    # The values of each column are the same ones, but in other rows.
    moved = rows.set_column(1, "x", rows.column(1).take(pa.array(positions[::-1].copy())))
    assert rows_digest(moved) != expected


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([0.0], [-0.0]),
        ([math.nan], [NAN_OTHER_BITS]),
        (["ab", "c"], ["a", "bc"]),
        (["a"], ["a\x00"]),
        ([""], [None]),
        ([0], [None]),
        ([[]], [[None]]),
        ([[1, 2]], [[2, 1]]),
        ([[[1], []]], [[[], [1]]]),
        ([{"a": None}], [None]),
    ],
)
def test_values_that_are_nearly_equal(left: list[Any], right: list[Any]) -> None:
    kind = (left if right == [None] or left != [[]] else right)[0]
    data_type = pa.list_(pa.int64()) if left == [[]] else pa.array([kind]).type
    if left == [{"a": None}]:
        data_type = pa.struct([("a", pa.int64())])
    digests = [rows_digest(pa.RecordBatch.from_arrays([pa.array(v, data_type)], names=["v"])) for v in (left, right)]
    assert digests[0] != digests[1]


def test_equal_values_in_other_columns_count() -> None:
    one = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "b"])
    other = pa.RecordBatch.from_arrays([pa.array([2]), pa.array([1])], names=["a", "b"])
    assert rows_digest(one) != rows_digest(other)

"""The digest of rows: the same for the same rows however they are held, another one for any other rows."""

from __future__ import annotations

import datetime as dt
import io
import itertools
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_compact_sql.rewrite.scan.arrays import null_array
from iceberg_compact_sql.rewrite.write import checksum as verify
from iceberg_compact_sql.rewrite.write.checksum import TableDigest
from tests.support.parquet_bytes import parquet_bytes, wide_table

NESTED = pa.schema(
    [
        ("n", pa.int32()),
        ("b", pa.bool_()),
        ("s", pa.string()),
        ("l", pa.list_(pa.string())),
        ("t", pa.struct([("x", pa.int16()), ("y", pa.list_(pa.struct([("z", pa.binary())])))])),
        ("m", pa.map_(pa.string(), pa.list_(pa.int8()))),
    ]
)


def digest(*tables: pa.Table | pa.RecordBatch, schema: pa.Schema | None = None) -> tuple[bytes, ...]:
    taken = TableDigest(tables[0].schema if schema is None else schema)
    for table in tables:
        taken.update(table)
    return taken.digest()


def of(values: Any, kind: pa.DataType | None = None) -> tuple[bytes, ...]:
    return digest(pa.table({"c": pa.array(values, kind)}))


ROWS = st.fixed_dictionaries(
    {
        "n": st.none() | st.integers(-5, 5),
        "b": st.none() | st.booleans(),
        "s": st.none() | st.text("ab", max_size=3),
        "l": st.none() | st.lists(st.none() | st.text("ab", max_size=2), max_size=3),
        "t": st.none()
        | st.fixed_dictionaries(
            {
                "x": st.none() | st.integers(0, 3),
                "y": st.none()
                | st.lists(
                    st.none() | st.fixed_dictionaries({"z": st.none() | st.binary(max_size=2)}),
                    max_size=2,
                ),
            }
        ),
        "m": st.none()
        | st.lists(
            st.tuples(st.text("ab", max_size=2), st.none() | st.lists(st.integers(0, 2), max_size=2)), max_size=2
        ),
    }
)


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.uuid()),
        pa.map_(pa.string(), pa.uuid()),
        pa.struct([("u", pa.uuid())]),
        pa.list_(pa.struct([("u", pa.uuid())])),
    ],
    ids=str,
)
def test_columns_of_nested_uuids_that_are_null_throughout(kind: pa.DataType) -> None:
    nulls = pa.Table.from_arrays([null_array(kind, 3)], names=["c"])
    assert digest(nulls) == digest(nulls.slice(0, 1), nulls.slice(1))
    assert digest(nulls) != digest(nulls.slice(1))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, max_size=12), st.data())
def test_chunks_and_slices_do_not_matter(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    table = pa.Table.from_pylist(rows, schema=NESTED)
    whole = digest(table)
    assert len(whole) == 8
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    edges = [0, *cuts, len(rows)]
    # Slices keep the offsets of the whole; batches made of the rows alone start at zero.
    sliced = [table.slice(start, end - start) for start, end in itertools.pairwise(edges)]
    fresh = [pa.Table.from_pylist(rows[start:end], schema=NESTED) for start, end in itertools.pairwise(edges)]
    assert digest(*sliced, schema=NESTED) == whole
    assert digest(*fresh, schema=NESTED) == whole
    if rows:
        stored = pq.read_table(io.BytesIO(parquet_bytes(table, row_group_size=3, store_schema=True)))
        assert digest(stored, schema=NESTED) == whole


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, max_size=6), st.lists(ROWS, max_size=6))
def test_other_rows_have_another_digest(left: list[dict[str, Any]], right: list[dict[str, Any]]) -> None:
    digests = [digest(pa.Table.from_pylist(rows, schema=NESTED)) for rows in (left, right)]
    assert (digests[0] == digests[1]) == (left == right)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, None]), pa.array([None, 1])),
        (pa.array([1, None]), pa.array([1, 0])),
        (pa.array(["ab", "c"]), pa.array(["a", "bc"])),
        (pa.array(["", None]), pa.array([None, ""])),
        (pa.array([[], None]), pa.array([None, []], pa.list_(pa.null()))),
        (pa.array([[1], [2, 3]]), pa.array([[1, 2], [3]])),
        (pa.array([[None], []], pa.list_(pa.int8())), pa.array([[], [None]], pa.list_(pa.int8()))),
        (pa.array([{"a": None}], pa.struct([("a", pa.int8())])), pa.array([None], pa.struct([("a", pa.int8())]))),
        (pa.array([0.0]), pa.array([-0.0])),
        (pa.array([True, False]), pa.array([False, True])),
        (pa.array([1, 2]), pa.array([2, 1])),
        (pa.array([None], pa.null()), pa.array([None, None], pa.null())),
    ],
)
def test_small_differences_count(one: pa.Array, other: pa.Array) -> None:
    assert digest(pa.table({"c": one})) != digest(pa.table({"c": other}))


def test_nan_payloads_count() -> None:
    nans = np.array([0x7FF8000000000000, 0x7FF8000000000001], dtype=np.uint64).view(np.float64)
    assert struct.pack("<d", nans[0]) != struct.pack("<d", nans[1])
    assert of(nans[:1]) != of(nans[1:])
    assert of(nans[:1]) == of(nans[:1].copy())


def test_what_lies_under_a_null_does_not_count() -> None:
    mask = np.array([False, True, False])
    assert of(pa.array(np.array([1, 7, 3]), mask=mask)) == of(pa.array(np.array([1, 9, 3]), mask=mask))
    hidden = pa.Array.from_buffers(
        pa.list_(pa.int64()),
        3,
        [pa.array(~mask).buffers()[1], pa.py_buffer(np.array([0, 1, 3, 4], np.int32))],
        children=[pa.array([1, 2, 3, 4])],
    )
    assert of(hidden) == of([[1], None, [4]])
    under = pa.StructArray.from_arrays([pa.array([1, 2, 3])], ["a"], mask=pa.array(mask))
    assert of(under) == of([{"a": 1}, None, {"a": 3}])
    texts = pa.Array.from_buffers(
        pa.string(),
        3,
        [pa.array(~mask).buffers()[1], pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"axxb")],
    )
    assert of(texts) == of(["a", None, "b"])


def test_slices_of_nested_arrays_start_where_they_say() -> None:
    maps: list[Any] = [[("a", 1)], [("b", 2), ("c", 3)], [], [("d", 4)]]
    kind = pa.map_(pa.string(), pa.int64())
    assert of(pa.array(maps, kind).slice(1)) == of(maps[1:], kind) != of(maps[:-1], kind)
    lists = [[1], [2, 3], [], [4]]
    assert of(pa.array(lists).slice(1)) == of(lists[1:])
    structs = [{"a": i, "b": str(i)} for i in range(4)]
    assert of(pa.array(structs).slice(1, 2)) == of(structs[1:3])


@pytest.mark.parametrize("size", [3, 1000])
def test_dictionaries_and_wide_offsets_are_plain_values(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_DECODED_ROWS", 64)
    values = [None if i % 7 == 2 else f"value {i % 13}" for i in range(size)]
    plain = of(values)
    encoded = pa.array(values).dictionary_encode()
    assert of(encoded) == plain
    assert of(pa.chunked_array([encoded.slice(0, 2), encoded.slice(2)])) == plain
    assert of(values, pa.large_string()) == plain
    with_null = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2]), pa.array(["a", None, "b"]))
    assert of(with_null) == of(["a", None, None, "b"])
    numbers = pa.array([1, 2, None, 1]).dictionary_encode()
    assert of(numbers) == of([1, 2, None, 1])
    nested = pa.StructArray.from_arrays([encoded], ["a"])
    assert of(nested) == of([{"a": value} for value in values])
    listed = pa.ListArray.from_arrays([0, 1, size], encoded)
    assert of(listed) == of([values[:1], values[1:]])


def test_long_values_are_decoded_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "_DECODED_BYTES", 100)
    values = ["x" * 60, "y", "x" * 60, None] * 5
    assert verify._decoded_rows(pa.array(values).dictionary_encode().dictionary) == 1
    assert of(pa.array(values).dictionary_encode()) == of(values)


def test_every_type_of_a_table_through_parquet() -> None:
    table = wide_table(300)
    table = table.append_column("uuid", pa.array([bytes([i % 256] * 16) for i in range(300)], pa.uuid()))
    table = table.append_column("fixed", pa.array([bytes([i % 256] * 3) for i in range(300)], pa.binary(3)))
    table = table.append_column("time", pa.array([dt.time(i % 24, 1, 2, i) for i in range(300)], pa.time64("us")))
    data = parquet_bytes(table, row_group_size=77, compression="zstd")
    whole = digest(table)
    assert digest(pq.read_table(io.BytesIO(data), read_dictionary=["word"])) == whole
    assert digest(*pq.ParquetFile(io.BytesIO(data)).iter_batches(batch_size=31)) == whole
    swapped = table.take([1, 0, *range(2, 300)])
    assert all(a != b for a, b in zip(digest(swapped)[:1], whole[:1], strict=True))


def test_zones_have_many_names() -> None:
    moments = pa.array([1, None, -5], pa.int64())
    one, other = (pa.table({"c": moments.cast(pa.timestamp("us", tz=zone))}) for zone in ("UTC", "+00:00"))
    assert digest(one) == digest(other, schema=one.schema)


def test_other_shapes_are_refused() -> None:
    taken = TableDigest(pa.schema([("a", pa.int32())]))
    with pytest.raises(TypeError, match="column 'a' is int64, not int32"):
        taken.update(pa.table({"a": pa.array([1], pa.int64())}))
    with pytest.raises(TypeError, match="2 columns were given, 1 are expected"):
        taken.update(pa.table({"a": [1], "b": [2]}))
    with pytest.raises(TypeError, match="cannot be compared"):
        TableDigest(pa.schema([("a", pa.string_view())]))

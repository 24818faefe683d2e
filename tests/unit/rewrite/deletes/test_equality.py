"""Equality deletes against a naive oracle: every key type, several key sets and ages, in one pass and in many."""

from __future__ import annotations

import datetime as dt
import math
import struct
import tempfile
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from iceberg_compact_sql.rewrite.deletes import key_index
from iceberg_compact_sql.rewrite.deletes.equality import key_sets
from iceberg_compact_sql.rewrite.deletes.key_index import KeyIndex
from iceberg_compact_sql.rewrite.deletes.keys import key_column
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from tests.support.rows_in import equality_delete, job_of, read_rows, readers, slice_of, task_of, with_id, write_file

NAN = float("nan")


def comparable(value: Any) -> Any:
    """A value that Python compares as Iceberg's Java readers do: NaN equals NaN, -0.0 differs from 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack(">d", value)
    return value


def optional(field_id: int, name: str, kind: IcebergType, **more: Any) -> NestedField:
    return NestedField(field_id, name, kind, required=False, **more)


KEY_TYPES: list[tuple[str, pa.DataType, pa.DataType, list[Any]]] = [
    ("int in data, long in deletes", pa.int32(), pa.int64(), [0, -1, 2**31 - 1, None]),
    ("long in data, int in deletes", pa.int64(), pa.int32(), [0, -1, 7, None]),
    ("bool", pa.bool_(), pa.bool_(), [True, False, None]),
    ("float and double", pa.float32(), pa.float64(), [0.0, -0.0, NAN, 1.5, float("inf"), None]),
    ("double", pa.float64(), pa.float64(), [0.0, -0.0, NAN, 5e-324, None]),
    (
        "decimals",
        pa.decimal128(5, 2),
        pa.decimal128(30, 2),
        [Decimal("1.23"), Decimal("-999.99"), Decimal("0.00"), None],
    ),
    ("date", pa.date32(), pa.date32(), [dt.date(1960, 1, 1), dt.date(2020, 1, 1), None]),
    ("time", pa.time64("us"), pa.time64("us"), [dt.time(1), dt.time(23, 59), None]),
    ("timestamp", pa.timestamp("ms"), pa.timestamp("us"), [dt.datetime(1960, 1, 1), dt.datetime(2020, 1, 1), None]),
    ("string", pa.string(), pa.large_string(), ["", "a", "aa", "ü", None]),
    ("dictionary", pa.dictionary(pa.int32(), pa.string()), pa.string(), ["", "a", "aa", None]),
    ("binary", pa.binary(), pa.binary(), [b"", b"\0", b"\0\0", b"\xff", None]),
    ("fixed", pa.binary(2), pa.binary(2), [b"ab", b"\0\0", b"ba", None]),
    ("null in the data", pa.null(), pa.string(), [None]),
    ("null in the deletes", pa.string(), pa.null(), ["a", None]),
]


@pytest.mark.parametrize(("name", "stored", "deleted", "values"), KEY_TYPES, ids=[case[0] for case in KEY_TYPES])
def test_every_key_type(
    name: str, stored: pa.DataType, deleted: pa.DataType, values: list[Any], tmp_path: Path
) -> None:
    """Each value deletes exactly itself, alone and as one of two columns."""
    rows = [(i, value) for i, value in enumerate(values * 2)]
    path = write_file(tmp_path, [with_id("id", pa.int32(), 1), with_id("k", stored, 2)], rows, row_group_size=3)
    job = job_of(Schema(optional(1, "id", IntegerType())))
    keys = [None] if pa.types.is_null(deleted) else values
    for key in keys:
        alone = equality_delete(tmp_path, [with_id("key", deleted, 2)], [(key,), (key,)], ids=[2])
        expected = [(i,) for i, value in rows if comparable(value) != comparable(key)]
        assert read_rows(job, task_of([slice_of(path, [0])], [alone])) == expected
        fields = [with_id("key", deleted, 2), with_id("id", pa.int64(), 1)]
        both = equality_delete(tmp_path, fields, [(key, i) for i in range(0, len(rows), 2)], ids=[1, 2])
        expected = [(i,) for i, value in rows if i % 2 or comparable(value) != comparable(key)]
        assert read_rows(job, task_of([slice_of(path, [0])], [both])) == expected


def test_uuid_keys(tmp_path: Path) -> None:
    values = [uuid.UUID(int=1), uuid.UUID(int=2**127 + 1), None]
    stored = pa.array([v.bytes if v else None for v in values], pa.binary(16))
    fields = [with_id("id", pa.int32(), 1), with_id("u", pa.uuid(), 2)]
    table = pa.table([pa.array([0, 1, 2], pa.int32()), pa.uuid().wrap_array(stored)], schema=pa.schema(fields))
    path = write_file(tmp_path, fields, table)
    delete = equality_delete(tmp_path, [with_id("u", pa.binary(16), 2)], [(values[1].bytes,), (None,)], ids=[2])  # type: ignore[union-attr]
    assert read_rows(job_of(Schema(optional(1, "id", IntegerType()))), task_of([slice_of(path, [0])], [delete])) == [
        (0,)
    ]


ID = st.one_of(st.none(), st.integers(0, 4))
TEXT = st.one_of(st.none(), st.sampled_from(["a", "b", "ab"]))
NUMBER = st.one_of(st.none(), st.sampled_from([0.0, -0.0, NAN, 1.0]))
ROW = st.tuples(ID, TEXT, NUMBER)
COLUMNS = [("a", pa.int64(), 1), ("b", pa.string(), 2), ("c", pa.float64(), 3)]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(st.tuples(st.integers(1, 5), st.lists(ROW, min_size=1, max_size=12)), min_size=1, max_size=4),
    deletes=st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from([(1,), (2,), (1, 3)]), st.lists(ROW, max_size=4)),
        min_size=2,
        max_size=7,
    ),
    memory_bytes=st.sampled_from([4, 256, 1024**2]),
)
def test_many_files_and_deletes_of_many_ages(
    files: list[tuple[int, list[tuple[Any, ...]]]],
    deletes: list[tuple[int, tuple[int, ...], list[tuple[Any, ...]]]],
    memory_bytes: int,
) -> None:
    """A key deletes the equal rows of older files only, whatever the number of passes that the memory asks for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = [
            equality_delete(
                folder,
                [with_id(COLUMNS[i - 1][0], COLUMNS[i - 1][1], i) for i in ids],
                [tuple(row[i - 1] for i in ids) for row in rows],
                ids=ids,
                sequence_number=sequence,
            )
            for sequence, ids, rows in deletes
        ]
        slices, expected = [], []
        for sequence, rows in files:
            path = write_file(folder, [with_id(*column) for column in COLUMNS], rows, row_group_size=5)
            applied = [i for i, delete in enumerate(deletes) if delete[0] > sequence]
            slices.append(slice_of(path, applied, sequence_number=sequence))
            expected += [row for row in rows if not _is_deleted(row, [deletes[i] for i in applied])]
        table = Schema(optional(1, "a", LongType()), optional(2, "b", StringType()), optional(3, "c", DoubleType()))
        found = read_rows(job_of(table, memory_bytes=memory_bytes, threads=2), task_of(slices, written))
        assert [tuple(map(comparable, row)) for row in found] == [tuple(map(comparable, row)) for row in expected]


def _is_deleted(row: tuple[Any, ...], deletes: Sequence[tuple[int, tuple[int, ...], list[tuple[Any, ...]]]]) -> bool:
    return any(
        all(comparable(row[i - 1]) == comparable(key[i - 1]) for i in ids) for _, ids, keys in deletes for key in keys
    )


def test_deletes_as_old_as_the_file_are_taken_one_by_one(tmp_path: Path) -> None:
    """If the ages do not explain what the planner gave, its word counts and nothing else is applied."""
    path = write_file(tmp_path, [with_id("a", pa.int64(), 1)], [(1,), (2,), (3,)])
    key = [with_id("a", pa.int64(), 1)]
    aged = [equality_delete(tmp_path, key, [(i,)], ids=[1], sequence_number=i) for i in (1, 2, 3)]
    job = job_of(Schema(optional(1, "a", LongType())))
    assert read_rows(job, task_of([slice_of(path, [0, 2])], aged)) == [(2,)]


def test_files_with_different_pruned_deletes_share_one_index(tmp_path: Path) -> None:
    """A planner that leaves out deletes by their bounds must not make every file's set of deletes another one."""
    key = [with_id("a", pa.int64(), 1)]
    paths = [write_file(tmp_path, key, [(10 * i,), (10 * i + 1,)]) for i in range(6)]
    aged = [equality_delete(tmp_path, key, [(10 * i,)], ids=[1], sequence_number=2 + i) for i in range(6)]
    slices = [slice_of(path, [i], sequence_number=1) for i, path in enumerate(paths)]
    (keys,) = key_sets(slices, dict(enumerate(aged)))
    assert [rank for _, rank in keys.slices] == [0] * 6
    job = job_of(Schema(optional(1, "a", LongType())))
    assert read_rows(job, task_of(slices, aged)) == [(10 * i + 1,) for i in range(6)]
    older = [slice_of(path, [i], sequence_number=1 + i) for i, path in enumerate(paths)]
    (keys,) = key_sets(older, dict(enumerate(aged)))
    assert [rank for _, rank in keys.slices] == [0, 1, 2, 3, 4, 5]


class TestKeysOfAnotherTime:
    """Key columns that the data file knows by another name, lacks, or that the table has dropped since."""

    def test_renamed(self, tmp_path: Path) -> None:
        path = write_file(tmp_path, [with_id("old", pa.int32(), 1)], [(1,), (2,)])
        delete = equality_delete(tmp_path, [with_id("middle", pa.int32(), 1)], [(1,)], ids=[1])
        job = job_of(Schema(optional(1, "new", LongType())))
        assert read_rows(job, task_of([slice_of(path, [0])], [delete])) == [(2,)]

    def test_dropped_from_the_table(self, tmp_path: Path) -> None:
        path = write_file(
            tmp_path, [with_id("a", pa.int32(), 1), with_id("gone", pa.string(), 2)], [(1, "x"), (2, "y")]
        )
        delete = equality_delete(tmp_path, [with_id("gone", pa.string(), 2)], [("x",)], ids=[2])
        job = job_of(Schema(optional(1, "a", IntegerType())))
        assert read_rows(job, task_of([slice_of(path, [0])], [delete])) == [(2,)]

    @pytest.mark.parametrize(("default", "key", "left"), [(None, None, 0), (None, 5, 2), (5, 5, 0), (5, None, 2)])
    def test_added_after_the_data_file(self, default: int | None, key: int | None, left: int, tmp_path: Path) -> None:
        """The data file's rows hold the column's default, or null."""
        path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(1,), (2,)])
        table = Schema(optional(1, "a", IntegerType()), optional(2, "b", IntegerType(), initial_default=default))
        alone = equality_delete(tmp_path, [with_id("b", pa.int32(), 2)], [(key,)], ids=[2])
        assert len(read_rows(job_of(table), task_of([slice_of(path, [0])], [alone]))) == left
        fields = [with_id("b", pa.int32(), 2), with_id("a", pa.int32(), 1)]
        both = equality_delete(tmp_path, fields, [(key, 2)], ids=[1, 2])
        found = read_rows(job_of(table), task_of([slice_of(path, [0])], [both]))
        assert [row[0] for row in found] == ([1] if left == 0 else [1, 2])

    def test_dropped_and_missing_in_the_data_is_null(self, tmp_path: Path) -> None:
        path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(1,)])
        job = job_of(Schema(optional(1, "a", IntegerType())))
        for key, left in ((None, []), ("x", [(1,)])):
            delete = equality_delete(tmp_path, [with_id("gone", pa.string(), 2)], [(key,)], ids=[2])
            assert read_rows(job, task_of([slice_of(path, [0])], [delete])) == left

    def test_identity_partition_column(self, tmp_path: Path) -> None:
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "day"), spec_id=0)
        path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(1,), (2,)])
        job = job_of(Schema(optional(1, "a", IntegerType()), optional(2, "day", DateType())), specs=[spec])
        fields = [with_id("a", pa.int32(), 1), with_id("day", pa.date32(), 2)]
        delete = equality_delete(tmp_path, fields, [(1, dt.date(1970, 1, 2)), (2, dt.date(1970, 1, 3))], ids=[1, 2])
        task = task_of([slice_of(path, [0], partition=(1,))], [delete])
        assert read_rows(job, task) == [(2, dt.date(1970, 1, 2))]

    def test_inside_a_struct(self, tmp_path: Path) -> None:
        """Null where the struct is null."""
        kind = pa.struct([with_id("x", pa.int32(), 3), with_id("y", pa.string(), 4)])
        rows = [(0, {"x": 1, "y": "a"}), (1, {"x": None, "y": "b"}), (2, None), (3, {"x": 2, "y": "c"})]
        path = write_file(tmp_path, [with_id("id", pa.int32(), 1), with_id("s", kind, 2)], rows)
        below = StructType(optional(3, "x", IntegerType()), optional(4, "y", StringType()))
        job = job_of(Schema(optional(1, "id", IntegerType()), optional(2, "s", below)))
        for keys, left in (([1], [1, 2, 3]), ([None], [0, 3]), ([2, None], [0])):
            stored = with_id("s", pa.struct([with_id("x", pa.int64(), 3)]), 2)
            delete = equality_delete(tmp_path, [stored], [({"x": key},) for key in keys], ids=[3])
            assert [row[0] for row in read_rows(job, task_of([slice_of(path, [0])], [delete]))] == left

    def test_by_name_mapping(self, tmp_path: Path) -> None:
        path = write_file(tmp_path, [pa.field("a", pa.int32())], [(1,), (2,)])
        delete = equality_delete(tmp_path, [pa.field("a", pa.int32())], [(1,)], ids=[1])
        job = job_of(Schema(optional(1, "a", IntegerType())), mapping='[{"field-id": 1, "names": ["a"]}]')
        assert read_rows(job, task_of([slice_of(path, [0])], [delete])) == [(2,)]


def test_a_delete_file_without_its_key_is_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(1,)])
    delete = equality_delete(tmp_path, [with_id("a", pa.int32(), 1)], [(1,)], ids=[1, 2])
    with pytest.raises(InputFileError, match="no column with the field id 2") as caught:
        readers(job_of(Schema(optional(1, "a", IntegerType()))), task_of([slice_of(path, [0])], [delete]))
    assert caught.value.path == delete.path


def test_keys_of_another_type_are_refused(tmp_path: Path) -> None:
    path = write_file(tmp_path, [with_id("a", pa.int32(), 1)], [(1,)])
    delete = equality_delete(tmp_path, [with_id("a", pa.string(), 1)], [("1",)], ids=[1])
    with pytest.raises(InputFileError, match="different types"):
        readers(job_of(Schema(optional(1, "a", IntegerType()))), task_of([slice_of(path, [0])], [delete]))


@pytest.mark.parametrize(("kind", "keys"), [(pa.int64(), [150, 1000]), (pa.string(), ["0150", "1000"])])
def test_only_row_groups_that_lose_a_row_are_touched(kind: pa.DataType, keys: list[Any], tmp_path: Path) -> None:
    """An even key lies in the range of the odd ones and hits nothing: statistics do not settle that, reading does."""
    values = list(range(1, 800, 2))
    stored = values if pa.types.is_integer(kind) else [f"{value:04}" for value in values]
    rows = list(zip(range(400), stored, strict=True))
    path = write_file(tmp_path, [with_id("id", pa.int32(), 1), with_id("k", kind, 2)], rows, row_group_size=100)
    hit = 301 if pa.types.is_integer(kind) else "0301"
    delete = equality_delete(tmp_path, [with_id("k", kind, 2)], [(key,) for key in [*keys, hit]], ids=[2])
    (reader,) = readers(job_of(Schema(optional(1, "id", IntegerType()))), task_of([slice_of(path, [0])], [delete]))
    assert [group.has_deletes for group in reader.row_groups] == [False, True, False, False]
    assert dict(reader.deleted_rows) == {0: 0, 1: 1, 2: 0, 3: 0}
    reader.close()


def test_keys_that_share_a_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With every hash the same, keys are found by value alone, and the newest delete of a key decides."""
    monkeypatch.setattr(key_index, "row_hashes", lambda columns: np.zeros(len(columns[0]), np.uint64))
    keys = key_column(pa.array(["a", "b", "a", None, "c", "b"]))
    index = KeyIndex([keys], np.array([0, 2, 3, 1, 0, 1], np.int32))
    rows = key_column(pa.array(["b", "c", None, "x", "a"]))
    assert index.match([rows], 0).tolist() == [True, True, True, False, True]
    assert index.match([rows], 2).tolist() == [True, False, False, False, True]
    assert index.match([rows], 3).tolist() == [False, False, False, False, True]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=30), st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 3))
def test_index_of_bytes_is_a_set(keys: list[bytes], rows: list[bytes], skipped: int) -> None:
    if not keys:
        return
    index = KeyIndex([key_column(pa.array(keys, pa.binary()))], np.zeros(len(keys), np.int32))
    assert len(index) == len(set(keys))
    found = index.match([key_column(pa.array(rows, pa.binary()).slice(skipped))], 0)
    assert found.tolist() == [row in set(keys) for row in rows[skipped:]]


def test_values_longer_than_a_megabyte(tmp_path: Path) -> None:
    """Long values are hashed one by one, among short ones too."""
    long = b"x" * (1024**2 + 1)
    values = [b"a", long, long + b"y", b"", None]
    path = write_file(tmp_path, [with_id("id", pa.int32(), 1), with_id("k", pa.binary(), 2)], list(enumerate(values)))
    delete = equality_delete(tmp_path, [with_id("k", pa.binary(), 2)], [(long,), (b"",)], ids=[2])
    job = job_of(Schema(optional(1, "id", IntegerType()), optional(2, "k", BinaryType())))
    assert [row[0] for row in read_rows(job, task_of([slice_of(path, [0])], [delete]))] == [0, 2, 4]

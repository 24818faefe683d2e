"""Which deletes apply: every rule of the specification against a rule-by-rule oracle, and time that stays linear."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType, StringType

from iceberg_compact_sql.table.delete_index import DeleteIndex, KeyRange, key_range
from iceberg_compact_sql.table.delete_paths import PATH_FIELD_ID
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete, LiveFile
from tests.support.planning import data_file, delete_file

UNPARTITIONED = frozenset({0})


def index_of(deletes: Sequence[LiveDelete], **keys: dict[str, dict[int, KeyRange]]) -> DeleteIndex:
    return DeleteIndex(deletes, unpartitioned_specs=UNPARTITIONED, **keys)


def applies(delete: LiveDelete, file: LiveFile) -> bool:
    """The rules of the specification, section Scan Planning, one by one."""
    same_place = delete.spec_id == file.spec_id and delete.partition == file.partition
    if delete.kind is DeleteKind.EQUALITY:
        return delete.sequence_number > file.sequence_number and (same_place or delete.spec_id in UNPARTITIONED)
    if delete.sequence_number < file.sequence_number:
        return False
    if delete.referenced_path is not None:
        return delete.referenced_path == file.path
    return same_place


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[LiveFile], list[LiveDelete]]:
    places = st.sampled_from([(0, ()), (1, ("a",)), (1, ("b",)), (1, (None,)), (2, ("a",))])
    files = []
    for _ in range(draw(st.integers(1, 8))):
        spec_id, partition = draw(places)
        files.append(data_file(1, spec_id=spec_id, partition=partition, sequence_number=draw(st.integers(1, 5))))
    deletes = []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from([DeleteKind.POSITION, DeleteKind.EQUALITY]))
        spec_id, partition = draw(places)
        target = draw(st.none() | st.sampled_from(files)) if kind is DeleteKind.POSITION else None
        if target is not None:
            spec_id, partition = target.spec_id, target.partition
        deletes.append(
            delete_file(
                kind,
                spec_id=spec_id,
                partition=partition,
                sequence_number=draw(st.integers(1, 5)),
                referenced_path=target.path if target is not None else None,
            )
        )
    return files, deletes


@given(tables())
def test_the_rules(table: tuple[list[LiveFile], list[LiveDelete]]) -> None:
    files, deletes = table
    index = index_of(deletes)
    for file in files:
        found = [delete.path for delete in index.deletes_for(file)]
        assert sorted(found) == sorted(delete.path for delete in deletes if applies(delete, file))


def test_a_vector_replaces_the_position_deletes_of_its_file() -> None:
    file, other = data_file(1), data_file(1)
    vector = delete_file(DeleteKind.VECTOR, referenced_path=file.path, content_offset=4, rows=3)
    older = delete_file(referenced_path=file.path, sequence_number=5, rows=900)
    wide = delete_file(sequence_number=5)
    equality = delete_file(DeleteKind.EQUALITY)
    index = index_of([vector, older, wide, equality])
    assert list(index.deletes_for(file)) == [vector, equality]
    assert index.known_deleted_rows(file) == 3
    assert list(index.deletes_for(other)) == [wide, equality]


@pytest.mark.parametrize("kind", [DeleteKind.POSITION, DeleteKind.VECTOR])
@pytest.mark.parametrize(
    ("path", "other"),
    [
        ("file:/lake/a b", "file:///lake/a b"),
        ("file:/lake/a b", "/lake/a b"),
        ("file:/lake/a b", "file:/lake/a%20b"),
        ("file:/lake/a b", "file:/lake//a b"),
        ("s3://lake/a", "s3a://lake/a"),
        ("hdfs://nn/a", "hdfs:/a"),
    ],
)
def test_another_spelling_of_a_path_is_another_file(kind: DeleteKind, path: str, other: str) -> None:
    exact, respelled = (delete_file(kind, referenced_path=text, rows=7) for text in (path, other))
    index = index_of([exact])
    assert (list(index.deletes_for(data_file(1, path=path))), index.known_deleted_rows(data_file(1, path=path))) == (
        [exact],
        7,
    )
    index = index_of([respelled])
    assert list(index.deletes_for(data_file(1, path=path))) == []
    assert index.known_deleted_rows(data_file(1, path=path)) == 0


def path_bounds(lower: str, upper: str) -> dict[str, tuple[tuple[int, bytes], ...]]:
    return {
        "lower_bounds": ((PATH_FIELD_ID, lower.encode()),),
        "upper_bounds": ((PATH_FIELD_ID, upper.encode()),),
    }


def test_partition_wide_position_deletes_are_pruned_by_their_paths() -> None:
    file = data_file(1, path="file:/lake/m.parquet")
    near = delete_file(**path_bounds("file:/lake/a", "file:/lake/z"))
    far = delete_file(**path_bounds("file:/lake/n", "file:/lake/z"))
    respelled = delete_file(**path_bounds("file:///lake/a", "file:///lake/z"))
    foreign = delete_file(**path_bounds("s3://lake/a", "s3://lake/z"))
    assert list(index_of([near, far, respelled, foreign]).deletes_for(file)) == [near]


def test_bounds_in_two_spellings_are_bounds_of_the_texts() -> None:
    mixed = delete_file(**path_bounds("file:///lake/z", "file:/lake/m.parquet"))
    for path, applies_ in {"file:/lake/m.parquet": True, "file:///lake/zz": True, "file:///lake/a": False}.items():
        assert list(index_of([mixed]).deletes_for(data_file(1, path=path))) == ([mixed] if applies_ else [])


def ranges(kind: IcebergType, lower: bytes | None, upper: bytes | None, nulls: int | None) -> dict[int, KeyRange]:
    return {1: key_range(kind, lower, upper, nulls)}


def number(value: int, width: int = 8) -> bytes:
    return value.to_bytes(width, "little", signed=True)


def test_equality_deletes_are_pruned_only_by_exact_keys() -> None:
    file, delete = data_file(1), delete_file(DeleteKind.EQUALITY)

    def kept(file_keys: dict[int, KeyRange], delete_keys: dict[int, KeyRange]) -> bool:
        index = index_of([delete], file_keys={file.path: file_keys}, delete_keys={delete.path: delete_keys})
        return bool(index.deletes_for(file))

    whole = LongType()
    assert not kept(ranges(whole, number(1), number(9), 0), ranges(whole, number(10), number(20), 0))
    assert not kept(ranges(whole, number(30), number(39), 0), ranges(whole, number(10), number(20), 0))
    assert kept(ranges(whole, number(1), number(10), 0), ranges(whole, number(10), number(20), 0))
    # An int column that became long: four bytes here, eight there.
    assert kept(ranges(whole, number(1, 4), number(15, 4), 0), ranges(whole, number(10), number(20), 0))
    assert not kept(ranges(whole, number(1, 4), number(-9, 4), 0), ranges(whole, number(10), number(20), 0))
    # Nulls equal nulls: pruned only if one side surely has none.
    assert kept(ranges(whole, number(1), number(9), 3), ranges(whole, number(10), number(20), None))
    assert not kept(ranges(whole, number(1), number(9), 3), ranges(whole, number(10), number(20), 0))
    # No statistics, or a type whose bounds prove nothing.
    assert kept({}, ranges(whole, number(10), number(20), 0))
    assert kept(ranges(whole, None, None, 0), ranges(whole, number(10), number(20), 0))
    assert kept(ranges(StringType(), b"a", b"b", 0), ranges(StringType(), b"x", b"y", 0))
    money = DecimalType(9, 2)
    assert not kept(ranges(money, b"\x01", b"\x02", 0), ranges(money, b"\x03", b"\x04", 0))
    assert kept(ranges(money, b"\xff", b"\x02", 0), ranges(money, b"\x00\x01", b"\x04", 0))
    assert kept(ranges(IntegerType(), b"\x01", b"\x02", 0), ranges(IntegerType(), number(5, 4), number(6, 4), 0))


def test_deletes_of_a_partition_are_shared_by_its_files() -> None:
    deletes = [delete_file(DeleteKind.EQUALITY) for _ in range(50)]
    index = index_of(deletes)
    first, second = index.deletes_for(data_file(1)), index.deletes_for(data_file(1))
    assert first is second


def test_time_is_linear_in_files_and_deletes() -> None:
    def seconds(size: int) -> float:
        files = [data_file(1, sequence_number=5) for _ in range(size)]
        deletes = [delete_file(DeleteKind.EQUALITY, sequence_number=1 + n % 9) for n in range(size)]
        deletes += [delete_file(sequence_number=1 + n % 9) for n in range(size)]
        start = time.process_time()
        index = index_of(deletes)
        for file in files:
            index.deletes_for(file)
        return time.process_time() - start

    seconds(500)
    small, large = min(seconds(2000) for _ in range(3)), min(seconds(8000) for _ in range(2))
    # Four times the work; quadratic would be sixteen times.
    assert large < small * 4 * 2.5 + 0.05

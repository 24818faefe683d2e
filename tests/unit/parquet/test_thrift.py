"""The compact protocol: what is read is written back, and nothing that is sent hangs or crashes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iceberg_compact_sql.parquet.thrift import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    MAP,
    SET,
    STRUCT,
    TRUE,
    UUID,
    Struct,
    ThriftError,
    ThriftList,
    ThriftMap,
    read_struct,
    write_struct,
)

LIMITS = {I16: 2**15, I32: 2**31, I64: 2**63}


def values(wire_type: int, depth: int, inside_collection: bool) -> st.SearchStrategy[Any]:
    if wire_type in LIMITS:
        return st.integers(-LIMITS[wire_type], LIMITS[wire_type] - 1)
    if wire_type in (TRUE, FALSE):
        return st.sampled_from([1, 2]) if inside_collection else st.just(wire_type == TRUE)
    if wire_type == BYTE:
        return st.integers(0, 255)
    if wire_type in (DOUBLE, UUID):
        size = 8 if wire_type == DOUBLE else 16
        return st.binary(min_size=size, max_size=size)
    if wire_type == BINARY:
        return st.binary(max_size=200)
    if wire_type in (LIST, SET):
        return wire_types(depth - 1).flatmap(
            lambda kind: st.lists(values(kind, depth - 1, True), max_size=20).map(lambda v: ThriftList(kind, v))
        )
    if wire_type == MAP:
        return st.tuples(wire_types(depth - 1), wire_types(depth - 1)).flatmap(
            lambda kinds: st.lists(
                st.tuples(values(kinds[0], depth - 1, True), values(kinds[1], depth - 1, True)), min_size=1, max_size=4
            ).map(lambda v: ThriftMap(*kinds, v))
        )
    return structs(depth - 1)


def wire_types(depth: int) -> st.SearchStrategy[int]:
    flat = [TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, UUID]
    return st.sampled_from(flat if depth <= 0 else [*flat, LIST, SET, MAP, STRUCT])


def structs(depth: int = 3) -> st.SearchStrategy[Struct]:
    field = wire_types(depth).flatmap(lambda kind: st.tuples(st.just(kind), values(kind, depth, False)))
    return st.dictionaries(st.integers(-(2**15), 2**15 - 1), field, max_size=6).map(Struct)


@given(structs())
def test_every_tree_is_read_as_it_was_written(tree: Struct) -> None:
    raw = write_struct(tree)
    assert read_struct(b"\xff" + raw + b"rest", 1) == (tree, 1 + len(raw))


@given(st.binary(max_size=300))
def test_random_bytes_are_a_tree_or_an_error(raw: bytes) -> None:
    try:
        tree, end = read_struct(raw, 0)
    except ThriftError:
        return
    assert end <= len(raw)
    assert read_struct(write_struct(tree), 0)[0] == tree


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "end inside"),
        (b"\x15", "end inside"),
        (b"\x18\x7fab\x00", "127 bytes are declared, 3 are left"),
        (b"\x19\xf5\xff\xff\xff\xff\x0f\x00", "4294967295 elements are declared"),
        (b"\x1b\xff\xff\xff\xff\x0f\x55\x00", "elements are declared"),
        (b"\x16" + b"\xff" * 9 + b"\x7f\x00", "longer than 64 bits"),
        (b"\x16" + b"\x80" * 1000 + b"\x00\x00", "longer than 64 bits"),
        (b"\x1e\x00", "unknown wire type 14"),
        (b"\x19\x20\x00\x00\x00", "unknown wire type 0"),
        (b"\x1c" * 100_000, "nested deeper"),
        (b"\x19" + b"\x19" * 100_000, "nested deeper"),
        (b"\x15\x02\x05\x02\x04\x00", "occurs twice"),
    ],
)
def test_hostile_bytes_are_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(ThriftError, match=reason):
        read_struct(raw, 0)


def test_changes_leave_the_original_and_keep_the_order() -> None:
    tree = Struct({1: (I32, 5), 9: (BINARY, b"x")})
    changed = tree.replaced({4: (I64, 7), 1: None})
    assert list(tree.fields) == [1, 9]
    assert list(changed.fields) == [4, 9]
    with pytest.raises(ThriftError, match="wire type 8, not 5"):
        tree.get(9, I32)
    with pytest.raises(ThriftError, match="required field 2"):
        tree.need(2, I32)
    assert Struct({1: (TRUE, False)}) != Struct({1: (TRUE, True)})
    assert write_struct(Struct({1: (TRUE, False)})) == write_struct(Struct({1: (FALSE, False)}))

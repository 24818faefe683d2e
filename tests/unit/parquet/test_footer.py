"""Footers: read to the last byte, compared by what matters, and refused when anything is odd."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg_compact_sql.parquet.footer import FIRST_READ_BYTES, FooterError, parse_footer, read_footer
from iceberg_compact_sql.parquet.joiner import RowGroupJoiner
from iceberg_compact_sql.parquet.thrift import (
    BINARY,
    I32,
    I64,
    LIST,
    STRUCT,
    Struct,
    ThriftList,
    read_struct,
    write_struct,
)
from tests.support.parquet_bytes import (
    duck_rows,
    footer_bytes,
    footer_of,
    parquet_bytes,
    wide_table,
    with_id,
)

WIDE = parquet_bytes(wide_table(500), row_group_size=200, write_page_index=True, compression="zstd")
WIDE_FOOTER = footer_bytes(WIDE)


def changed(raw: bytes, change: Callable[[Struct], Struct]) -> bytes:
    return write_struct(change(read_struct(raw, 0)[0]))


def with_first_chunk(tree: Struct, change: Callable[[Struct], Struct]) -> Struct:
    groups = list(tree.elements(4, STRUCT) or ())
    chunks = list(groups[0].elements(1, STRUCT) or ())
    chunks[0] = change(chunks[0])
    groups[0] = groups[0].replaced({1: (LIST, ThriftList(STRUCT, chunks))})
    return tree.replaced({4: (LIST, ThriftList(STRUCT, groups))})


def with_first_metadata(tree: Struct, **fields: Any) -> Struct:
    changes = {int(name[1:]): value for name, value in fields.items()}
    return with_first_chunk(tree, lambda chunk: chunk.replaced({3: (STRUCT, chunk.need(3, STRUCT).replaced(changes))}))


def test_agrees_with_pyarrow() -> None:
    footer = footer_of(WIDE)
    theirs = pq.ParquetFile(io.BytesIO(WIDE)).metadata
    assert footer.rows == theirs.num_rows == 500
    assert [group.rows for group in footer.row_groups] == [200, 200, 100]
    assert [group.first_row for group in footer.row_groups] == [0, 200, 400]
    assert footer.created_by == theirs.created_by
    assert footer.key_value_metadata.keys() == {"ARROW:schema"}
    for group in footer.row_groups:
        chunks = [theirs.row_group(group.index).column(i) for i in range(theirs.num_columns)]
        assert [leaf.name for leaf in footer.leaves] == [chunk.path_in_schema for chunk in chunks]
        assert [leaf.physical for leaf in footer.leaves] == [chunk.physical_type for chunk in chunks]
        assert group.compressed_bytes == sum(chunk.total_compressed_size for chunk in chunks)
        assert group.uncompressed_bytes == sum(chunk.total_uncompressed_size for chunk in chunks)
        assert group.start == min(chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks)
        assert group.codecs == {"ZSTD"}
    assert [group.start for group in footer.row_groups[1:]] == [group.end for group in footer.row_groups[:-1]]
    ids = {leaf.name: leaf.field_id for leaf in footer.leaves}
    assert ids["id"] == 1
    assert ids["spots.list.element.y"] == 12
    assert ids["props.key_value.value"] == 15
    flags = {leaf.name: (leaf.optional, leaf.repeated) for leaf in footer.leaves}
    assert flags["id"] == (False, False)
    assert flags["point.lat"] == (True, False)
    assert flags["props.key_value.key"] == (True, True)


@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"use_dictionary": False}])
def test_pyarrow_footers_are_written_back_byte_for_byte(version: str, options: dict[str, Any]) -> None:
    raw = footer_bytes(parquet_bytes(wide_table(60), version=version, row_group_size=25, **options))
    assert write_struct(parse_footer(raw).tree) == raw


def test_duckdb_footers_keep_their_meaning(tmp_path: Any) -> None:
    path = tmp_path / "duck.parquet"
    duck_rows(f"copy (select range as a, 'v' || range as b from range(5000)) to '{path}' (format parquet)")
    raw = footer_bytes(path.read_bytes())
    footer = parse_footer(raw)
    assert read_struct(write_struct(footer.tree), 0)[0] == footer.tree
    assert footer.rows == 5000


def test_a_long_footer_needs_a_second_read() -> None:
    table = pa.table({f"column_{i}": [i] for i in range(400)})
    data = parquet_bytes(table)
    assert len(footer_bytes(data)) > FIRST_READ_BYTES
    reads: list[tuple[int, int]] = []

    class Counting:
        def size(self) -> int:
            return len(data)

        def read_at(self, length: int, offset: int) -> bytes:
            reads.append((offset, length))
            return data[offset : offset + length]

    assert len(read_footer(Counting()).leaves) == 400
    assert len(reads) == 2
    assert len(read_footer(io.BytesIO(data)).leaves) == 400


def test_dictionaries_that_held_and_that_did_not() -> None:
    table = pa.table(
        {
            "few": [f"v{i % 5}" for i in range(20000)],
            "many": [f"value-{i}-{i * i}" for i in range(20000)],
            "plain": list(range(20000)),
        }
    )
    data = parquet_bytes(table, use_dictionary=["few", "many"], dictionary_pagesize_limit=4096, data_page_size=4096)
    group = footer_of(data).row_groups[0]
    assert group.dictionary_columns == {"few"}

    def old_style(encodings: list[int]) -> bool:
        raw = changed(
            footer_bytes(data), lambda t: with_first_metadata(t, f13=None, f2=(LIST, ThriftList(I32, encodings)))
        )
        found = parse_footer(raw).row_groups[0]
        return "few" in found.dictionary_columns

    assert old_style([2, 3, 4])
    assert not old_style([0, 2, 3])
    assert not old_style([0, 3, 8])


def signature(schema: pa.Schema, **options: Any) -> Any:
    return footer_of(parquet_bytes(schema.empty_table(), **options)).signature


def test_signatures_are_equal_for_interchangeable_files() -> None:
    first = footer_of(parquet_bytes(wide_table(10), compression="snappy")).signature
    second = footer_of(parquet_bytes(wide_table(99, 7), compression="gzip", version="1.0")).signature
    assert first == second
    assert hash(first) == hash(second)
    stripped = changed(
        WIDE_FOOTER,
        lambda tree: tree.replaced(
            {
                2: (
                    LIST,
                    ThriftList(
                        STRUCT,
                        [element.replaced({6: None}) for element in tree.elements(2, STRUCT) or ()],
                    ),
                ),
                5: None,
                6: (BINARY, b"someone else version 7"),
            }
        ),
    )
    assert parse_footer(stripped).signature == first

    def only_converted(element: Struct) -> Struct:
        return element.replaced({10: None}) if element.get(6, I32) is not None else element

    converted = changed(
        WIDE_FOOTER,
        lambda tree: tree.replaced(
            {2: (LIST, ThriftList(STRUCT, [only_converted(element) for element in tree.elements(2, STRUCT) or ()]))}
        ),
    )
    assert parse_footer(converted).signature == first


FIELDS = [
    with_id("a", pa.int64(), 1),
    with_id("a", pa.int64(), 2),
    with_id("a", pa.int64(), 1, nullable=False),
    with_id("b", pa.int64(), 1),
    with_id("a", pa.int32(), 1),
    with_id("a", pa.uint64(), 1),
    pa.field("a", pa.int64()),
    with_id("a", pa.timestamp("us"), 1),
    with_id("a", pa.timestamp("us", tz="UTC"), 1),
    with_id("a", pa.timestamp("ms"), 1),
    with_id("a", pa.timestamp("ns"), 1),
    with_id("a", pa.time64("us"), 1),
    with_id("a", pa.date32(), 1),
    with_id("a", pa.string(), 1),
    with_id("a", pa.binary(), 1),
    with_id("a", pa.binary(16), 1),
    with_id("a", pa.binary(12), 1),
    with_id("a", pa.uuid(), 1),
    with_id("a", pa.decimal128(9, 2), 1),
    with_id("a", pa.decimal128(9, 3), 1),
    with_id("a", pa.decimal128(10, 2), 1),
    with_id("a", pa.list_(with_id("element", pa.int64(), 2)), 1),
    with_id("a", pa.struct([with_id("element", pa.int64(), 2)]), 1),
]


def test_signatures_differ_where_bytes_would_be_read_otherwise() -> None:
    signatures = [signature(pa.schema([field])) for field in FIELDS]
    assert len(set(signatures)) == len(FIELDS)
    assert signatures == [signature(pa.schema([field]), use_dictionary=False) for field in FIELDS]


def test_decimals_stored_otherwise_are_no_match() -> None:
    schema = pa.schema([with_id("a", pa.decimal128(9, 2), 1)])
    assert signature(schema) != signature(schema, store_decimal_as_integer=True)
    without_orders = changed(WIDE_FOOTER, lambda tree: tree.replaced({7: None}))
    assert parse_footer(without_orders).signature != footer_of(WIDE).signature


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.replaced({8: (STRUCT, Struct({1: (STRUCT, Struct({}))}))}), "encrypted"),
        (lambda t: t.replaced({3: (I64, 501)}), "500 rows, the footer says 501"),
        (lambda t: t.replaced({6: (BINARY, b"parquet-mr version 1.6.0")}), "known faults"),
        (lambda t: t.replaced({6: (BINARY, b"parquet-mr")}), "known faults"),
        (lambda t: t.replaced({2: (LIST, ThriftList(STRUCT, []))}), "schema is empty"),
        (lambda t: t.replaced({2: (LIST, ThriftList(STRUCT, t.elements(2, STRUCT)[:-1]))}), "schema ends before"),
        (lambda t: t.replaced({2: (LIST, ThriftList(STRUCT, [*t.elements(2, STRUCT)] * 2))}), "more elements|required"),
        (lambda t: t.replaced({7: (LIST, ThriftList(STRUCT, [Struct({})]))}), "order"),
        (lambda t: with_first_chunk(t, lambda c: c.replaced({1: (BINARY, b"other.parquet")})), "another file"),
        (lambda t: with_first_chunk(t, lambda c: c.replaced({8: (STRUCT, Struct({}))})), "encrypted"),
        (lambda t: with_first_chunk(t, lambda c: c.replaced({3: None})), "required field 3"),
        (lambda t: with_first_chunk(t, lambda c: c.replaced({4: (I32, 7)})), "wire type"),
        (lambda t: with_first_metadata(t, f9=(I64, 10**12)), "outside its range"),
        (lambda t: with_first_metadata(t, f7=(I64, -5)), "invalid byte range"),
        (lambda t: with_first_metadata(t, f7=(I64, 2000)), "overlap"),
        (lambda t: with_first_metadata(t, f5=(I64, 7)), "7 values in 200 rows"),
        (lambda t: with_first_metadata(t, f1=(I32, 6)), "is in the position of"),
        (lambda t: with_first_metadata(t, f3=(LIST, ThriftList(BINARY, [b"no"]))), "is in the position of"),
        (lambda t: with_first_metadata(t, f12=(I32, 1)), "wire type"),
    ],
)
def test_odd_footers_are_refused(change: Callable[[Struct], Struct], reason: str) -> None:
    with pytest.raises(FooterError, match=reason):
        parse_footer(changed(WIDE_FOOTER, change), data_end=len(WIDE) - 8 - len(WIDE_FOOTER))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too few"),
        (b"PAR1" * 3, "footer length"),
        (b"x" * 100, "does not end"),
        (WIDE[:-1], "does not end"),
        (WIDE[:-4] + b"PARE", "encrypted"),
        (WIDE[:-8] + b"\xff\xff\xff\x7fPAR1", "footer length"),
        (WIDE[:-8] + (len(WIDE_FOOTER) - 1).to_bytes(4, "little") + b"PAR1", "left over"),
        (WIDE[:-8] + b"\0" + (len(WIDE_FOOTER) + 1).to_bytes(4, "little") + b"PAR1", "left over"),
        (WIDE[:4] + WIDE[4 + 9000 :], "invalid byte range"),
    ],
)
def test_odd_files_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FooterError, match=reason):
        read_footer(pa.BufferReader(data))


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(WIDE_FOOTER) - 1), st.integers(0, 255), st.sampled_from("sid")),
        min_size=1,
        max_size=4,
    )
)
def test_mutated_footers_end_in_an_error_or_a_file_that_is_safe(edits: list[tuple[int, int, str]]) -> None:
    raw = bytearray(WIDE_FOOTER)
    for place, byte, kind in edits:
        place = min(place, len(raw) - 1)
        if kind == "s":
            raw[place] = byte
        elif kind == "i":
            raw.insert(place, byte)
        else:
            del raw[place]
    data = WIDE[: -8 - len(WIDE_FOOTER)] + bytes(raw) + len(raw).to_bytes(4, "little") + b"PAR1"
    try:
        footer = footer_of(data)
    except FooterError:
        return
    sink = io.BytesIO()
    joiner = RowGroupJoiner(sink, footer, created_by="test version 1")
    copied = joiner.copy(pa.BufferReader(data), footer, range(len(footer.row_groups)))
    joiner.finish()
    # What parses was copied byte for byte and can be parsed again: same row groups, same sizes, same schema.
    again = footer_of(sink.getvalue())
    assert copied.rows == again.rows == footer.rows
    assert again.signature == footer.signature
    kept = [group for group in footer.row_groups if group.rows]
    assert [group.compressed_bytes for group in again.row_groups] == [group.compressed_bytes for group in kept]
    for old, new in zip(kept, again.row_groups, strict=True):
        for (old_start, old_end), (start, end) in zip(old.chunk_ranges, new.chunk_ranges, strict=True):
            assert data[old_start:old_end] == sink.getvalue()[start:end]

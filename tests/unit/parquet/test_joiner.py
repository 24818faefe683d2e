"""Row groups joined from many files, read back by readers that are not ours."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql.events import listening
from iceberg_compact_sql.parquet import ranges
from iceberg_compact_sql.parquet.footer import FooterError, parse_footer
from iceberg_compact_sql.parquet.joiner import CopiedBytesError, RowGroupJoiner, verify_copied
from iceberg_compact_sql.parquet.thrift import I32, I64, LIST, STRUCT, Struct, ThriftList, read_struct, write_struct
from tests.support.parquet_bytes import duck_rows, footer_bytes, footer_of, joined, parquet_bytes, wide_table, with_id

BLOOMS: dict[str, Any] = {"id": {"ndv": 400, "fpp": 0.01}, "word": {"ndv": 400, "fpp": 0.001}}


def check_readers(data: bytes, expected: pa.Table, path: Path) -> None:
    path.write_bytes(data)
    assert pq.read_table(io.BytesIO(data), use_threads=False).to_pylist() == expected.to_pylist()
    rows = expected.num_rows
    counts = "count(*), sum(id), count(word), count(tags), count(point.lat)"
    theirs = duck_rows(f"select {counts} from '{path}'")[0]
    assert theirs[0] == rows
    assert theirs[1] == pc.sum(expected["id"]).as_py()
    assert theirs[2] == rows - expected["word"].null_count
    assert theirs[3] == rows - expected["tags"].null_count
    wanted = sorted({0, 1, rows // 3, rows // 2, rows - 1})
    for number in wanted:
        row = expected.slice(number, 1).to_pylist()[0]
        # Filtered reads go through row-group statistics, page indexes and bloom filters.
        filtered = ds.dataset(path).to_table(filter=ds.field("id") == row["id"])
        assert filtered.to_pylist() == [row]
        assert duck_rows(f"select word from '{path}' where id = {row['id']}") == [(row["word"],)]
        if row["word"] is not None:
            count = pc.sum(pc.equal(expected["word"], row["word"])).as_py()
            found = duck_rows(f"select count(*) from '{path}' where word = ?", row["word"])
            assert found == [(count,)]


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd", "write_page_index": True, "bloom_filter_options": BLOOMS},
        {"compression": "snappy", "data_page_version": "2.0", "write_page_index": True},
        {"compression": "none", "use_dictionary": False, "data_page_size": 300, "write_page_index": True},
        {"compression": "gzip", "version": "1.0", "write_statistics": False},
        {"compression": "lz4", "bloom_filter_options": BLOOMS, "data_page_size": 700},
        {"compression": "brotli", "dictionary_pagesize_limit": 200, "data_page_size": 200, "write_page_index": True},
    ],
    ids=["zstd-bloom-index", "v2-pages", "plain", "gzip-no-stats", "lz4-bloom", "brotli-fallback"],
)
def test_joined_files_read_as_their_inputs(options: dict[str, Any], tmp_path: Path) -> None:
    tables = [wide_table(400), wide_table(1, 400), wide_table(0, 401), wide_table(350, 401)]
    files = [parquet_bytes(table, row_group_size=150, **options) for table in tables]
    data, footer, copied = joined(files)
    assert footer.rows == sum(item.rows for item in copied) == 751
    assert [group.rows for group in footer.row_groups] == [150, 150, 100, 1, 150, 150, 50]
    check_readers(data, pa.concat_tables(tables), tmp_path / "joined.parquet")
    verify_copied(pa.BufferReader(data), copied)
    metadata = pq.ParquetFile(io.BytesIO(data)).metadata
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(0)
        assert chunk.has_offset_index == chunk.has_column_index == options.get("write_page_index", False)
        assert chunk.is_stats_set == options.get("write_statistics", True)
    again, _, _ = joined([data])
    assert pq.read_table(io.BytesIO(again)).equals(pq.read_table(io.BytesIO(data)))


def test_inputs_with_and_without_indexes_codecs_and_writers_mix(tmp_path: Path) -> None:
    tables = [wide_table(300, first) for first in range(0, 1500, 300)]
    options: list[dict[str, Any]] = [
        {"compression": "zstd", "write_page_index": True, "bloom_filter_options": BLOOMS},
        {"compression": "snappy"},
        {"compression": "gzip", "version": "1.0", "bloom_filter_options": BLOOMS},
        {"use_dictionary": False, "data_page_version": "2.0", "write_page_index": True},
        {"write_statistics": False},
    ]
    files = [parquet_bytes(table, row_group_size=110, **option) for table, option in zip(tables, options, strict=True)]
    data, footer, _ = joined(files, key_value_metadata={"iceberg.schema": b"{}"}, created_by="tester version 1.2")
    check_readers(data, pa.concat_tables(tables), tmp_path / "mixed.parquet")
    assert footer.key_value_metadata == {"iceberg.schema": b"{}"}
    assert footer.created_by == "tester version 1.2"
    assert footer.row_groups[0].codecs == {"ZSTD"}
    probe = duck_rows(f"select * from parquet_bloom_probe('{tmp_path / 'mixed.parquet'}', 'word', 'no such word')")
    excluded = {row[1] for row in probe if row[2]}
    assert excluded == {0, 1, 2, 6, 7, 8}


def test_some_row_groups_can_be_chosen_in_any_order() -> None:
    data = parquet_bytes(wide_table(500), row_group_size=100, write_page_index=True)
    footer = footer_of(data)
    sink = io.BytesIO()
    joiner = RowGroupJoiner(sink, footer)
    first = joiner.copy(pa.BufferReader(data), footer, [3])
    second = joiner.copy(io.BytesIO(data), footer, [0, 1])
    nothing = joiner.copy(pa.BufferReader(data), footer, [])
    assert (joiner.row_groups, joiner.rows, joiner.position) == (3, 300, len(sink.getvalue()))
    assert (first.position, second.position, nothing.length) == (4, 4 + first.length, 0)
    joiner.finish()
    ids = pq.read_table(io.BytesIO(sink.getvalue()), columns=["id"])["id"].to_pylist()
    assert ids == [*range(300, 400), *range(200)]
    with pytest.raises(ValueError, match="finished"):
        joiner.copy(pa.BufferReader(data), footer, [0])
    with pytest.raises(ValueError, match="finished"):
        joiner.finish()


def test_a_file_without_rows_is_still_a_file() -> None:
    data, footer, _ = joined([parquet_bytes(wide_table(0))])
    assert footer.row_groups == ()
    assert pq.read_table(io.BytesIO(data)).num_rows == 0


def test_every_kept_field_survives_and_every_offset_moves() -> None:
    source = parquet_bytes(
        wide_table(400),
        row_group_size=200,
        write_page_index=True,
        bloom_filter_options=BLOOMS,
        sorting_columns=[pq.SortingColumn(0)],
        data_page_size=500,
    )
    before = footer_of(source)
    filler = parquet_bytes(wide_table(50))
    data, after, _ = joined([filler, source])
    for index in range(2):
        old_tree, new_tree = before.row_group_tree(index), after.row_group_tree(index + 1)
        assert old_tree.fields[4] == new_tree.fields[4]
        assert new_tree.need(5, I64) == after.row_groups[index + 1].start
        pairs = zip(before.column_trees(index), after.column_trees(index + 1), strict=True)
        for leaf, ((old_chunk, old), (new_chunk, new)) in enumerate(pairs):
            assert old.fields.keys() == new.fields.keys()
            for field_id in old.fields.keys() - {9, 11, 12, 14, 15}:
                assert old.fields[field_id] == new.fields[field_id]
            deprecated = {1: None, 2: None}
            assert old.need(12, STRUCT).replaced(deprecated) == new.need(12, STRUCT).replaced(deprecated)
            shift = after.row_groups[index + 1].chunk_ranges[leaf][0] - before.row_groups[index].chunk_ranges[leaf][0]
            assert shift > 0
            assert new.need(9, I64) - old.need(9, I64) == shift
            old_locations, new_locations = (
                read_struct(raw, chunk.need(4, I64))[0].elements(1, STRUCT) or ()
                for raw, chunk in ((source, old_chunk), (data, new_chunk))
            )
            moved = [location.replaced({1: (I64, location.need(1, I64) + shift)}) for location in old_locations]
            assert moved == list(new_locations)
            old_column, new_column = (
                raw[chunk.need(6, I64) :][: chunk.need(7, I32)]
                for raw, chunk in ((source, old_chunk), (data, new_chunk))
            )
            assert old_column == new_column
            if 14 in old.fields:
                size = new.need(15, I32)
                assert source[old.need(14, I64) :][:size] == data[new.need(14, I64) :][:size]


def rewritten(data: bytes, change: Any) -> bytes:
    """The file with each ColumnChunk of its footer changed."""
    tree = read_struct(footer_bytes(data), 0)[0]
    groups = []
    for group in tree.elements(4, STRUCT) or ():
        chunks = [change(chunk, leaf) for leaf, chunk in enumerate(group.elements(1, STRUCT) or ())]
        groups.append(group.replaced({1: (LIST, ThriftList(STRUCT, chunks))}))
    raw = write_struct(tree.replaced({4: (LIST, ThriftList(STRUCT, groups))}))
    return data[: -8 - len(footer_bytes(data))] + raw + len(raw).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize(
    ("chunk_changes", "metadata_changes"),
    [
        ({4: (I64, 4)}, {}),
        ({4: (I64, 10**9)}, {}),
        ({5: (I32, 3)}, {}),
        ({7: (I32, 2)}, {}),
        ({6: (I64, -1)}, {}),
        ({4: None, 5: None}, {}),
        ({}, {14: (I64, 10**9), 15: None}),
        ({}, {14: (I64, 5), 15: None}),
        ({}, {15: (I32, -4)}),
        ({}, {15: None}),
        ({}, {10: (I64, 0)}),
        ({2: (I64, 0)}, {}),
        ({2: (I64, 10**9)}, {}),
    ],
)
def test_damaged_extras_do_not_damage_the_copy(
    chunk_changes: dict[int, Any], metadata_changes: dict[int, Any], tmp_path: Path
) -> None:
    table = wide_table(300)
    source = parquet_bytes(table, row_group_size=150, write_page_index=True, bloom_filter_options=BLOOMS)

    def change(chunk: Struct, leaf: int) -> Struct:
        if leaf > 1:
            return chunk
        meta = chunk.need(3, STRUCT).replaced(metadata_changes)
        return chunk.replaced({**chunk_changes, 3: (STRUCT, meta)})

    data, _, copied = joined([parquet_bytes(wide_table(7, 1000)), rewritten(source, change)])
    check_readers(data, pa.concat_tables([wide_table(7, 1000), table]), tmp_path / "mended.parquet")
    verify_copied(pa.BufferReader(data), copied)


def test_an_offset_index_of_another_column_is_left_behind(tmp_path: Path) -> None:
    table = wide_table(300)
    source = parquet_bytes(table, write_page_index=True, data_page_size=300)
    places = [{key: chunk.fields[key] for key in (4, 5)} for chunk, _ in footer_of(source).column_trees(0)]
    swapped = rewritten(source, lambda chunk, leaf: chunk.replaced(places[1 - leaf] if leaf < 2 else {}))
    data, footer, _ = joined([swapped])
    indexed = [(4 in chunk.fields, 6 in chunk.fields) for chunk, _ in footer.column_trees(0)]
    assert indexed == [(False, False)] * 2 + [(True, True)] * (len(footer.leaves) - 2)
    check_readers(data, table, tmp_path / "swapped.parquet")


def test_an_unknown_length_of_a_bloom_filter_is_read_from_its_header(tmp_path: Path) -> None:
    source = parquet_bytes(wide_table(200), bloom_filter_options=BLOOMS)
    forgetful = rewritten(
        source, lambda chunk, leaf: chunk.replaced({3: (STRUCT, chunk.need(3, STRUCT).replaced({15: None}))})
    )
    assert joined([forgetful])[0] == joined([source])[0]


def test_dictionaries_of_old_writers() -> None:
    table = wide_table(300)
    source = parquet_bytes(table, row_group_size=150)

    def without_offset(chunk: Struct, leaf: int) -> Struct:
        # As old writers did: the first "data page" is the dictionary page, and no field says so.
        meta = chunk.need(3, STRUCT)
        return chunk.replaced(
            {3: (STRUCT, meta.replaced({9: (I64, meta.get(11, I64) or meta.need(9, I64)), 11: None}))}
        )

    def with_zero(chunk: Struct, leaf: int) -> Struct:
        meta = chunk.need(3, STRUCT)
        return chunk.replaced({3: (STRUCT, meta.replaced({11: meta.fields.get(11, (I64, 0))}))})

    for change in (without_offset, with_zero):
        data, _, _ = joined([parquet_bytes(wide_table(9)), rewritten(source, change)])
        assert pq.read_table(io.BytesIO(data)).to_pylist() == wide_table(9).to_pylist() + table.to_pylist()


def test_gaps_between_chunks_are_copied_or_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wide_table(300)
    source = parquet_bytes(table, compression="none")
    footer = footer_of(source)
    starts = [start for start, _ in footer.row_groups[0].chunk_ranges]
    # Pull the second half of the chunks 200 KB to the back, with garbage between.
    border = starts[6]
    gapped = source[:border] + b"\xee" * 200_000 + source[border:]

    def change(chunk: Struct, leaf: int) -> Struct:
        meta = chunk.need(3, STRUCT)
        if starts[leaf] < border:
            return chunk
        moved = {key: (I64, meta.need(key, I64) + 200_000) for key in (9, 11) if key in meta.fields}
        return chunk.replaced({3: (STRUCT, meta.replaced(moved))})

    for gap_bytes, length in ((64 * 1024, len(source)), (10**6, len(gapped))):
        monkeypatch.setattr(ranges.merged_spans, "__defaults__", (gap_bytes,))
        data, _, _ = joined([rewritten(gapped, change)])
        assert abs(len(data) - length) < 4096
        assert pq.read_table(io.BytesIO(data)).to_pylist() == table.to_pylist()


def test_other_schemas_are_refused_before_a_byte_is_written() -> None:
    data = parquet_bytes(wide_table(10))
    other = parquet_bytes(pa.table({"id": [1]}, schema=pa.schema([with_id("id", pa.int64(), 1)])))
    sink = io.BytesIO()
    joiner = RowGroupJoiner(sink, footer_of(data))
    with pytest.raises(FooterError, match="differ"):
        joiner.copy(pa.BufferReader(other), footer_of(other), [0])
    assert sink.getvalue() == b"PAR1"


def test_a_source_that_shrinks_meanwhile_is_an_error() -> None:
    data = parquet_bytes(wide_table(2000))
    footer = footer_of(data)
    joiner = RowGroupJoiner(io.BytesIO(), footer)
    with pytest.raises(OSError, match="truncated"):
        joiner.copy(pa.BufferReader(data[:1000]), footer, [0])


def test_copies_are_read_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "BLOCK_BYTES", 1000)
    table = wide_table(3000)
    source = parquet_bytes(table, compression="none")
    sizes: list[int] = []

    class Recording(io.BytesIO):
        def write(self, data: Any) -> int:
            sizes.append(len(data))
            return super().write(data)

    footer = footer_of(source)
    sink = Recording()
    joiner = RowGroupJoiner(sink, footer)
    copied = joiner.copy(pa.BufferReader(source), footer, [0])
    assert max(sizes) == 1000
    assert copied.length == footer.row_groups[0].end - footer.row_groups[0].start
    joiner.finish()
    verify_copied(io.BytesIO(sink.getvalue()), [copied])
    assert pq.read_table(io.BytesIO(sink.getvalue())).to_pylist() == table.to_pylist()


def test_flipped_and_missing_bytes_are_noticed() -> None:
    data, _, copied = joined([parquet_bytes(wide_table(500), row_group_size=100)])
    verify_copied(pa.BufferReader(data), copied)
    for place in (4, copied[0].length // 2, 3 + copied[0].length):
        flipped = bytearray(data)
        flipped[place] ^= 0x10
        with pytest.raises(CopiedBytesError, match="read back"):
            verify_copied(pa.BufferReader(bytes(flipped)), copied)
    with pytest.raises(OSError, match="truncated"):
        verify_copied(pa.BufferReader(data[: copied[0].length - 5]), copied)


def test_the_copy_passes_its_point() -> None:
    seen: list[Any] = []
    with listening(lambda point, facts: seen.append((point, dict(facts)))):
        joined([parquet_bytes(wide_table(10))])
    assert seen == [("rewrite.copy", {"row_groups": 1, "run_id": None})]


def test_unknown_fields_of_a_chunk_survive() -> None:
    source = rewritten(
        parquet_bytes(wide_table(20)),
        lambda chunk, leaf: chunk.replaced(
            {99: (STRUCT, Struct({1: (LIST, ThriftList(I32, [leaf]))})), 3: chunk.fields[3]}
        ),
    )
    data, _, _ = joined([source])
    chunks = parse_footer(footer_bytes(data)).column_trees(0)
    assert [chunk.need(99, STRUCT).elements(1, I32) for chunk, _ in chunks] == [[leaf] for leaf in range(len(chunks))]

"""Position deletes and deletion vectors against a naive oracle, in every spelling of paths and every file format."""

from __future__ import annotations

import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from pyroaring import BitMap64

from iceberg_compact_sql.rewrite.deletes.files import read_delete_columns
from iceberg_compact_sql.rewrite.deletes.positions import add_position_deletes
from iceberg_compact_sql.rewrite.deletes.row_bitmap import RowBitmap
from iceberg_compact_sql.rewrite.deletes.vectors import decode_vector
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from iceberg_compact_sql.table.model import DeleteKind, LiveDelete
from tests.support.rows_in import (
    PATH_ID,
    POSITION_ID,
    delete_of,
    job_of,
    numbers,
    position_delete,
    read_rows,
    readers,
    slice_of,
    task_of,
    with_id,
    write_file,
)

JOB = job_of(Schema(NestedField(1, "a", LongType(), required=False)))


def ids(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows]


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    rows=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    deletes=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 45)), max_size=30), min_size=1, max_size=3),
    applies=st.lists(st.booleans(), min_size=9, max_size=9),
)
def test_against_an_oracle(rows: list[int], deletes: list[list[tuple[int, int]]], applies: list[bool]) -> None:
    """Any delete file may name any path; it counts only where it was given. Rows beyond the end are none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = [numbers(folder, count, row_group_size=7) for count in rows] + ["/not/in/the/task"] * 4
        written = [position_delete(folder, [(paths[i], p) for i, p in delete], row_group_size=4) for delete in deletes]
        slices, expected = [], []
        for i, count in enumerate(rows):
            given_ = [n for n in range(len(deletes)) if applies[3 * i + n]]
            gone = {p for n in given_ for at, p in deletes[n] if at == i}
            slices.append(slice_of(paths[i], given_))
            expected += [row for row in range(count) if row not in gone]
        assert ids(read_rows(JOB, task_of(slices, written))) == expected


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "{}", "FILE:{}", "file://localhost{}"])
def test_rows_go_by_the_exact_text_of_the_path_only(spelling: str, tmp_path: Path) -> None:
    """As the specification says and as Java reads: another spelling of the path deletes nothing."""
    path = numbers(tmp_path, 4)
    delete = position_delete(tmp_path, [(spelling.format(path), 1)])
    for own in (path, f"file:{path}", f"file://{path}"):
        expected = [0, 2, 3] if own == spelling.format(path) else [0, 1, 2, 3]
        assert ids(read_rows(JOB, task_of([slice_of(own, [0])], [delete]))) == expected


def test_one_file_under_two_names_has_the_deletes_of_each_name(tmp_path: Path) -> None:
    path = numbers(tmp_path, 4)
    deletes = [position_delete(tmp_path, [(path, 1)]), position_delete(tmp_path, [(f"file:{path}", 2)])]
    slices = [slice_of(path, [0, 1]), slice_of(f"file:{path}", [0, 1])]
    assert ids(read_rows(JOB, task_of(slices, deletes))) == [0, 2, 3, 0, 1, 3]


def test_row_groups_that_name_other_paths_are_not_read(tmp_path: Path) -> None:
    """The middle row group of the delete file is damaged: who does not need it does not notice."""
    first, second, third = sorted(numbers(tmp_path, 5) for _ in range(3))
    rows = [(first, 1), (first, 2), (second, 0), (second, 3), (third, 4), (third, 0)]
    delete = position_delete(tmp_path, rows, row_group_size=2, use_dictionary=False, compression="none")
    raw = bytearray(Path(delete.path).read_bytes())
    at = pq.ParquetFile(delete.path).metadata.row_group(1).column(0).data_page_offset
    raw[at : at + 20] = b"\xff" * 20
    Path(delete.path).write_bytes(raw)
    assert ids(read_rows(JOB, task_of([slice_of(first, [0])], [delete]))) == [0, 3, 4]
    assert ids(read_rows(JOB, task_of([slice_of(third, [0])], [delete]))) == [1, 2, 3]
    with pytest.raises(InputFileError) as caught:
        read_rows(JOB, task_of([slice_of(second, [0])], [delete]))
    assert caught.value.path == delete.path


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"])
def test_paths_in_every_encoding(encoding: str, tmp_path: Path) -> None:
    """Java's version 2 pages hold paths as deltas, which pyarrow does not hand out as dictionaries."""
    path = numbers(tmp_path, 3)
    delete = position_delete(
        tmp_path, [(path, 1)], use_dictionary=False, column_encoding={"file_path": encoding}, data_page_version="2.0"
    )
    assert ids(read_rows(JOB, task_of([slice_of(path, [0])], [delete]))) == [0, 2]


def test_columns_are_found_by_name_where_the_delete_file_has_no_ids(tmp_path: Path) -> None:
    path = numbers(tmp_path, 3)
    fields = [pa.field("file_path", pa.string()), pa.field("pos", pa.int64()), pa.field("row", pa.int32())]
    delete = delete_of(write_file(tmp_path, fields, [(path, 1, None)]), DeleteKind.POSITION)
    assert ids(read_rows(JOB, task_of([slice_of(path, [0])], [delete]))) == [0, 2]


def avro_delete(folder: Path, schema: Schema, rows: list[tuple[Any, ...]], **more: Any) -> LiveDelete:
    path = folder / "delete#1?.avro"
    io = load_file_io({}, "/")
    plain = folder / "delete.avro"
    with AvroOutputFile[Record](io.new_output(str(plain)), schema, "delete") as out:
        out.write_block([Record(*row) for row in rows])
    plain.rename(path)
    return delete_of(str(path), file_format="AVRO", **more)


def orc_delete(folder: Path, rows: list[tuple[str, int]]) -> LiveDelete:
    path = folder / "delete.orc"
    orc.write_table(pa.table({"file_path": [r[0] for r in rows], "pos": [r[1] for r in rows]}), path)
    return delete_of(str(path), DeleteKind.POSITION, file_format="orc")


def test_avro_and_orc(tmp_path: Path) -> None:
    """The Avro file's name would be cut at '#' if it were taken for a URL."""
    path, other = numbers(tmp_path, 6), numbers(tmp_path, 6)
    rows = [(path, 1), (other, 2), (path, 5)]
    schema = Schema(
        NestedField(PATH_ID, "file_path", StringType(), required=True),
        NestedField(POSITION_ID, "pos", LongType(), required=True),
    )
    for delete in (avro_delete(tmp_path, schema, rows, kind=DeleteKind.POSITION), orc_delete(tmp_path, rows)):
        assert ids(read_rows(JOB, task_of([slice_of(path, [0])], [delete]))) == [0, 2, 3, 4]
    keys = Schema(NestedField(1, "a", LongType(), required=False))
    equality = avro_delete(tmp_path, keys, [(3,), (None,)], kind=DeleteKind.EQUALITY, equality_ids=(1,))
    assert ids(read_rows(JOB, task_of([slice_of(path, [0])], [equality]))) == [0, 1, 2, 4, 5]


def test_doubles_of_avro_files_keep_their_bits(tmp_path: Path) -> None:
    keys = Schema(NestedField(1, "a", DoubleType(), required=False))
    delete = avro_delete(tmp_path, keys, [(0.1,), (1e300,)], kind=DeleteKind.EQUALITY, equality_ids=(1,))
    [[column]] = read_delete_columns(load_file_io({}, "/"), delete, [1])
    assert column.to_pylist() == [0.1, 1e300]


def test_a_million_rows_over_a_thousand_paths(tmp_path: Path) -> None:
    """Canary for a trap of pyiceberg, whose own reader needs 25 s for this: a sort, not a comparison a path."""
    paths = [f"/warehouse/db/table/data/{i:05}.parquet" for i in range(1000)]
    codes = np.repeat(np.arange(1000), 1000).astype(np.int32)
    fields = [with_id("file_path", pa.string(), PATH_ID), with_id("pos", pa.int64(), POSITION_ID)]
    column = pa.DictionaryArray.from_arrays(codes, pa.array(paths)).dictionary_decode()
    table = pa.table([column, pa.array(np.tile(np.arange(0, 2000, 2), 1000))], schema=pa.schema(fields))
    delete = delete_of(write_file(tmp_path, fields, table), DeleteKind.POSITION)
    targets = {path: RowBitmap() for path in paths}
    started = time.process_time()
    add_position_deletes(load_file_io({}, "/"), delete, targets)
    assert time.process_time() - started < 5
    assert all(bitmap.count(0, 2000) == 1000 for bitmap in targets.values())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 200_000), max_size=50), max_size=4),
    st.integers(0, 200_000),
    st.integers(1, 70_000),
)
def test_bitmap_is_a_set(added: list[list[int]], first: int, rows: int) -> None:
    bitmap = RowBitmap()
    for positions in added:
        bitmap.add(np.array(positions, np.int64))
    wanted = {p for positions in added for p in positions if first <= p < first + rows}
    mask = bitmap.mask(first, rows)
    assert {first + int(i) for i in np.flatnonzero(mask)} == wanted if mask is not None else not wanted
    assert bitmap.count(first, rows) == len(wanted)
    assert bool(bitmap) == any(added)


class TestVectors:
    """Deletion vectors in a puffin file, between other bytes."""

    POSITIONS = [0, 3, 65_536, 2**33]

    @staticmethod
    def blob(positions: list[int]) -> bytes:
        body = bytes.fromhex("d1d33964") + BitMap64(positions).serialize()
        return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    def vector(self, folder: Path, blob: bytes, *, name: str = "v.puffin", cut: int = 0) -> LiveDelete:
        path = folder / name
        content = b"PFA1" + b"other" + blob
        path.write_bytes(content[: len(content) - cut])
        return delete_of(
            str(path), DeleteKind.VECTOR, file_format="PUFFIN", content_offset=9, content_size_bytes=len(blob)
        )

    def test_rows_go(self, tmp_path: Path) -> None:
        path = numbers(tmp_path, 70_000, row_group_size=30_000)
        task = task_of([slice_of(path, [0])], [self.vector(tmp_path, self.blob(self.POSITIONS))])
        assert sorted(set(range(70_000)) - set(ids(read_rows(JOB, task)))) == [0, 3, 65_536]
        (reader,) = readers(JOB, task)
        assert [group.has_deletes for group in reader.row_groups] == [True, False, True]
        reader.close()

    def test_positions(self) -> None:
        assert decode_vector("x", self.blob(self.POSITIONS)).tolist() == self.POSITIONS
        assert decode_vector("x", self.blob([])).tolist() == []

    @pytest.mark.parametrize("at", [0, 3, 4, 7, 8, 20, -5, -1])
    def test_a_changed_byte_is_noticed(self, at: int) -> None:
        blob = bytearray(self.blob(self.POSITIONS))
        blob[at] ^= 0x01
        with pytest.raises(InputFileError, match="deletion vector"):
            decode_vector("x", bytes(blob))

    def test_damaged_bitmap_with_a_right_checksum(self) -> None:
        body = bytes.fromhex("d1d33964") + b"\x05" + b"\0" * 30
        blob = len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
        with pytest.raises(InputFileError, match="not a bitmap"):
            decode_vector("x", blob)

    def test_cut_off(self, tmp_path: Path) -> None:
        path = numbers(tmp_path, 3)
        delete = self.vector(tmp_path, self.blob([1]), cut=1)
        with pytest.raises(InputFileError, match="cut off"):
            readers(JOB, task_of([slice_of(path, [0])], [delete]))

    def test_two_on_one_file_are_refused(self, tmp_path: Path) -> None:
        path = numbers(tmp_path, 3)
        both = [self.vector(tmp_path, self.blob([i]), name=f"{i}.puffin") for i in (0, 1)]
        with pytest.raises(InputFileError, match="2 deletion vectors apply to it") as caught:
            readers(JOB, task_of([slice_of(path, [0, 1])], both))
        assert caught.value.path == path

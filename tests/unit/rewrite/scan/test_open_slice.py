"""Opening, slicing and refusing input files: each failure names the file and the reason."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO, _to_requested_schema
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, NestedField, StringType, StructType

from iceberg_compact_sql import events
from iceberg_compact_sql.rewrite.live_rows import open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError, open_input
from iceberg_compact_sql.table.model import DeleteKind
from tests.support.rows_in import (
    delete_of,
    job_of,
    numbers,
    position_delete,
    read_rows,
    read_table,
    readers,
    slice_of,
    task_of,
    with_id,
    write_file,
)

JOB = job_of(Schema(NestedField(1, "a", LongType(), required=False)))


def test_slices_of_a_file_hold_each_row_group_once(tmp_path: Path) -> None:
    path = numbers(tmp_path, 100, row_group_size=10)
    size = Path(path).stat().st_size
    deletes = [position_delete(tmp_path, [(path, 0), (path, 55), (path, 99)])]
    for count in (1, 2, 3, 7, 40):
        cuts = [size * i // count for i in range(count)] + [None]
        slices = [slice_of(path, [0], start=cuts[i], end=cuts[i + 1]) for i in range(count)]
        rows = [row[0] for part in slices for row in read_rows(JOB, task_of([part], deletes))]
        assert rows == [i for i in range(100) if i not in (0, 55, 99)]


def test_empty_row_groups_and_files_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "empty.parquet"
    schema = pa.schema([with_id("a", pa.int64(), 1)])
    with pq.ParquetWriter(path, schema) as writer:
        for values in ([], [1], []):
            writer.write_table(pa.table([pa.array(values, pa.int64())], schema=schema))
    nothing = write_file(tmp_path, list(schema), [])
    assert read_rows(JOB, task_of([slice_of(str(path)), slice_of(nothing)])) == [(1,)]


def test_batches_are_bounded(tmp_path: Path) -> None:
    """A row group of many rows comes in batches of at most 131,072 rows, one of wide rows in smaller ones."""
    long = numbers(tmp_path, 300_000)
    wide = write_file(
        tmp_path,
        [with_id("a", pa.int64(), 1), with_id("s", pa.string(), 2)],
        [(i, "x" * 100_000 + str(i)) for i in range(1000)],
        use_dictionary=False,
        compression="zstd",
    )
    job = job_of(Schema(NestedField(1, "a", LongType()), NestedField(2, "s", StringType())))
    for path, least in ((long, 3), (wide, 3)):
        (reader,) = readers(job, task_of([slice_of(path)]))
        with reader:
            batches = list(reader.read(0))
        assert len(batches) >= least
        assert max(batch.nbytes for batch in batches) < 40 * 1024**2


def test_row_groups_may_be_read_from_several_threads(tmp_path: Path) -> None:
    path = numbers(tmp_path, 40_000, row_group_size=1000)
    (reader,) = readers(JOB, task_of([slice_of(path)]))
    with reader, ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda part: [b.column(0).to_pylist() for b in reader.read(part.index)], reader.row_groups)
        )
    assert [i for part in found for batch in part for i in batch] == list(range(40_000))


def test_strings_stay_dictionaries_where_the_file_has_them_so(tmp_path: Path) -> None:
    fields = [with_id("few", pa.string(), 1), with_id("many", pa.string(), 2)]
    rows = [(f"v{i % 3}", f"{i}-{'x' * 50}") for i in range(50_000)]
    path = write_file(tmp_path, fields, rows, dictionary_pagesize_limit=4096)
    job = job_of(Schema(NestedField(1, "few", StringType()), NestedField(2, "many", StringType())))
    task = task_of([slice_of(path)])
    (reader,) = readers(job, task, dictionaries=True)
    with reader:
        batch = next(reader.read(0))
    assert batch.schema.field("few").type == pa.dictionary(pa.int32(), pa.string())
    assert batch.schema.field("many").type == pa.string()
    assert read_rows(job, task, dictionaries=True) == rows


def test_output_schema_carries_ids_at_every_level(tmp_path: Path) -> None:
    kind = ListType(5, StructType(NestedField(6, "x", IntegerType(), required=True)), element_required=False)
    table = read_table(job_of(Schema(NestedField(4, "l", kind))), task_of([]))
    pq.write_table(table, tmp_path / "x.parquet")
    assert "field_id=6" in str(pq.ParquetFile(tmp_path / "x.parquet").schema)
    written = pq.ParquetFile(tmp_path / "x.parquet").schema_arrow.field("l")
    assert written.metadata[b"PARQUET:field_id"] == b"4"
    assert written.type.value_field.metadata[b"PARQUET:field_id"] == b"5"
    assert (
        output_arrow_schema(job_of(Schema(NestedField(4, "l", kind)))).field("l").type == table.schema.field("l").type
    )


@pytest.mark.parametrize(
    "name", ["a#b.parquet", "a?b.parquet", "a%20b c.parquet", "ü=1+2&.parquet", "*.parquet", "_x.parquet"]
)
def test_files_are_opened_by_their_exact_path(name: str, tmp_path: Path) -> None:
    made = Path(numbers(tmp_path, 3))
    path = made.rename(tmp_path / name)
    for spelling in (str(path), f"file:{path}", f"file://{path}"):
        assert read_rows(JOB, task_of([slice_of(spelling)])) == [(0,), (1,), (2,)]


def test_canary_pyiceberg_cuts_paths_at_a_hash() -> None:
    """The trap that `open_input` goes around; if this fails, pyiceberg has mended it."""
    assert PyArrowFileIO.parse_location("s3://bucket/a#x/f") == ("s3", "bucket", "bucket/a")


def test_canary_pyiceberg_empties_null_lists_of_structs() -> None:
    """The trap that our own projection goes around; if this fails, pyiceberg has mended it."""
    kind = ListType(2, StructType(NestedField(3, "x", IntegerType(), required=False)), element_required=False)
    schema = Schema(NestedField(1, "l", kind, required=False))
    batch = pa.RecordBatch.from_pylist([{"l": None}], schema=output_arrow_schema(job_of(schema)))
    assert _to_requested_schema(schema, schema, batch).to_pylist() == [{"l": []}]


class TestDamage:
    """Corrupt, cut, missing and foreign files."""

    def reason(self, path: str) -> str:
        with pytest.raises(InputFileError) as caught:
            read_rows(JOB, task_of([slice_of(path)]))
        assert caught.value.path == path
        assert str(caught.value) == f"cannot read {path}: {caught.value.reason}"
        return caught.value.reason

    def test_missing(self, tmp_path: Path) -> None:
        assert self.reason(str(tmp_path / "none.parquet")) == "the file does not exist"

    def test_missing_delete_file(self, tmp_path: Path) -> None:
        gone = delete_of(str(tmp_path / "gone.parquet"), DeleteKind.POSITION)
        with pytest.raises(InputFileError) as caught:
            readers(JOB, task_of([slice_of(numbers(tmp_path, 1), [0])], [gone]))
        assert caught.value.path == gone.path

    @pytest.mark.parametrize("kept", [0, 4, 11, 40, -1, -8])
    def test_truncated(self, kept: int, tmp_path: Path) -> None:
        path = Path(numbers(tmp_path, 1000))
        raw = path.read_bytes()
        path.write_bytes(raw[:kept])
        assert self.reason(str(path))

    def test_a_folder(self, tmp_path: Path) -> None:
        assert self.reason(str(tmp_path))

    def test_not_parquet(self, tmp_path: Path) -> None:
        path = tmp_path / "x.parquet"
        path.write_bytes(b"hello, this is no Parquet file at all")
        assert "Parquet" in self.reason(str(path))

    def test_encrypted_footer(self, tmp_path: Path) -> None:
        path = Path(numbers(tmp_path, 10))
        raw = path.read_bytes()
        path.write_bytes(b"PARE" + raw[4:-4] + b"PARE")
        assert self.reason(str(path)) == "the file is encrypted, which is not supported"

    def test_damaged_pages(self, tmp_path: Path) -> None:
        """Bytes all over the page are changed in turn: with checksums in the file, never a wrong row in silence."""
        path = Path(numbers(tmp_path, 500, compression="zstd", use_dictionary=False, write_page_checksum=True))
        raw = path.read_bytes()
        end = pq.ParquetFile(path).metadata.row_group(0).total_byte_size
        failed = 0
        for at in range(4, min(end, len(raw) - 300), 7):
            damaged = bytearray(raw)
            damaged[at] ^= 0xFF
            path.write_bytes(damaged)
            try:
                rows = read_rows(JOB, task_of([slice_of(str(path))]))
            except InputFileError as error:
                failed += 1
                assert error.path == str(path)
            else:
                assert rows == [(i,) for i in range(500)]
        assert failed > 10

    def test_the_error_travels(self) -> None:
        error = pickle.loads(pickle.dumps(InputFileError("s3://b/x", "why")))
        assert (error.path, error.reason, str(error)) == ("s3://b/x", "why", "cannot read s3://b/x: why")

    def test_a_later_input_fails_when_its_turn_comes(self, tmp_path: Path) -> None:
        good, bad = numbers(tmp_path, 1), str(tmp_path / "bad.parquet")
        opened = open_inputs(JOB, task_of([slice_of(good), slice_of(bad)]), load_file_io({}, "/"))
        next(opened).close()
        with pytest.raises(InputFileError, match="does not exist"):
            next(opened)


def test_named_points(tmp_path: Path) -> None:
    path = numbers(tmp_path, 3)
    seen: list[str] = []
    with events.listening(lambda point, facts: seen.append(point)):
        read_rows(JOB, task_of([slice_of(path, [0])], [position_delete(tmp_path, [(path, 1)])]))
    assert seen == ["rewrite.deletes", "rewrite.open", "rewrite.read"]


def test_open_input_closes_nothing_of_others(tmp_path: Path) -> None:
    """Closing a reader closes its file."""
    (reader,) = readers(JOB, task_of([slice_of(numbers(tmp_path, 3))]))
    file = reader.file
    assert not file.closed
    reader.close()
    assert file.closed
    with open_input(load_file_io({}, "/"), reader.slice.path, reader.slice.size_bytes) as again:
        assert again.read(4) == b"PAR1"

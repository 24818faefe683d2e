"""The end of a Parquet file: one read for its footer, whatever its length; parsers judge it as the whole file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iceberg_compact_sql.parquet.footer import FIRST_READ_BYTES, read_footer_tree
from iceberg_compact_sql.rewrite.scan.file_end import FileEnd


class CountedFile(io.BytesIO):
    """A file that counts the reads of its content."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        return super().read(size)


def content_of(columns: int) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({f"column_{n}": [1, 2, 3] for n in range(columns)}), sink)
    return sink.getvalue()


@pytest.mark.parametrize(("columns", "reads"), [(1, 1), (100, 1), (2_000, 2)])
def test_the_footer_is_read_once(columns: int, reads: int) -> None:
    content = content_of(columns)
    counted = CountedFile(content)
    end = FileEnd.of(pa.PythonFile(counted, mode="r"))
    assert counted.reads == reads
    assert (int.from_bytes(content[-8:-4], "little") > FIRST_READ_BYTES) == (reads == 2)
    assert pq.ParquetFile(end.parquet_source()).metadata.equals(pq.read_metadata(io.BytesIO(content)))
    assert read_footer_tree(end, end.size_bytes) == read_footer_tree(pa.BufferReader(content))
    assert counted.reads == reads
    assert end.read_at(4, 0) == b"PAR1" and end.read_at(8, len(content) - 8) == content[-8:]


@pytest.mark.parametrize("damage", [b"\xff\xff\xff\x7fPAR1", b"\x00\x00\x00\x00PAR1", b"\x10\x00\x00\x00PARX"])
def test_a_wrong_length_or_magic_is_judged_by_the_parsers(tmp_path: Path, damage: bytes) -> None:
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content_of(3)[:-8] + damage)

    def refusal(source: Any) -> str:
        with pytest.raises((pa.ArrowInvalid, OSError)) as caught:
            pq.ParquetFile(source)
        return type(caught.value).__name__

    with pa.OSFile(str(path)) as file:
        assert refusal(FileEnd.of(file).parquet_source()) == refusal(file)

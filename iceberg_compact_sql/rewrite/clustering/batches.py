"""Rows of several batches as one batch, as bytes, and held by range: in memory, and in files when they are too many."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

import pyarrow as pa

# A dictionary with more entries than this share of the rows costs more than it saves.
_MAX_DISTINCT_SHARE = 0.5

_BLOB_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def one_batch(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return all rows as one batch of the schema; small dictionaries of strings stay dictionaries."""
    columns = [
        _one_column([batch.column(index) for batch in batches], field.type) for index, field in enumerate(schema)
    ]
    return _with_fields(columns, schema)


def to_blob(batch: pa.RecordBatch) -> pa.Buffer:
    """Return rows as compressed bytes. A slice does not carry a dictionary that is large beside its rows."""
    columns = [
        column.cast(column.type.value_type) if _is_large_dictionary(column, batch.num_rows) else column
        for column in batch.columns
    ]
    rows = _with_fields(columns, batch.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=_BLOB_OPTIONS) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def from_blob(blob: pa.Buffer | bytes) -> list[pa.RecordBatch]:
    """Return the rows that were passed to `to_blob`."""
    with pa.ipc.open_stream(pa.py_buffer(blob)) as reader:
        return list(reader)


class RangeStore:
    """Rows by range. When they take more than `limit_bytes` of memory, all of them move to files on local disk.

    Thread-safe. The files are removed when the block ends.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._held_bytes = 0
        self._held: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._spilled: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._folder: Path | None = None
        self._lock = threading.Lock()
        self.spilled_bytes = 0

    def add(self, parts: Iterable[tuple[int, pa.RecordBatch]], size_bytes: int) -> None:
        """Take rows of several ranges that share `size_bytes` of memory."""
        with self._lock:
            for number, rows in parts:
                self._held[number].append(rows)
            self._held_bytes += size_bytes
            if self._held_bytes > self._limit_bytes:
                self._spill()

    def take(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of a range, in any order; the store forgets them."""
        with self._lock:
            batches = self._held.pop(number, [])
            blobs = self._spilled.pop(number, [])
            if blobs:
                path = self._path(number)
                with path.open("rb") as file:
                    for start, length in blobs:
                        file.seek(start)
                        batches.extend(from_blob(file.read(length)))
                path.unlink()
        return batches

    def _spill(self) -> None:
        for number, batches in self._held.items():
            with self._path(number).open("ab") as file:
                for rows in batches:
                    blob = to_blob(rows)
                    self._spilled[number].append((file.tell(), blob.size))
                    file.write(blob)
                    self.spilled_bytes += blob.size
        self._held.clear()
        self._held_bytes = 0

    def _path(self, number: int) -> Path:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="iceberg-compact-sort-"))
        return self._folder / str(number)

    def __enter__(self) -> RangeStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def pieces(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most so many rows."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _one_column(chunks: Sequence[pa.Array], plain: pa.DataType) -> pa.Array:
    kinds = {chunk.type for chunk in chunks}
    if any(pa.types.is_dictionary(kind) for kind in kinds):
        rows = sum(map(len, chunks))
        entries = sum({id(c): len(c.dictionary) for c in chunks if pa.types.is_dictionary(c.type)}.values())
        if len(kinds) == 1 and entries <= _MAX_DISTINCT_SHARE * rows:
            return pa.chunked_array(chunks).unify_dictionaries().combine_chunks()
        chunks = [chunk.cast(plain) if pa.types.is_dictionary(chunk.type) else chunk for chunk in chunks]
    return chunks[0] if len(chunks) == 1 else pa.chunked_array(chunks, plain).combine_chunks()


def _is_large_dictionary(column: pa.Array, rows: int) -> bool:
    return pa.types.is_dictionary(column.type) and len(column.dictionary) > _MAX_DISTINCT_SHARE * rows


def _with_fields(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    fields = [field.with_type(column.type) for field, column in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields))

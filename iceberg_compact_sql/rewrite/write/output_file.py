"""Output files: row groups in, finished and proved data files out, rolled on the bytes written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from iceberg_compact_sql import events
from iceberg_compact_sql.parquet.chunk import ColumnChunk
from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.joiner import CopiedRange, RowGroupJoiner, verify_copied
from iceberg_compact_sql.parquet.last_columns import LastColumns
from iceberg_compact_sql.parquet.thrift import I64
from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.rewrite.write.metrics import file_metrics
from iceberg_compact_sql.rewrite.write.nan_counts import NanCounts, StoredRowGroup
from iceberg_compact_sql.rewrite.write.row_groups import EncodedRowGroup, ProofError
from iceberg_compact_sql.storage.protocol import ByteSink, discard, is_proved
from iceberg_compact_sql.storage.stores import stores_of


@dataclass(slots=True)
class TaskFiles:
    """What all files of a task share, and every path that the task opened for writing."""

    io: FileIO
    schema: Schema
    properties: Mapping[str, str]
    spec_id: int
    checksum: bool
    new_path: Callable[[tuple[Any, ...]], str]
    created: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ChunkedRowGroup:
    """A row group made chunk by chunk; `base` has the schema of its file, `nan_counts` those that are known."""

    rows: int
    base: ParquetFooter
    chunks: tuple[ColumnChunk, ...]
    nan_counts: Mapping[int, int]

    @property
    def size_bytes(self) -> int:
        return sum(chunk.metadata.need(7, I64) for chunk in self.chunks)


class OpenOutput:
    """A file being written: row groups are appended unchanged, the footer is written last."""

    def __init__(self, files: TaskFiles, partition: tuple[Any, ...], base: ParquetFooter) -> None:
        self._files = files
        self._partition = partition
        self.path = files.new_path(partition)
        # Record the path before the first byte, so that the clean-up knows it.
        files.created.append(self.path)
        events.reach("rewrite.write", path=self.path)
        self._sink: ByteSink = stores_of(files.io).open_output(self.path)
        self._closed = False
        try:
            self._joiner = RowGroupJoiner(self._sink, base)
        except BaseException:
            self.abandon()
            raise
        self._ranges: list[CopiedRange] = []
        self._nan_counts = NanCounts()

    @property
    def position(self) -> int:
        return self._joiner.position

    def append(self, source: Any, row_group: StoredRowGroup, last: LastColumns | None) -> int:
        """Copy a row group of another file. Return the bytes copied."""
        self._nan_counts.add_copied(row_group)
        copied = self._joiner.copy(source, row_group.footer, [row_group.index], last)
        self._ranges.append(copied)
        return copied.length

    def append_encoded(self, row_group: EncodedRowGroup) -> None:
        self._nan_counts.add(row_group.nan_counts)
        self._ranges.append(self._joiner.copy(pa.BufferReader(row_group.buffer), row_group.footer, [0]))

    def append_chunks(self, row_group: ChunkedRowGroup) -> None:
        self._nan_counts.add(row_group.nan_counts)
        self._ranges.append(self._joiner.append(row_group.rows, row_group.chunks))

    def close(self) -> OutputFile:
        """Finish the file, and prove that it is stored as it was written.

        The store's own checksum proves every byte. Without one the size and, with checksums, the row groups are read
        back from storage.
        """
        rows = self._joiner.rows
        try:
            footer = self._joiner.finish()
        except BaseException:
            self.abandon()
            raise
        size_bytes = self._joiner.position
        events.reach("rewrite.close", path=self.path)
        self._closed = True
        self._sink.close()
        if footer.rows != rows:
            raise ProofError(f"{rows} rows were written to {self.path}, its footer has {footer.rows}")
        if self._files.checksum:
            events.reach("rewrite.verify_file", path=self.path)
        if not is_proved(self._sink):
            self._read_back(size_bytes)
        metrics = file_metrics(footer, self._files.schema, self._files.properties, self._nan_counts.totals())
        return OutputFile(
            path=self.path,
            size_bytes=size_bytes,
            rows=rows,
            spec_id=self._files.spec_id,
            partition=self._partition,
            column_sizes=metrics.column_sizes,
            value_counts=metrics.value_counts,
            null_value_counts=metrics.null_value_counts,
            nan_value_counts=metrics.nan_value_counts,
            lower_bounds=metrics.lower_bounds,
            upper_bounds=metrics.upper_bounds,
            split_offsets=tuple(metrics.split_offsets),
        )

    def _read_back(self, size_bytes: int) -> None:
        """Check the file on a store that gave no checksum of what it stored."""
        stores = stores_of(self._files.io)
        stored = stores.stat(self.path)
        stored_bytes = stored.size_bytes if stored else None
        if stored_bytes != size_bytes:
            raise ProofError(f"{size_bytes} bytes were written to {self.path}, storage has {stored_bytes}")
        if self._files.checksum:
            with stores.open_input(self.path) as file:
                verify_copied(file, self._ranges)

    def abandon(self) -> None:
        """End the stream; the clean-up deletes the file itself, if the store has one."""
        if not self._closed:
            self._closed = True
            try:
                discard(self._sink)
            except (OSError, pa.ArrowException):
                # A full disk fails the close too; keep the first error.
                return


class RollingOutput:
    """The files of one partition and one Parquet schema; `share_bytes` gives the size of the next file."""

    def __init__(
        self,
        files: TaskFiles,
        partition: tuple[Any, ...],
        *,
        share_bytes: Callable[[], float],
        max_file_bytes: int,
    ) -> None:
        self._files = files
        self._partition = partition
        self._share_bytes = share_bytes
        self._max_file_bytes = max_file_bytes
        self._open: OpenOutput | None = None
        self._share = 0.0
        self.finished: list[OutputFile] = []

    @property
    def is_open(self) -> bool:
        return self._open is not None

    def append(self, source: Any, row_group: StoredRowGroup, last: LastColumns | None) -> int:
        footer = row_group.footer
        base, size_bytes = footer, footer.row_groups[row_group.index].compressed_bytes
        if last is not None:
            base, size_bytes = last.base, size_bytes + last.size_bytes
        return self._file_for(size_bytes, base).append(source, row_group, last)

    def append_encoded(self, row_group: EncodedRowGroup) -> None:
        self._file_for(row_group.buffer.size, row_group.footer).append_encoded(row_group)

    def append_chunks(self, row_group: ChunkedRowGroup) -> None:
        self._file_for(row_group.size_bytes, row_group.base).append_chunks(row_group)

    def close(self) -> None:
        """Finish the current file, if there is one; a later row group starts another."""
        if self._open is not None:
            output, self._open = self._open, None
            self.finished.append(output.close())

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def _file_for(self, added_bytes: int, base: ParquetFooter) -> OpenOutput:
        """Return the file for the next row group: the current or a new one, whichever is nearer to its share."""
        if self._open is not None:
            position = self._open.position
            if position + added_bytes / 2 > self._share or position + added_bytes > self._max_file_bytes:
                self.close()
        if self._open is None:
            self._share = self._share_bytes()
            self._open = OpenOutput(self._files, self._partition, base)
        return self._open

"""Output files: row groups in, finished and proved data files out, rolled on the bytes written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema

from iceberg_compact_sql import events
from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.joiner import CopiedRange, RowGroupJoiner, verify_copied
from iceberg_compact_sql.rewrite.task import OutputFile
from iceberg_compact_sql.rewrite.write.metrics import file_metrics
from iceberg_compact_sql.rewrite.write.row_groups import EncodedPiece, ProofError
from iceberg_compact_sql.storage.exact_files import ByteSink, open_sink, open_stored, stored_bytes

CREATED_BY = "iceberg-compact-sql version 0.1.0"


@dataclass(slots=True)
class TaskFiles:
    """What a task's files have in common, and the list of every path that it ever opened for writing."""

    io: FileIO
    schema: Schema
    properties: Mapping[str, str]
    spec_id: int
    checksum: bool
    new_path: Callable[[tuple[Any, ...]], str]
    created: list[str] = field(default_factory=list)


class OpenOutput:
    """One file being written: row groups are appended as they are, the footer comes last."""

    def __init__(self, files: TaskFiles, partition: tuple[Any, ...], base: ParquetFooter) -> None:
        self._files = files
        self._partition = partition
        self.path = files.new_path(partition)
        # Before the first byte: whatever happens from here on, the path is known to the clean-up.
        files.created.append(self.path)
        events.reach("rewrite.write", path=self.path)
        self._sink: ByteSink = open_sink(files.io, self.path)
        self._closed = False
        try:
            self._joiner = RowGroupJoiner(self._sink, base, created_by=CREATED_BY)
        except BaseException:
            self.abandon()
            raise
        self._ranges: list[CopiedRange] = []
        self._nan_counts: Counter[int] | None = Counter()

    @property
    def position(self) -> int:
        return self._joiner.position

    def append(self, source: Any, footer: ParquetFooter, index: int) -> int:
        """Copy a row group of another file; the file's NaN counts are then unknown. Returns bytes copied."""
        self._nan_counts = None
        copied = self._joiner.copy(source, footer, [index])
        self._ranges.append(copied)
        return copied.length

    def append_piece(self, piece: EncodedPiece) -> None:
        if self._nan_counts is not None:
            self._nan_counts.update(piece.nan_counts)
        self._ranges.append(self._joiner.copy(pa.BufferReader(piece.buffer), piece.footer, [0]))

    def close(self) -> OutputFile:
        """Finish the file; its rows, size and, with checksums, every byte of its row groups are checked on storage."""
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
            raise ProofError(f"{rows} rows went into {self.path}, its footer says {footer.rows}")
        stored = stored_bytes(self._files.io, self.path)
        if stored != size_bytes:
            raise ProofError(f"{size_bytes} bytes were written to {self.path}, storage has {stored}")
        if self._files.checksum:
            events.reach("rewrite.verify", path=self.path)
            with open_stored(self._files.io, self.path) as file:
                verify_copied(file, self._ranges)
        nan_counts = dict(self._nan_counts) if self._nan_counts is not None else None
        metrics = file_metrics(footer, self._files.schema, self._files.properties, nan_counts)
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

    def abandon(self) -> None:
        """Let go of the stream; the file itself is taken away by whoever cleans up."""
        if not self._closed:
            self._closed = True
            try:
                self._sink.close()
            except (OSError, pa.ArrowException):
                # A full disk fails the close too; the first error is the one to tell.
                return


class RollingOutput:
    """The files of one partition and one Parquet schema; `share_bytes` says how large the next one should get."""

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

    def append(self, source: Any, footer: ParquetFooter, index: int) -> int:
        return self._room_for(footer.row_groups[index].compressed_bytes, footer).append(source, footer, index)

    def append_piece(self, piece: EncodedPiece) -> None:
        self._room_for(piece.buffer.size, piece.footer).append_piece(piece)

    def close(self) -> None:
        """Finish the current file, if there is one; a later row group starts another."""
        if self._open is not None:
            output, self._open = self._open, None
            self.finished.append(output.close())

    def abandon(self) -> None:
        if self._open is not None:
            self._open.abandon()
            self._open = None

    def _room_for(self, added_bytes: int, base: ParquetFooter) -> OpenOutput:
        """The file that the next row group goes to: whichever way leaves the files nearer to their share."""
        if self._open is not None:
            position = self._open.position
            if position + added_bytes / 2 > self._share or position + added_bytes > self._max_file_bytes:
                self.close()
        if self._open is None:
            self._share = self._share_bytes()
            self._open = OpenOutput(self._files, self._partition, base)
        return self._open

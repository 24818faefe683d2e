"""Writes rows that come in order to files of even size; the row groups are encoded in threads."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.slicing import output_shares
from iceberg_compact_sql.rewrite.task import OutputFile, RewriteJob
from iceberg_compact_sql.rewrite.write.output_file import OpenOutput, TaskFiles
from iceberg_compact_sql.rewrite.write.row_groups import EncodedRowGroup, RowGroupEncoder
from iceberg_compact_sql.table.partition_keys import exact_partition_key

_MEASURED_ROWS = 65_536
# Memory of rows, their encoded form and the buffers of the encoder, for each byte of rows.
_MEMORY_PER_ROW_BYTE = 2.4


@dataclass(slots=True)
class _PlannedFile:
    """The file that is being filled: rows that are still missing, and rows of each row group."""

    rows_left: int
    row_group_rows: int


@dataclass(frozen=True, slots=True)
class _InFlight:
    encoded: Future[EncodedRowGroup]
    partition: tuple[Any, ...]
    ends_file: bool


class SortedFiles:
    """Cuts a stream of rows into files and row groups.

    `rows_of` gives the number of rows of a partition that will come: its files then have equal rows. The number of
    files follows from the bytes of encoded rows, measured on the first ones, unless `planned_files` gives it and they
    are below the largest size; a file above it is ended early. `sort_order_id` is given to every file.
    """

    def __init__(
        self,
        job: RewriteJob,
        files: TaskFiles,
        encoder: RowGroupEncoder,
        *,
        row_group_bytes: int,
        dictionaries: Collection[str],
        rows_of: Callable[[tuple[Any, ...]], int],
        planned_files: int | None = None,
    ) -> None:
        assert job.order is not None
        self._job = job
        self._sort_order_id = job.order.sort_order_id
        self._files = files
        self._encoder = encoder
        self._row_group_bytes = row_group_bytes
        self._dictionaries = dictionaries
        self._rows_of = rows_of
        self._planned_files = planned_files
        self._memory_bytes = job.memory_bytes / (_MEMORY_PER_ROW_BYTE * 2 * (job.threads + 1))
        self._threads = job.threads
        self._pool = ThreadPool(job.threads, "sort-encode")
        self._in_flight: deque[_InFlight] = deque()
        self._partition: tuple[Any, ...] | None = None
        self._partition_rows_left = 0
        # Rows of the files of this partition that follow.
        self._file_rows: deque[int] = deque()
        self._planned: _PlannedFile | None = None
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._open: OpenOutput | None = None
        self._encoded_rows = 0
        self._encoded_bytes = 0
        self._finished: list[OutputFile] = []

    def add(self, rows: pa.RecordBatch, partition: tuple[Any, ...]) -> None:
        """Take the next rows; a new partition ends the file of the one before."""
        if self._partition is None or exact_partition_key(partition) != exact_partition_key(self._partition):
            self._end_file()
            self._partition = partition
            self._partition_rows_left = self._rows_of(partition)
            self._file_rows.clear()
        start = 0
        while start < rows.num_rows:
            planned = self._planned or self._plan_file(rows.slice(start))
            part = rows.slice(start, min(planned.row_group_rows - self._pending_rows, planned.rows_left))
            start += part.num_rows
            self._pending.append(part)
            self._pending_rows += part.num_rows
            planned.rows_left -= part.num_rows
            self._partition_rows_left -= part.num_rows
            if planned.rows_left == 0:
                self._end_file()
            elif self._pending_rows >= planned.row_group_rows:
                self._submit(ends_file=False)

    def finish(self) -> tuple[OutputFile, ...]:
        """Close every file; return complete and proved files."""
        self._end_file()
        while self._in_flight:
            self._join_oldest()
        return tuple(self._finished)

    def _plan_file(self, rows: pa.RecordBatch) -> _PlannedFile:
        """Decide how many rows the next file has; the rows that are there are measured if none were encoded yet."""
        if not self._encoded_rows and not self._in_flight:
            sample = rows.slice(max(0, rows.num_rows - _MEASURED_ROWS) // 2, _MEASURED_ROWS)
            measured_bytes = self._encoder.encode([sample], self._dictionaries).buffer.size
            self._encoded_rows, self._encoded_bytes = sample.num_rows, measured_bytes
        elif not self._encoded_rows:
            self._join_oldest()
        row_bytes = self._encoded_bytes / self._encoded_rows
        file_rows = self._next_file_rows(row_bytes)
        by_size = 0.98 * file_rows * row_bytes / self._row_group_bytes
        by_memory = file_rows * (rows.nbytes / rows.num_rows) / self._memory_bytes
        row_groups = max(1, math.ceil(by_size), math.ceil(by_memory))
        self._planned = _PlannedFile(file_rows, max(1, math.ceil(file_rows / row_groups)))
        return self._planned

    def _next_file_rows(self, row_bytes: float) -> int:
        """Return the rows of the next file: as planned for its partition, unless its size would be out of bounds."""
        left = max(1, self._partition_rows_left)
        if self._planned_files is not None:
            if not self._file_rows:
                # The plan was made before a row was encoded.
                count = max(self._planned_files, math.ceil(left * row_bytes / self._job.max_file_bytes))
                edges = [left * number // count for number in range(count + 1)]
                self._file_rows = deque(max(1, after - before) for before, after in itertools.pairwise(edges))
            return self._file_rows.popleft()
        planned = self._file_rows[0] if self._file_rows else 0
        in_bounds = self._job.min_file_bytes <= planned * row_bytes <= self._job.max_file_bytes
        if not in_bounds or planned > left:
            left_bytes = max(1, int(left * row_bytes))
            shares = output_shares(left_bytes, expected_outputs(left_bytes, self._job), self._job)
            edges = [left * edge // left_bytes for edge in itertools.accumulate(shares, initial=0)]
            self._file_rows = deque(max(1, after - before) for before, after in itertools.pairwise(edges))
        return self._file_rows.popleft()

    def _end_file(self) -> None:
        if self._pending_rows:
            self._submit(ends_file=True)
        elif self._in_flight:
            self._in_flight[-1] = replace(self._in_flight[-1], ends_file=True)
        else:
            self._close()
        self._planned = None

    def _submit(self, *, ends_file: bool) -> None:
        assert self._partition is not None
        batches, self._pending, self._pending_rows = self._pending, [], 0
        while len(self._in_flight) >= self._threads:
            self._join_oldest()
        future = self._pool.submit(self._encode, batches)
        self._in_flight.append(_InFlight(future, self._partition, ends_file))

    def _encode(self, batches: list[pa.RecordBatch]) -> EncodedRowGroup:
        try:
            return self._encoder.encode(batches, self._dictionaries)
        finally:
            batches.clear()
            pa.default_memory_pool().release_unused()

    def _join_oldest(self) -> None:
        entry = self._in_flight.popleft()
        encoded = entry.encoded.result()
        self._encoded_rows += encoded.rows
        self._encoded_bytes += encoded.buffer.size
        if self._open is not None and self._open.position + encoded.buffer.size > self._job.max_file_bytes:
            self._close()
        if self._open is None:
            self._open = OpenOutput(self._files, entry.partition, encoded.footer)
        self._open.append_encoded(encoded)
        if entry.ends_file:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            output, self._open = self._open, None
            self._finished.append(replace(output.close(), sort_order_id=self._sort_order_id))

    def __enter__(self) -> SortedFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._open is not None:
            self._open.abandon()

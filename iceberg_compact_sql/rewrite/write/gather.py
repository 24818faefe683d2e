"""Gathers rows of the inputs into output row groups, which several threads encode in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.parquet.last_columns import LastColumns
from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.task import RewriteJob, slice_bytes
from iceberg_compact_sql.rewrite.write.encoding_threads import EncodingThreads
from iceberg_compact_sql.rewrite.write.nan_counts import StoredRowGroup
from iceberg_compact_sql.rewrite.write.open_files import TaskOutputs
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter
from iceberg_compact_sql.rewrite.write.row_groups import (
    DictionaryVotes,
    EncodedRowGroup,
    RowGroupEncoder,
    arrow_width_bytes,
)
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# A row group needs memory for its rows, their encoded form, and the buffers of encoder and decoder.
_MEMORY_PER_ROW_BYTE = 2.4


@dataclass(slots=True)
class _OpenInput:
    """An open input; closed when all its row groups are written."""

    reader: InputReader
    waiting: int = 0
    released: bool = False


@dataclass(slots=True)
class _PendingRowGroup:
    """Rows of one output row group: some are decoded already, the encoding thread decodes the others."""

    partition: tuple[Any, ...]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    row_groups: list[tuple[_OpenInput, SliceRowGroup]] = field(default_factory=list)
    votes: DictionaryVotes = field(default_factory=DictionaryVotes)
    source_bytes: float = 0.0
    memory_bytes: float = 0.0


class RowGroupGatherer(EncodingThreads):
    """Writes the inputs' row groups to a task's outputs; memory holds a bounded number of output row groups.

    Small row groups are decoded by the threads that encode them; large ones are streamed through the calling thread
    and cut. Output row groups are written in the order in which they were gathered.
    """

    def __init__(
        self,
        job: RewriteJob,
        encoder: RowGroupEncoder,
        arrow_schema: pa.Schema,
        forecast: Forecast,
        outputs: TaskOutputs,
        splitter: PartitionSplitter | None,
        partition: tuple[Any, ...] | None,
    ) -> None:
        self._encoder = encoder
        self._arrow_schema = arrow_schema
        self._row_width_bytes = arrow_width_bytes(arrow_schema)
        self._forecast = forecast
        self._outputs = outputs
        self._splitter = splitter
        self._partition = partition or ()
        self._row_group_memory_bytes = job.memory_bytes / (_MEMORY_PER_ROW_BYTE * (job.threads + 1))
        self._threads = job.threads
        super().__init__(job, "encode")
        self._in_flight: deque[tuple[_PendingRowGroup, Future[list[EncodedRowGroup]]]] = deque()
        self._open_inputs: dict[int, _OpenInput] = {}
        self._pending: dict[Hashable, _PendingRowGroup] = {}
        self.input_rows = 0
        self.live_rows = 0
        self.copied_row_groups = 0
        self.copied_bytes = 0
        self.read_bytes = 0

    def open(self, reader: InputReader) -> None:
        self._open_inputs[id(reader)] = _OpenInput(reader)
        self._forecast.opened(
            slice_bytes(reader.slice), sum(row_group.compressed_bytes for row_group in reader.row_groups)
        )

    def release(self, reader: InputReader) -> None:
        """Close the input when its last row group is written; no more row groups of it will follow."""
        open_input = self._open_inputs[id(reader)]
        open_input.released = True
        self._close_if_done(open_input)

    def copy(self, reader: InputReader, row_group: SliceRowGroup, lineage: LastColumns | None) -> None:
        """Copy a row group as it is, with columns of lineage; it has no deletes, so all its rows are live."""
        copied_bytes = self._outputs.append(reader.file, StoredRowGroup.of(reader, row_group.index), lineage)
        self.copied_row_groups += 1
        self.copied_bytes += copied_bytes
        self.read_bytes += copied_bytes
        self.input_rows += row_group.rows
        self.live_rows += row_group.rows

    def keep(self, reader: InputReader) -> None:
        """Keep an input open until `unkeep`, also after `release`."""
        self._open_inputs[id(reader)].waiting += 1

    def unkeep(self, reader: InputReader) -> None:
        open_input = self._open_inputs[id(reader)]
        open_input.waiting -= 1
        self._close_if_done(open_input)

    def count_spliced(self, row_group: SliceRowGroup) -> None:
        """Count a row group that was written in another way; it has no deletes, so all its rows are live."""
        self.read_bytes += row_group.compressed_bytes
        self.input_rows += row_group.rows
        self.live_rows += row_group.rows

    def decode(self, reader: InputReader, row_group: SliceRowGroup) -> None:
        """Encode the live rows of a row group; may wait for earlier ones."""
        if row_group.rows == 0:
            return
        open_input = self._open_inputs[id(reader)]
        self.read_bytes += row_group.compressed_bytes
        row_group_bytes = self._forecast.row_group_source_bytes()
        memory_bytes = self._decoded_bytes(reader, row_group)
        large = row_group.compressed_bytes > 1.5 * row_group_bytes or memory_bytes > self._row_group_memory_bytes
        if self._splitter is not None:
            self._stream_by_partition(open_input, row_group, self._splitter)
        elif large:
            self._stream(open_input, row_group)
        else:
            pending = self._pending_for(self._partition)
            if pending.memory_bytes + memory_bytes > self._row_group_memory_bytes or (
                pending.source_bytes + row_group.compressed_bytes / 2 > row_group_bytes
            ):
                self._submit(self._pending.pop(exact_partition_key(self._partition)))
                pending = self._pending_for(self._partition)
            open_input.waiting += 1
            pending.row_groups.append((open_input, row_group))
            pending.source_bytes += row_group.compressed_bytes
            pending.memory_bytes += memory_bytes
            self._vote(pending, reader, row_group)

    def finish(self) -> None:
        """Encode and write all remaining rows; the counts are final afterwards."""
        for pending in self._pending.values():
            self._submit(pending)
        self._pending.clear()
        while self._in_flight:
            self._join_oldest()

    def _decoded_bytes(self, reader: InputReader, row_group: SliceRowGroup) -> float:
        uncompressed_bytes = reader.footer.row_groups[row_group.index].uncompressed_bytes if reader.footer else 0
        return float(row_group.rows * self._row_width_bytes + max(row_group.compressed_bytes, uncompressed_bytes))

    def _pending_for(self, partition: tuple[Any, ...]) -> _PendingRowGroup:
        return self._pending.setdefault(exact_partition_key(partition), _PendingRowGroup(partition))

    def _vote(self, pending: _PendingRowGroup, reader: InputReader, row_group: SliceRowGroup) -> None:
        if reader.footer is not None:
            pending.votes.count(reader.footer, reader.footer.row_groups[row_group.index], self._encoder.paths_by_id)

    def _stream(self, open_input: _OpenInput, row_group: SliceRowGroup) -> None:
        """Decode a large row group in this thread and cut it into output row groups."""
        row_bytes = row_group.compressed_bytes / row_group.rows
        row_group_bytes = self._forecast.row_group_source_bytes()
        for batch in open_input.reader.read(row_group.index):
            start = 0
            while start < batch.num_rows:
                pending = self._pending_for(self._partition)
                if not pending.batches:
                    self._vote(pending, open_input.reader, row_group)
                room = max(1, int((row_group_bytes - pending.source_bytes) / row_bytes))
                cut = batch.slice(start, room)
                start += cut.num_rows
                pending.batches.append(cut)
                pending.source_bytes += cut.num_rows * row_bytes
                pending.memory_bytes += cut.nbytes
                if (
                    pending.source_bytes >= 0.99 * row_group_bytes
                    or pending.memory_bytes >= self._row_group_memory_bytes
                ):
                    self._submit(self._pending.pop(exact_partition_key(self._partition)))
                    row_group_bytes = self._forecast.row_group_source_bytes()
        self._count_live(open_input.reader, row_group)

    def _stream_by_partition(
        self, open_input: _OpenInput, row_group: SliceRowGroup, splitter: PartitionSplitter
    ) -> None:
        """Decode a row group in this thread and split its rows by partition."""
        row_bytes = row_group.compressed_bytes / row_group.rows
        held_bytes = sum(pending.memory_bytes for pending in self._pending.values())
        for batch in open_input.reader.read(row_group.index):
            for partition, rows in splitter.split(_dense(batch, self._arrow_schema)):
                pending = self._pending_for(partition)
                if not pending.batches:
                    self._vote(pending, open_input.reader, row_group)
                pending.batches.append(rows)
                pending.source_bytes += rows.num_rows * row_bytes
                pending.memory_bytes += rows.nbytes
                held_bytes += rows.nbytes
                # One limit for all partitions together: encode the largest row group first.
                while held_bytes > self._row_group_memory_bytes:
                    key, largest = max(self._pending.items(), key=lambda entry: entry[1].memory_bytes)
                    held_bytes -= largest.memory_bytes
                    del self._pending[key]
                    self._submit(largest)
        self._count_live(open_input.reader, row_group)

    def _submit(self, pending: _PendingRowGroup) -> None:
        if self._pool is None:
            self._join(pending, self._encode(pending))
            return
        # Decoded rows use memory from now on, others only when a thread starts to decode them.
        waiting = 0 if pending.batches else 1
        while len(self._in_flight) >= self._threads + waiting:
            self._join_oldest()
        self._in_flight.append((pending, self._pool.submit(self._encode, pending)))

    def _encode(self, pending: _PendingRowGroup) -> list[EncodedRowGroup]:
        """Encode rows in any thread, and return their memory to the system instead of the allocator's cache."""
        encoded = self._encode_row_groups(pending)
        pa.default_memory_pool().release_unused()
        return encoded

    def _encode_row_groups(self, pending: _PendingRowGroup) -> list[EncodedRowGroup]:
        """Return one row group; more when the rows need more memory than the footers suggested."""
        dictionaries = pending.votes.winners()
        encoded: list[EncodedRowGroup] = []
        batches, pending.batches = pending.batches, []
        memory_bytes = sum(batch.nbytes for batch in batches)
        for open_input, row_group in pending.row_groups:
            for batch in open_input.reader.read(row_group.index):
                batches.append(batch)
                memory_bytes += batch.nbytes
                if memory_bytes > 1.5 * self._row_group_memory_bytes:
                    encoded.append(self._encoder.encode(batches, dictionaries))
                    batches, memory_bytes = [], 0
        if batches:
            encoded.append(self._encoder.encode(batches, dictionaries))
        return encoded

    def _join_oldest(self) -> None:
        pending, future = self._in_flight.popleft()
        self._join(pending, future.result())

    def _join(self, pending: _PendingRowGroup, encoded: list[EncodedRowGroup]) -> None:
        written_bytes = sum(entry.buffer.size for entry in encoded)
        for entry in encoded:
            if entry.rows:
                self._outputs.append_encoded(entry, pending.partition)
        self._forecast.encoded(pending.source_bytes, written_bytes)
        for open_input, row_group in pending.row_groups:
            self._count_live(open_input.reader, row_group)
            open_input.waiting -= 1
            self._close_if_done(open_input)

    def _count_live(self, reader: InputReader, row_group: SliceRowGroup) -> None:
        self.input_rows += row_group.rows
        self.live_rows += row_group.rows - reader.deleted_rows.get(row_group.index, 0)

    def _close_if_done(self, open_input: _OpenInput) -> None:
        if (
            open_input.released
            and open_input.waiting == 0
            and self._open_inputs.pop(id(open_input.reader), None) is not None
        ):
            open_input.reader.close()

    def close(self) -> None:
        super().close()
        for open_input in self._open_inputs.values():
            open_input.reader.close()
        self._open_inputs.clear()


def _dense(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch without dictionaries: each partition would carry all of them otherwise."""
    columns = [
        column.cast(field.type) if pa.types.is_dictionary(column.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

"""From row groups of the inputs to pieces of about one output row group, encoded by several threads in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.live_rows import InputReader, RowGroupPart
from iceberg_compact_sql.rewrite.task import RewriteJob, slice_bytes
from iceberg_compact_sql.rewrite.write.open_files import TaskOutputs
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter
from iceberg_compact_sql.rewrite.write.row_groups import DictionaryVotes, EncodedPiece, PieceEncoder, arrow_width_bytes
from iceberg_compact_sql.table.partitions import partition_key

# A piece in memory is its rows, their encoded form, and what encoder and decoder hold meanwhile.
_MEMORY_PER_ROW_BYTE = 2.4


@dataclass(slots=True)
class _Lease:
    """An open input; closed when all its row groups are through."""

    reader: InputReader
    waiting: int = 0
    released: bool = False


@dataclass(slots=True)
class _Piece:
    """Rows that become one row group: some decoded already, some to be decoded by the thread that encodes them."""

    partition: tuple[Any, ...]
    batches: list[pa.RecordBatch] = field(default_factory=list)
    parts: list[tuple[_Lease, RowGroupPart]] = field(default_factory=list)
    votes: DictionaryVotes = field(default_factory=DictionaryVotes)
    source_bytes: float = 0.0
    memory_bytes: float = 0.0


class PieceGatherer:
    """Feeds a task's outputs with the inputs' row groups; memory holds a bounded number of pieces.

    Row groups that are small are decoded by the threads that encode them, large ones are streamed through the
    calling thread and cut. Pieces are joined in the order in which they were gathered.
    """

    def __init__(
        self,
        job: RewriteJob,
        encoder: PieceEncoder,
        arrow_schema: pa.Schema,
        forecast: Forecast,
        outputs: TaskOutputs,
        spread: PartitionSplitter | None,
        partition: tuple[Any, ...] | None,
    ) -> None:
        self._encoder = encoder
        self._arrow_schema = arrow_schema
        self._row_width_bytes = arrow_width_bytes(arrow_schema)
        self._forecast = forecast
        self._outputs = outputs
        self._spread = spread
        self._partition = partition or ()
        self._piece_memory_bytes = job.memory_bytes / (_MEMORY_PER_ROW_BYTE * (job.threads + 1))
        self._threads = job.threads
        self._pool = ThreadPoolExecutor(job.threads, "encode") if job.threads > 1 else None
        self._in_flight: deque[tuple[_Piece, Future[list[EncodedPiece]]]] = deque()
        self._leases: dict[int, _Lease] = {}
        self._pieces: dict[Hashable, _Piece] = {}
        self.input_rows = 0
        self.live_rows = 0
        self.copied_row_groups = 0
        self.copied_bytes = 0
        self.read_bytes = 0

    def open(self, reader: InputReader) -> None:
        self._leases[id(reader)] = _Lease(reader)
        self._forecast.opened(slice_bytes(reader.slice), sum(part.compressed_bytes for part in reader.parts))

    def release(self, reader: InputReader) -> None:
        """No more row groups of this input will be asked for; it is closed when the last one is through."""
        lease = self._leases[id(reader)]
        lease.released = True
        self._close_if_done(lease)

    def copy(self, reader: InputReader, part: RowGroupPart) -> None:
        """Copy a row group as it is; it has no deletes, so all its rows are live."""
        assert reader.footer is not None
        copied_bytes = self._outputs.append(reader.file, reader.footer, part.index)
        self.copied_row_groups += 1
        self.copied_bytes += copied_bytes
        self.read_bytes += copied_bytes
        self.input_rows += part.rows
        self.live_rows += part.rows

    def decode(self, reader: InputReader, part: RowGroupPart) -> None:
        """Have the live rows of a row group encoded; may wait for earlier pieces."""
        if part.rows == 0:
            return
        lease = self._leases[id(reader)]
        self.read_bytes += part.compressed_bytes
        piece_bytes = self._forecast.piece_source_bytes()
        memory_bytes = self._decoded_bytes(reader, part)
        large = part.compressed_bytes > 1.5 * piece_bytes or memory_bytes > self._piece_memory_bytes
        if self._spread is not None:
            self._stream_spread(lease, part, self._spread)
        elif large:
            self._stream(lease, part)
        else:
            piece = self._piece(self._partition)
            if piece.memory_bytes + memory_bytes > self._piece_memory_bytes or (
                piece.source_bytes + part.compressed_bytes / 2 > piece_bytes
            ):
                self._submit(self._pieces.pop(partition_key(self._partition)))
                piece = self._piece(self._partition)
            lease.waiting += 1
            piece.parts.append((lease, part))
            piece.source_bytes += part.compressed_bytes
            piece.memory_bytes += memory_bytes
            self._vote(piece, reader, part)

    def finish(self) -> None:
        """Encode what is left and join everything; afterwards the counts are final."""
        for piece in self._pieces.values():
            self._submit(piece)
        self._pieces.clear()
        while self._in_flight:
            self._join_oldest()

    def _decoded_bytes(self, reader: InputReader, part: RowGroupPart) -> float:
        uncompressed_bytes = reader.footer.row_groups[part.index].uncompressed_bytes if reader.footer else 0
        return float(part.rows * self._row_width_bytes + max(part.compressed_bytes, uncompressed_bytes))

    def _piece(self, partition: tuple[Any, ...]) -> _Piece:
        return self._pieces.setdefault(partition_key(partition), _Piece(partition))

    def _vote(self, piece: _Piece, reader: InputReader, part: RowGroupPart) -> None:
        if reader.footer is not None:
            piece.votes.count(reader.footer, reader.footer.row_groups[part.index], self._encoder.paths_by_id)

    def _stream(self, lease: _Lease, part: RowGroupPart) -> None:
        """Decode a large row group here and cut it into pieces by rows."""
        row_bytes = part.compressed_bytes / part.rows
        piece_bytes = self._forecast.piece_source_bytes()
        for batch in lease.reader.read(part.index):
            start = 0
            while start < batch.num_rows:
                piece = self._piece(self._partition)
                if not piece.batches:
                    self._vote(piece, lease.reader, part)
                room = max(1, int((piece_bytes - piece.source_bytes) / row_bytes))
                cut = batch.slice(start, room)
                start += cut.num_rows
                piece.batches.append(cut)
                piece.source_bytes += cut.num_rows * row_bytes
                piece.memory_bytes += cut.nbytes
                if piece.source_bytes >= 0.99 * piece_bytes or piece.memory_bytes >= self._piece_memory_bytes:
                    self._submit(self._pieces.pop(partition_key(self._partition)))
                    piece_bytes = self._forecast.piece_source_bytes()
        self._count_live(lease.reader, part)

    def _stream_spread(self, lease: _Lease, part: RowGroupPart, spread: PartitionSplitter) -> None:
        """Decode a row group here and hand its rows to the pieces of their partitions."""
        row_bytes = part.compressed_bytes / part.rows
        held_bytes = sum(piece.memory_bytes for piece in self._pieces.values())
        for batch in lease.reader.read(part.index):
            for partition, rows in spread.split(_dense(batch, self._arrow_schema)):
                piece = self._piece(partition)
                if not piece.batches:
                    self._vote(piece, lease.reader, part)
                piece.batches.append(rows)
                piece.source_bytes += rows.num_rows * row_bytes
                piece.memory_bytes += rows.nbytes
                held_bytes += rows.nbytes
                # One limit for all partitions together: the largest piece goes first.
                while held_bytes > self._piece_memory_bytes:
                    key, largest = max(self._pieces.items(), key=lambda entry: entry[1].memory_bytes)
                    held_bytes -= largest.memory_bytes
                    del self._pieces[key]
                    self._submit(largest)
        self._count_live(lease.reader, part)

    def _submit(self, piece: _Piece) -> None:
        if self._pool is None:
            self._join(piece, self._encode(piece))
            return
        # Pieces that are decoded already weigh from now on, the others only when a thread takes them up.
        waiting = 0 if piece.batches else 1
        while len(self._in_flight) >= self._threads + waiting:
            self._join_oldest()
        self._in_flight.append((piece, self._pool.submit(self._encode, piece)))

    def _encode(self, piece: _Piece) -> list[EncodedPiece]:
        """Runs in any thread; the memory of the rows goes back to the system, not to the allocator's store."""
        encoded = self._row_groups(piece)
        pa.default_memory_pool().release_unused()
        return encoded

    def _row_groups(self, piece: _Piece) -> list[EncodedPiece]:
        """One row group, or more if the rows take more memory than the footers let expect."""
        dictionaries = piece.votes.winners()
        encoded: list[EncodedPiece] = []
        batches, piece.batches = piece.batches, []
        memory_bytes = sum(batch.nbytes for batch in batches)
        for lease, part in piece.parts:
            for batch in lease.reader.read(part.index):
                batches.append(batch)
                memory_bytes += batch.nbytes
                if memory_bytes > 1.5 * self._piece_memory_bytes:
                    encoded.append(self._encoder.encode(batches, dictionaries))
                    batches, memory_bytes = [], 0
        if batches:
            encoded.append(self._encoder.encode(batches, dictionaries))
        return encoded

    def _join_oldest(self) -> None:
        piece, future = self._in_flight.popleft()
        self._join(piece, future.result())

    def _join(self, piece: _Piece, encoded: list[EncodedPiece]) -> None:
        written_bytes = sum(entry.buffer.size for entry in encoded)
        for entry in encoded:
            if entry.rows:
                self._outputs.append_piece(entry, piece.partition)
        self._forecast.encoded(piece.source_bytes, written_bytes)
        for lease, part in piece.parts:
            self._count_live(lease.reader, part)
            lease.waiting -= 1
            self._close_if_done(lease)

    def _count_live(self, reader: InputReader, part: RowGroupPart) -> None:
        self.input_rows += part.rows
        self.live_rows += part.rows - reader.deleted_rows.get(part.index, 0)

    def _close_if_done(self, lease: _Lease) -> None:
        if lease.released and lease.waiting == 0 and self._leases.pop(id(lease.reader), None) is not None:
            lease.reader.close()

    def __enter__(self) -> PieceGatherer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        for lease in self._leases.values():
            lease.reader.close()
        self._leases.clear()


def _dense(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Without dictionaries, which every partition would otherwise carry whole."""
    columns = [
        column.cast(field.type) if pa.types.is_dictionary(column.type) else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)

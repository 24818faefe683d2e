"""Reads the live rows of a task in threads: its keys as a sample, or whole rows by range."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.rewrite.clustering.batches import one_batch
from iceberg_compact_sql.rewrite.clustering.layout import Layout, RowOrder, row_ties
from iceberg_compact_sql.rewrite.clustering.row_digest import rows_digest
from iceberg_compact_sql.rewrite.clustering.words import Word
from iceberg_compact_sql.rewrite.live_rows import InputReader, open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter, path_to
from iceberg_compact_sql.rewrite.write.row_groups import DictionaryVotes, arrow_width_bytes
from iceberg_compact_sql.table.partition_keys import exact_partition_key

R = TypeVar("R")
# Sends the rows of several ranges on; they share so many bytes of memory.
Send = Callable[[Sequence[tuple[int, pa.RecordBatch]], int], None]

_SAMPLE_SALT = 1
_SHORT_RANGES = 1 << 16
DIGEST_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class KeySample:
    """Keys of sampled rows of one task. `has_nulls` is about all its rows, not only the sampled ones."""

    columns: tuple[pa.Array, ...]
    ties: Word
    has_nulls: tuple[bool, ...]
    live_rows: int
    # Memory of all rows when they are decoded.
    decoded_bytes: int

    @staticmethod
    def joined(samples: Sequence[KeySample]) -> KeySample:
        columns = zip(*(sample.columns for sample in samples), strict=True)
        return KeySample(
            columns=tuple(pa.concat_arrays(list(chunks)) for chunks in columns),
            ties=np.concatenate([sample.ties for sample in samples]),
            has_nulls=tuple(any(flags) for flags in zip(*(sample.has_nulls for sample in samples), strict=True)),
            live_rows=sum(sample.live_rows for sample in samples),
            decoded_bytes=sum(sample.decoded_bytes for sample in samples),
        )


@dataclass(frozen=True)
class RowsRead:
    """The rows that were read, for the proof: rows before deletes, live rows, and the sum of their digests."""

    input_rows: int
    live_rows: int
    digest: int
    read_bytes: int
    votes: DictionaryVotes
    # Live rows by exact partition key, in a group that is spread over partitions.
    partition_rows: Counter[Hashable]

    @staticmethod
    def joined(parts: Sequence[RowsRead]) -> RowsRead:
        votes = DictionaryVotes()
        for part in parts:
            votes.rows += part.votes.rows
            votes.held.update(part.votes.held)
        return RowsRead(
            input_rows=sum(part.input_rows for part in parts),
            live_rows=sum(part.live_rows for part in parts),
            digest=sum(part.digest for part in parts) & DIGEST_MASK,
            read_bytes=sum(part.read_bytes for part in parts),
            votes=votes,
            partition_rows=sum((part.partition_rows for part in parts), Counter()),
        )


def sample_keys(
    job: RewriteJob, task: RewriteTask, io: FileIO, schema: Schema, spec: PartitionSpec | None, share: float
) -> KeySample | None:
    """Read the key columns of all live rows of a task, and return a share of them, evenly chosen; None for no rows."""
    assert job.order is not None
    sources = [field.source_id for field in job.order.fields]
    sources.extend(field.source_id for field in (spec.fields if spec else ()))
    paths = (path_to(schema, source) for source in sources)
    top_level = {schema.fields[path[0]].field_id for path in paths if path is not None}
    order = RowOrder(Schema(*(field for field in schema.fields if field.field_id in top_level)), job.order, spec)
    limit = np.uint64(min(2**64 - 1, int(2**64 * share)))
    width_bytes = arrow_width_bytes(output_arrow_schema(job))

    def work(readers: Iterator[InputReader]) -> list[KeySample]:
        return [part for reader in readers for part in _sampled(reader, order, limit, width_bytes)]

    found = [sample for part in in_threads(job, task, io, work, columns=top_level) for sample in part]
    return KeySample.joined(found) if found else None


def read_by_range(
    job: RewriteJob,
    task: RewriteTask,
    io: FileIO,
    order: RowOrder,
    layout: Layout | None,
    send: Send,
    *,
    partitions: PartitionSplitter | None,
    paths_by_id: Mapping[int, str],
    flush_bytes: float,
) -> RowsRead:
    """Read all live rows and send each to its range, some rows at a time; without a layout to range 0.

    `paths_by_id` are the leaf columns of the outputs, for the vote on dictionaries.
    """
    schema = output_arrow_schema(job)

    def work(readers: Iterator[InputReader]) -> RowsRead:
        splitter = RangeSplitter(order, layout, schema, flush_bytes, partitions, checksum=job.verify == "checksum")
        for reader in readers:
            for split in splitter.read(reader, paths_by_id):
                send(split.parts, split.size_bytes)
        for split in splitter.rest():
            send(split.parts, split.size_bytes)
        return splitter.rows_read()

    return RowsRead.joined(in_threads(job, task, io, work))


def in_threads(
    job: RewriteJob,
    task: RewriteTask,
    io: FileIO,
    work: Callable[[Iterator[InputReader]], R],
    *,
    columns: Collection[int] | None = None,
) -> list[R]:
    """Open the inputs one after the other, and give each to one of the job's threads; each closes what it got."""
    inputs = open_inputs(job, task, io, dictionaries=True, columns=columns)
    lock = threading.Lock()
    failed = threading.Event()

    def readers() -> Iterator[InputReader]:
        while not failed.is_set():
            with lock:
                reader = next(inputs, None)
            if reader is None:
                return
            with reader:
                yield reader

    def guarded() -> R:
        try:
            return work(readers())
        except BaseException:
            # The other threads need not read on.
            failed.set()
            raise

    threads = max(1, min(job.threads, len(task.inputs)))
    if threads == 1:
        return [work(readers())]
    pool = ThreadPool(threads, "sort-read")
    try:
        futures = [pool.submit(guarded) for _ in range(threads)]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True)
class SplitRows:
    """Rows by range; they share `size_bytes` of memory."""

    parts: Sequence[tuple[int, pa.RecordBatch]]
    size_bytes: int


class RangeSplitter:
    """Collects rows of one thread and finds the range of each. Rows keep their order: the same on every attempt."""

    def __init__(
        self,
        order: RowOrder,
        layout: Layout | None,
        schema: pa.Schema,
        flush_bytes: float,
        partitions: PartitionSplitter | None,
        *,
        checksum: bool,
    ) -> None:
        self._order = order
        self._layout = layout if layout is not None and layout.ranges > 1 else None
        self._schema = schema
        self._flush_bytes = flush_bytes
        self._partitions = partitions
        self._checksum = checksum
        self._batches: list[pa.RecordBatch] = []
        self._ties: list[Word] = []
        self._held_bytes = 0
        self._input_rows = self._live_rows = self._digest = self._read_bytes = 0
        self._votes = DictionaryVotes()
        self._partition_rows: Counter[Hashable] = Counter()

    def read(self, reader: InputReader, paths_by_id: Mapping[int, str]) -> Iterator[SplitRows]:
        """Read an input; yield rows as soon as they take `flush_bytes`."""
        for row_group in reader.row_groups:
            if reader.footer is not None:
                self._votes.count(reader.footer, reader.footer.row_groups[row_group.index], paths_by_id)
            row = row_group.first_row
            for batch in reader.read(row_group.index):
                self._batches.append(batch)
                self._ties.append(row_ties(reader.slice.path, row, batch.num_rows))
                row += batch.num_rows
                self._held_bytes += batch.nbytes
                if self._held_bytes >= self._flush_bytes:
                    yield self._flush()
            self._input_rows += row_group.rows
            self._read_bytes += row_group.compressed_bytes

    def rest(self) -> Iterator[SplitRows]:
        """Yield the rows that are left after the last input."""
        if self._batches:
            yield self._flush()

    def rows_read(self) -> RowsRead:
        return RowsRead(
            self._input_rows,
            self._live_rows,
            self._digest & DIGEST_MASK,
            self._read_bytes,
            self._votes,
            self._partition_rows,
        )

    def _flush(self) -> SplitRows:
        if self._checksum:
            self._digest += sum(map(rows_digest, self._batches))
        rows = one_batch(self._batches, self._schema)
        ties = np.concatenate(self._ties)
        self._batches, self._ties, self._held_bytes = [], [], 0
        self._live_rows += rows.num_rows
        if self._partitions is not None:
            for partition, count in self._partitions.count(rows):
                self._partition_rows[exact_partition_key(partition)] += count
        if self._layout is None:
            return SplitRows([(0, rows)], rows.nbytes)
        ranges = self._order.ranges(rows, ties, self._layout)
        counts = np.bincount(ranges, minlength=self._layout.ranges)
        if self._layout.ranges <= _SHORT_RANGES:
            # numpy sorts 16-bit numbers in linear time.
            ranges = ranges.astype(np.uint16)
        rows = rows.take(pa.array(np.argsort(ranges, kind="stable")))
        ends = np.cumsum(counts)
        parts = [(int(n), rows.slice(int(ends[n] - counts[n]), int(counts[n]))) for n in np.flatnonzero(counts)]
        return SplitRows(parts, rows.nbytes)


def _sampled(reader: InputReader, order: RowOrder, limit: np.uint64, width_bytes: int) -> Iterator[KeySample]:
    footer = reader.footer
    for row_group in reader.row_groups:
        row = row_group.first_row
        uncompressed_bytes = footer.row_groups[row_group.index].uncompressed_bytes if footer else 0
        decoded_bytes = row_group.rows * width_bytes + max(row_group.compressed_bytes, uncompressed_bytes)
        for batch in reader.read(row_group.index):
            chosen = row_ties(reader.slice.path, row, batch.num_rows, salt=_SAMPLE_SALT) < limit
            ties = row_ties(reader.slice.path, row, batch.num_rows)[chosen]
            row += batch.num_rows
            columns = order.columns(batch)
            yield KeySample(
                tuple(_plain(column.filter(pa.array(chosen))) for column in columns),
                ties,
                tuple(column.null_count > 0 for column in columns),
                batch.num_rows,
                decoded_bytes,
            )
            decoded_bytes = 0


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

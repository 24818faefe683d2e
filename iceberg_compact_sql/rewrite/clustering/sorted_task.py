"""Rewrites a task in the order of its job, without a shuffle: read, split into ranges, sort each range, write."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from iceberg_compact_sql.events import ThreadPool, stop_if_cancelled
from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.clustering.batches import RangeStore, one_batch
from iceberg_compact_sql.rewrite.clustering.layout import Layout, RowOrder
from iceberg_compact_sql.rewrite.clustering.read_rows import DIGEST_MASK, RowsRead, read_by_range, sample_keys
from iceberg_compact_sql.rewrite.clustering.row_digest import rows_digest
from iceberg_compact_sql.rewrite.clustering.sorted_files import SortedFiles
from iceberg_compact_sql.rewrite.job import job_schema, job_spec
from iceberg_compact_sql.rewrite.live_rows import output_arrow_schema
from iceberg_compact_sql.rewrite.task import OutputFile, RewriteJob, RewriteResult, RewriteTask, slice_bytes
from iceberg_compact_sql.rewrite.write.naming import OutputNames, layout_notes
from iceberg_compact_sql.rewrite.write.output_file import TaskFiles
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter
from iceberg_compact_sql.rewrite.write.row_groups import ProofError, RowGroupEncoder
from iceberg_compact_sql.rewrite.write.settings import WriterSettings, writer_settings
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# Rows take at most about so many times the bytes of their file; a smaller task is one range without a look at it.
_LARGEST_GROWTH = 8
_USUAL_GROWTH = 4
SAMPLE_ROWS_PER_RANGE = 1_000
_FEWEST_SAMPLE_ROWS = 20_000
# The share of the memory limit that rows of all ranges may take before they are written to local disk.
_HELD_SHARE = 0.25


@dataclass(frozen=True)
class OrderedJob:
    """The parts of a job that all steps of sorting share, parsed once in each process."""

    job: RewriteJob
    schema: Schema
    spec: PartitionSpec
    arrow_schema: pa.Schema
    settings: WriterSettings
    encoder: RowGroupEncoder
    order: RowOrder
    # None if all rows belong to one partition, which is known.
    splitter: PartitionSplitter | None

    @classmethod
    def of(cls, job: RewriteJob, partition: tuple[Any, ...] | None) -> OrderedJob:
        assert job.order is not None
        schema, spec = job_schema(job), job_spec(job, job.output_spec_id)
        arrow_schema = output_arrow_schema(job)
        settings = writer_settings(job.properties, schema)
        spread = partition is None and bool(spec.fields)
        return cls(
            job=job,
            schema=schema,
            spec=spec,
            arrow_schema=arrow_schema,
            settings=settings,
            encoder=RowGroupEncoder(schema, arrow_schema, settings, checksum=job.verify == "checksum"),
            order=RowOrder(schema, job.order, spec if spread else None),
            splitter=PartitionSplitter(schema, spec) if spread else None,
        )

    @property
    def spread_spec(self) -> PartitionSpec | None:
        return None if self.splitter is None else self.spec

    @property
    def range_bytes(self) -> int:
        """The rows of one range in memory: each thread sorts one, which briefly doubles it."""
        return max(1, self.job.memory_bytes // (5 * (self.job.threads + 1)))

    @property
    def flush_bytes(self) -> float:
        return self.job.memory_bytes / (10 * self.job.threads)

    def task_files(self, io: FileIO, group_id: int, output_index: int, created: list[str]) -> TaskFiles:
        names = OutputNames(self.job, self.schema, self.spec)
        return TaskFiles(
            io=io,
            schema=self.schema,
            properties=self.job.properties,
            spec_id=self.spec.spec_id,
            checksum=self.job.verify == "checksum",
            new_path=lambda partition: names.new_path(group_id, output_index, partition),
            created=created,
        )

    def sorted_rows(self, batches: list[pa.RecordBatch], layout: Layout | None) -> SortedRows:
        """Join the rows of a range and sort them; `batches` is emptied."""
        rows = one_batch(batches, self.arrow_schema)
        batches.clear()
        rows = self.order.sorted(rows, layout)
        return SortedRows(rows, rows_digest(rows) if self.job.verify == "checksum" else 0)


@dataclass(frozen=True)
class SortedRows:
    """The rows of one range in order, with the sum of their digests."""

    rows: pa.RecordBatch
    digest: int


def rewrite_in_order(job: RewriteJob, task: RewriteTask, io: FileIO, created: list[str]) -> RewriteResult:
    """Rewrite a task in the job's order; memory is bounded, since ranges of rows move to local disk when they must.

    The number of rows and the sum of their digests are the same before and after, or ProofError is raised.
    """
    ordered = OrderedJob.of(job, task.partition)
    layout = _layout(ordered, task, io)
    with RangeStore(int(_HELD_SHARE * job.memory_bytes)) as store:
        read = read_by_range(
            job,
            task,
            io,
            ordered.order,
            layout,
            store.add,
            partitions=ordered.splitter,
            paths_by_id=ordered.encoder.paths_by_id,
            flush_bytes=ordered.flush_bytes,
        )
        pa.default_memory_pool().release_unused()
        outputs, digest = _write(ordered, task, io, created, read, store, layout)
    check_proof(read, outputs, digest)
    return RewriteResult(
        group_id=task.group_id,
        output_index=task.output_index,
        outputs=outputs,
        live_rows=read.live_rows,
        input_rows=read.input_rows,
        read_bytes=read.read_bytes,
        notes=(*ordered.settings.notes, *layout_notes(job.properties)),
    )


def check_proof(read: RowsRead, outputs: Collection[OutputFile], digest: int) -> None:
    """Raise ProofError unless the rows that were written are the rows that were read."""
    written_rows = sum(output.rows for output in outputs)
    if written_rows != read.live_rows:
        raise ProofError(f"{read.live_rows} live rows were read, {written_rows} were written")
    if digest != read.digest:
        raise ProofError("the sorted rows are not the rows that were read: the sums of their digests differ")


def _layout(ordered: OrderedJob, task: RewriteTask, io: FileIO) -> Layout | None:
    """Return the ranges of a task that does not fit memory at once; None for one range."""
    input_bytes = sum(map(slice_bytes, task.inputs))
    if input_bytes * _LARGEST_GROWTH <= ordered.range_bytes:
        return None
    ranges = math.ceil(input_bytes * _USUAL_GROWTH / ordered.range_bytes)
    wanted_rows = max(_FEWEST_SAMPLE_ROWS, SAMPLE_ROWS_PER_RANGE * ranges)
    share = min(1.0, wanted_rows / max(1, sum(input_slice.rows for input_slice in task.inputs)))
    sample = sample_keys(ordered.job, task, io, ordered.schema, ordered.spread_spec, share)
    if sample is None:
        return None
    ranges = math.ceil(sample.decoded_bytes / ordered.range_bytes)
    return ordered.order.layout(sample.columns, sample.ties, sample.has_nulls, ranges=ranges)


def _write(
    ordered: OrderedJob,
    task: RewriteTask,
    io: FileIO,
    created: list[str],
    read: RowsRead,
    store: RangeStore,
    layout: Layout | None,
) -> tuple[tuple[OutputFile, ...], int]:
    partition = task.partition or ()

    def rows_of(key: tuple[Any, ...]) -> int:
        return read.live_rows if ordered.splitter is None else read.partition_rows[exact_partition_key(key)]

    digest = 0
    with SortedFiles(
        ordered.job,
        ordered.task_files(io, task.group_id, task.output_index, created),
        ordered.encoder,
        row_group_bytes=ordered.settings.row_group_bytes,
        dictionaries=read.votes.winners(),
        rows_of=rows_of,
        planned_files=_planned_files(ordered, task),
    ) as files:
        for part in _in_order(ordered, store, layout):
            digest += part.digest
            if ordered.splitter is None:
                files.add(part.rows, partition)
            else:
                for key, rows in ordered.splitter.split(part.rows):
                    files.add(rows, key)
        return files.finish(), digest & DIGEST_MASK


def _planned_files(ordered: OrderedJob, task: RewriteTask) -> int | None:
    """Return the number of files that a given compression factor means; None if it is measured."""
    factor = ordered.job.compression_factor
    if factor is None or ordered.splitter is not None:
        return None
    return expected_outputs(int(sum(map(slice_bytes, task.inputs)) * factor), ordered.job)


def _in_order(ordered: OrderedJob, store: RangeStore, layout: Layout | None) -> Iterator[SortedRows]:
    """Yield the ranges in order; threads sort the next ones meanwhile."""

    def load(number: int) -> SortedRows | None:
        batches = store.take(number)
        return ordered.sorted_rows(batches, layout) if batches else None

    threads = ordered.job.threads
    pool = ThreadPool(threads, "sort")
    running: deque[Future[SortedRows | None]] = deque()
    try:
        for number in range(layout.ranges if layout is not None else 1):
            running.append(pool.submit(load, number))
            if len(running) >= threads:
                stop_if_cancelled()
                rows = running.popleft().result()
                if rows is not None:
                    yield rows
        while running:
            rows = running.popleft().result()
            if rows is not None:
                yield rows
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

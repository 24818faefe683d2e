"""Sorts a group that one task should not hold: its rows travel on Spark's shuffle as Arrow blobs.

A first job samples the keys of all slices and makes the ranges. A second one reads the slices, sends each row to its
range, and sorts and writes the ranges of each file in one task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.blob_shuffle import MAX_BLOB_BYTES, Blob, Gathered, shuffle_blobs
from iceberg_compact_sql.engine.shipping import SparkWorkers, packed, unpacked
from iceberg_compact_sql.rewrite.clustering.batches import from_blob, to_blob
from iceberg_compact_sql.rewrite.clustering.bucket_files import (
    BucketFiles,
    BucketShare,
    GroupSort,
    SliceReader,
    write_bucket,
)
from iceberg_compact_sql.rewrite.clustering.group_layout import (
    GroupLayout,
    SlicedGroup,
    SliceSample,
    group_layout,
    sample_slice,
)
from iceberg_compact_sql.rewrite.clustering.read_rows import DIGEST_MASK, RowsRead
from iceberg_compact_sql.rewrite.clustering.sorted_task import check_proof
from iceberg_compact_sql.rewrite.run_task import job_io, reason_of
from iceberg_compact_sql.rewrite.scan.read_ahead import reading_ahead
from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteJob, RewriteResult, RewriteTask
from iceberg_compact_sql.rewrite.write.row_groups import ProofError
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.storage.request_limit import limited_requests
from iceberg_compact_sql.storage.silent_stores import remembering_silence

_SAMPLE_BYTES = 8 * 1024**2
_MEASURED_SLICES = 4
# Ranks of blobs: a failure and the share of a slice come before rows. A range has two ranks: blobs that fit the
# shuffle's limit, and parts of larger ones, each with the number of parts that follow.
_FAILED, _SHARE = -2, -1
_COUNT_BYTES = 4


@dataclass(frozen=True, slots=True)
class _SampledSlice:
    task: RewriteTask
    measured: bool


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a slice or a bucket failed, and the files that could not be removed."""

    reason: str
    created: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShuffledGroup:
    """A group as a whole, and the slices that are read in parallel."""

    task: RewriteTask
    slices: Sequence[RewriteTask]
    input_bytes: int


def sort_group(
    workers: SparkWorkers, job: RewriteJob, group: ShuffledGroup, text: str
) -> tuple[RewriteResult | RewriteFailure, bool]:
    """Sort a group on Spark's shuffle; return its result, and whether attempts may have left files.

    The number of rows and the sum of their digests are the same before and after, or the group fails and its files are
    removed. Raises the error of Spark.
    """
    whole = group.task
    sliced = SlicedGroup.of(job, whole, group.input_bytes)
    step = max(1, len(group.slices) // _MEASURED_SLICES)
    sampled = [_SampledSlice(task, number % step == 0) for number, task in enumerate(group.slices)]
    samples = shuffle_blobs(workers, scatter_keys, sampled, gather_layout, 1, argument=sliced, text=f"{text}: sample")
    events.stop_if_cancelled()
    found = samples[0].value if samples else GroupLayout(None, (0,))
    if isinstance(found, _Failure):
        return RewriteFailure(whole.group_id, whole.output_index, found.reason), False
    sort = GroupSort(job, whole.group_id, whole.partition, found)
    # The last bucket has no rows: it brings what the slices read to the driver.
    results = shuffle_blobs(
        workers, scatter_rows, group.slices, gather_files, found.buckets + 1, argument=sort, text=f"{text}: sort"
    )
    return _result(sort, whole, results), any(result.repeated for result in results)


def _result(sort: GroupSort, whole: RewriteTask, results: Sequence[Gathered]) -> RewriteResult | RewriteFailure:
    ordered = [result.value for result in sorted(results, key=lambda result: result.bucket)]
    buckets = [value for value in ordered if isinstance(value, BucketFiles)]
    outputs = tuple(output for bucket in buckets for output in bucket.outputs)
    failures = [value for value in ordered if isinstance(value, _Failure)]
    reason = failures[0].reason if failures else None
    read = RowsRead.joined([value for value in ordered if isinstance(value, RowsRead)])
    if reason is None:
        try:
            check_proof(read, outputs, sum(bucket.digest for bucket in buckets) & DIGEST_MASK)
        except ProofError as error:
            reason = reason_of(error)
    if reason is not None:
        # Safe: the group has failed, so no commit names these files.
        left = remove_files(job_io(sort.job), (output.path for output in outputs))
        created = (path for failure in failures for path in failure.created)
        return RewriteFailure(whole.group_id, whole.output_index, reason, tuple(dict.fromkeys((*created, *left))))
    return RewriteResult(
        group_id=whole.group_id,
        output_index=whole.output_index,
        outputs=outputs,
        live_rows=read.live_rows,
        input_rows=read.input_rows,
        read_bytes=read.read_bytes,
        notes=tuple(dict.fromkeys(note for bucket in buckets for note in bucket.notes)),
    )


def scatter_keys(group: SlicedGroup, item: _SampledSlice) -> Iterator[Blob]:
    """Sample the keys of a slice; runs on the executors."""
    io = job_io(group.job)
    try:
        with remembering_silence(), limited_requests(group.job.requests), reading_ahead(io, item.task):
            for sample in sample_slice(group, item.task, io, measured=item.measured, max_bytes=_SAMPLE_BYTES):
                yield Blob(0, _SHARE, packed(sample))
    except Exception as error:
        yield Blob(0, _FAILED, packed(_Failure(reason_of(error))))


def gather_layout(group: SlicedGroup, bucket: int, blobs: Iterator[Blob]) -> Iterator[GroupLayout | _Failure]:
    """Make the ranges of a group from the samples of its slices; runs on an executor."""
    samples: list[SliceSample] = []
    for blob in blobs:
        value = unpacked(bytes(blob.payload))
        if isinstance(value, _Failure):
            yield value
            return
        samples.append(value)
    yield group_layout(group, samples)


def scatter_rows(sort: GroupSort, task: RewriteTask) -> Iterator[Blob]:
    """Read a slice and send its rows to their ranges; runs on the executors."""
    io = job_io(sort.job)
    try:
        with remembering_silence(), limited_requests(sort.job.requests), reading_ahead(io, task):
            reader = SliceReader(sort, task, io)
            for part in reader.rows():
                yield from _row_blobs(part.bucket, part.number, to_blob(part.rows))
            for bucket, share in reader.shares.items():
                yield Blob(bucket, _SHARE, packed(share))
            yield Blob(sort.ranges.buckets, _SHARE, packed(reader.rows_read))
    except Exception as error:
        # All files of the group would be in vain: every bucket gets to know it first.
        for bucket in range(sort.ranges.buckets + 1):
            yield Blob(bucket, _FAILED, packed(_Failure(reason_of(error))))


def gather_files(sort: GroupSort, bucket: int, blobs: Iterator[Blob]) -> Iterator[BucketFiles | RowsRead | _Failure]:
    """Sort and write the ranges of a bucket; runs on the executors. The last bucket returns what was read."""
    heads: list[BucketShare | RowsRead] = []
    rows: Iterator[Blob] = iter(())
    for blob in blobs:
        if blob.rank >= 0:
            rows = itertools.chain([blob], blobs)
            break
        value = unpacked(bytes(blob.payload))
        if isinstance(value, _Failure):
            yield value
            return
        heads.append(value)
    if bucket == sort.ranges.buckets:
        yield RowsRead.joined([head for head in heads if isinstance(head, RowsRead)])
        return
    share = BucketShare.joined([head for head in heads if isinstance(head, BucketShare)])
    yield _written(sort, bucket, share, rows, job_io(sort.job))


def _written(
    sort: GroupSort, bucket: int, share: BucketShare, rows: Iterator[Blob], io: FileIO
) -> BucketFiles | _Failure:
    created: list[str] = []
    try:
        with remembering_silence(), limited_requests(sort.job.requests):
            return write_bucket(sort, bucket, share, _ranges(rows), io, created)
    except Exception as error:
        # Safe: this attempt created these files, and it returns no result that names them.
        return _Failure(reason_of(error), tuple(remove_files(io, created)))
    except BaseException:
        # A killed task: these files will not be used.
        remove_files(io, created)
        raise
    finally:
        pa.default_memory_pool().release_unused()


def _row_blobs(bucket: int, number: int, payload: pa.Buffer) -> Iterator[Blob]:
    """Yield rows as blobs within the limit of the shuffle: rows of many megabytes are cut into parts."""
    if payload.size <= MAX_BLOB_BYTES:
        yield Blob(bucket, 2 * number, payload)
        return
    step = MAX_BLOB_BYTES - _COUNT_BYTES
    starts = range(0, payload.size, step)
    for position, start in enumerate(starts):
        left = len(starts) - 1 - position
        part = payload.slice(start, min(step, payload.size - start))
        yield Blob(bucket, 2 * number + 1, left.to_bytes(_COUNT_BYTES, "little") + part.to_pybytes())


def _ranges(blobs: Iterator[Blob]) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the rows of each blob with the number of their range; parts of a blob come one after the other."""
    parts: list[bytes] = []
    for blob in blobs:
        events.stop_if_cancelled()
        number, is_part = divmod(blob.rank, 2)
        if not is_part:
            yield number, from_blob(blob.payload)
            continue
        payload = bytes(blob.payload)
        parts.append(payload[_COUNT_BYTES:])
        if int.from_bytes(payload[:_COUNT_BYTES], "little") == 0:
            yield number, from_blob(b"".join(parts))
            parts = []

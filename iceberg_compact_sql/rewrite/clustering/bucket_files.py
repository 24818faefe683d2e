"""The two stages of a group that many tasks sort together: slices to rows by range, and ranges to files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.rewrite.clustering.batches import pieces
from iceberg_compact_sql.rewrite.clustering.group_layout import GroupLayout
from iceberg_compact_sql.rewrite.clustering.read_rows import DIGEST_MASK, RangeSplitter, RowsRead, SplitRows
from iceberg_compact_sql.rewrite.clustering.sorted_files import SortedFiles
from iceberg_compact_sql.rewrite.clustering.sorted_task import OrderedJob, SortedRows
from iceberg_compact_sql.rewrite.live_rows import open_inputs
from iceberg_compact_sql.rewrite.task import OutputFile, RewriteJob, RewriteTask
from iceberg_compact_sql.rewrite.write.naming import layout_notes
from iceberg_compact_sql.rewrite.write.row_groups import DictionaryVotes
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# Rows in memory before they are sent on; gathering and sending them takes about three times as much.
_FLUSH_SHARE = 1 / 6
_PART_BYTES = 16 * 1024**2


@dataclass(frozen=True, slots=True)
class GroupSort:
    """What the tasks of both stages share. `repr` hides the job: it holds storage credentials."""

    job: RewriteJob = field(repr=False)
    group_id: int
    partition: tuple[Any, ...] | None
    ranges: GroupLayout


@dataclass(frozen=True)
class RangeRows:
    """Some rows of one range."""

    bucket: int
    number: int
    rows: pa.RecordBatch


@dataclass(frozen=True)
class BucketShare:
    """What a slice has for a bucket: its rows, by partition in a spread group, and its vote on dictionaries."""

    rows: int
    partition_rows: Counter[Hashable]
    votes: DictionaryVotes

    @staticmethod
    def joined(shares: Sequence[BucketShare]) -> BucketShare:
        votes = DictionaryVotes()
        for share in shares:
            votes.rows += share.votes.rows
            votes.held.update(share.votes.held)
        return BucketShare(
            rows=sum(share.rows for share in shares),
            partition_rows=sum((share.partition_rows for share in shares), Counter()),
            votes=votes,
        )


@dataclass(frozen=True)
class BucketFiles:
    """The files of a bucket, and the sum of the digests of the rows that were sorted into them."""

    outputs: tuple[OutputFile, ...]
    digest: int
    notes: tuple[str, ...]


class SliceReader:
    """Reads the live rows of a slice by range; afterwards `shares` and `rows_read` are complete."""

    def __init__(self, sort: GroupSort, task: RewriteTask, io: FileIO) -> None:
        self._sort = sort
        self._task = task
        self._io = io
        self._ordered = OrderedJob.of(sort.job, sort.partition)
        self._rows: Counter[int] = Counter()
        self._partition_rows: dict[int, Counter[Hashable]] = {}
        self._splitter = RangeSplitter(
            self._ordered.order,
            sort.ranges.layout,
            self._ordered.arrow_schema,
            sort.job.memory_bytes * _FLUSH_SHARE,
            None,
            checksum=sort.job.verify == "checksum",
        )

    def rows(self) -> Iterator[RangeRows]:
        """Yield the rows: the same parts in the same order on every attempt, since one thread reads them."""
        for reader in open_inputs(self._sort.job, self._task, self._io, dictionaries=True):
            with reader:
                for split in self._splitter.read(reader, self._ordered.encoder.paths_by_id):
                    yield from self._parts(split)
        for split in self._splitter.rest():
            yield from self._parts(split)

    @property
    def rows_read(self) -> RowsRead:
        return self._splitter.rows_read()

    @property
    def shares(self) -> dict[int, BucketShare]:
        """What each bucket gets; buckets without rows are left out."""
        votes = self.rows_read.votes
        return {
            bucket: BucketShare(rows, self._partition_rows.get(bucket, Counter()), votes)
            for bucket, rows in self._rows.items()
        }

    def _parts(self, split: SplitRows) -> Iterator[RangeRows]:
        for number, rows in split.parts:
            bucket = self._sort.ranges.bucket_of(number)
            self._rows[bucket] += rows.num_rows
            if self._ordered.splitter is not None:
                counts = self._partition_rows.setdefault(bucket, Counter())
                for partition, count in self._ordered.splitter.count(rows):
                    counts[exact_partition_key(partition)] += count
            step = max(1, int(rows.num_rows * min(1.0, _PART_BYTES / max(1, rows.nbytes))))
            for part in pieces(rows, step):
                yield RangeRows(bucket, number, part)


def write_bucket(
    sort: GroupSort,
    bucket: int,
    share: BucketShare,
    parts: Iterator[tuple[int, list[pa.RecordBatch]]],
    io: FileIO,
    created: list[str],
) -> BucketFiles:
    """Write the rows of a bucket, which come range by range, in order. `share` is that of all slices."""
    ordered = OrderedJob.of(sort.job, sort.partition)
    partition = sort.partition or ()

    def rows_of(key: tuple[Any, ...]) -> int:
        return share.rows if ordered.splitter is None else share.partition_rows[exact_partition_key(key)]

    digest = 0
    with SortedFiles(
        sort.job,
        ordered.task_files(io, sort.group_id, bucket, created),
        ordered.encoder,
        row_group_bytes=ordered.settings.row_group_bytes,
        dictionaries=share.votes.winners(),
        rows_of=rows_of,
        planned_files=1 if ordered.splitter is None else None,
    ) as files:
        for rows in _sorted(ordered, sort.ranges, parts):
            digest += rows.digest
            if ordered.splitter is None:
                files.add(rows.rows, partition)
            else:
                for key, its_rows in ordered.splitter.split(rows.rows):
                    files.add(its_rows, key)
        outputs = files.finish()
    return BucketFiles(outputs, digest & DIGEST_MASK, (*ordered.settings.notes, *layout_notes(sort.job.properties)))


def _sorted(
    ordered: OrderedJob, ranges: GroupLayout, parts: Iterator[tuple[int, list[pa.RecordBatch]]]
) -> Iterator[SortedRows]:
    for _, same_range in itertools.groupby(parts, lambda part: part[0]):
        batches = [batch for _, held in same_range for batch in held]
        yield ordered.sorted_rows(batches, ranges.layout)

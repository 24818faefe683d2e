"""The layout of a group that many tasks sort together: samples of its slices, ranges, and the ranges of each file."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.clustering.batches import from_blob, one_batch, pieces, to_blob
from iceberg_compact_sql.rewrite.clustering.layout import Layout
from iceberg_compact_sql.rewrite.clustering.read_rows import KeySample, sample_keys
from iceberg_compact_sql.rewrite.clustering.sorted_task import SAMPLE_ROWS_PER_RANGE, OrderedJob
from iceberg_compact_sql.rewrite.live_rows import open_inputs
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask
from iceberg_compact_sql.rewrite.write.row_groups import DictionaryVotes

_FEWEST_SAMPLE_ROWS = 20_000
# Files of equal ranges then differ by about 1 % in rows.
_SAMPLE_ROWS_PER_FILE = 8_000
_MEASURED_BYTES = 24 * 1024**2
_TIE = "tie"


@dataclass(frozen=True, slots=True)
class SlicedGroup:
    """What the tasks of a group share before its layout is known."""

    job: RewriteJob
    partition: tuple[Any, ...] | None
    input_bytes: int
    # The share of the rows whose keys are sampled.
    sample_share: float

    @classmethod
    def of(cls, job: RewriteJob, task: RewriteTask, input_bytes: int) -> SlicedGroup:
        """Plan the sample of a group, which `task` holds as a whole."""
        ordered = OrderedJob.of(job, task.partition)
        files = expected_outputs(input_bytes, job)
        ranges = math.ceil(4 * input_bytes / ordered.range_bytes)
        wanted_rows = max(_FEWEST_SAMPLE_ROWS, SAMPLE_ROWS_PER_RANGE * ranges, _SAMPLE_ROWS_PER_FILE * files)
        rows = max(1, sum(input_slice.rows for input_slice in task.inputs))
        return cls(job, task.partition, input_bytes, min(1.0, wanted_rows / rows))


@dataclass(frozen=True, slots=True)
class SliceSample:
    """Sampled keys of a slice, or a part of them, as bytes; and some rows that were sorted and encoded."""

    keys: bytes
    has_nulls: tuple[bool, ...]
    live_rows: int
    decoded_bytes: int
    measured_rows: int = 0
    measured_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """The ranges of a group, and which of them make a bucket: the rows of one file, or of some small partitions.

    `first_ranges` has the first range of each bucket. `layout` is None for a group without live rows.
    """

    layout: Layout | None
    first_ranges: tuple[int, ...]

    @property
    def buckets(self) -> int:
        return len(self.first_ranges)

    def bucket_of(self, number: int) -> int:
        """Return the bucket of a range."""
        return bisect.bisect_right(self.first_ranges, number) - 1


def sample_slice(
    group: SlicedGroup, task: RewriteTask, io: FileIO, *, measured: bool, max_bytes: int
) -> Iterator[SliceSample]:
    """Yield the sampled keys of a slice, at most about `max_bytes` at a time; `measured` encodes some rows too."""
    ordered = OrderedJob.of(group.job, task.partition)
    sample = sample_keys(group.job, task, io, ordered.schema, ordered.spread_spec, group.sample_share)
    if sample is None:
        return
    rows, size_bytes = _measure(ordered, task, io) if measured else (0, 0)
    names = [f"key{index}" for index in range(len(sample.columns))]
    batch = pa.RecordBatch.from_arrays([*sample.columns, pa.array(sample.ties)], names=[*names, _TIE])
    step = max(1, int(batch.num_rows * min(1.0, max_bytes / max(1, batch.nbytes))))
    counts = (sample.live_rows, sample.decoded_bytes, rows, size_bytes)
    for part in pieces(batch, step) if batch.num_rows else [batch]:
        yield SliceSample(to_blob(part).to_pybytes(), sample.has_nulls, *counts)
        counts = (0, 0, 0, 0)


def group_layout(group: SlicedGroup, samples: Sequence[SliceSample]) -> GroupLayout:
    """Return the ranges of a group from the samples of all its slices: buckets of equal weight."""
    if not samples:
        return GroupLayout(None, (0,))
    ordered = OrderedJob.of(group.job, group.partition)
    joined = KeySample.joined([_key_sample(sample) for sample in samples])
    files = _files(group, ordered, samples, joined.live_rows)
    by_memory = math.ceil(joined.decoded_bytes / ordered.range_bytes)
    # The partitions of a spread group get ranges by their weight: small ranges are cut more evenly.
    per_file = math.ceil(by_memory / files) if ordered.splitter is None else max(4, math.ceil(by_memory / files))
    layout = ordered.order.layout(joined.columns, joined.ties, joined.has_nulls, ranges=files * per_file)
    return GroupLayout(layout, first_ranges(layout, files))


def first_ranges(layout: Layout, files: int) -> tuple[int, ...]:
    """Return the first range of each bucket. Large partitions have buckets of their own, small ones share them."""
    weights = np.array(layout.weights or (1,) * layout.ranges, np.float64)
    file_weight = weights.sum() / files
    edges = [0, *sorted(layout.starts), layout.ranges]
    chosen: list[int] = []
    open_weight = math.inf
    for start, end in itertools.pairwise(edges):
        weight = float(weights[start:end].sum())
        count = min(end - start, max(1, round(weight / file_weight)))
        if count == 1 and open_weight + weight <= 1.25 * file_weight:
            open_weight += weight
            continue
        ends = np.cumsum(weights[start:end])
        # Behind the range whose end is nearest to the wanted weight.
        wanted = weight * np.arange(1, count) / count
        cuts = np.abs(ends[:, None] - wanted).argmin(axis=0) + 1
        chosen.extend(dict.fromkeys([start, *(int(start + cut) for cut in cuts if start + cut < end)]))
        open_weight = weight if count == 1 else math.inf
    return tuple(chosen)


def _files(group: SlicedGroup, ordered: OrderedJob, samples: Sequence[SliceSample], live_rows: int) -> int:
    """Return the number of files that the group becomes."""
    factor = group.job.compression_factor
    if factor is not None:
        return expected_outputs(int(group.input_bytes * factor), group.job)
    measured_rows = sum(sample.measured_rows for sample in samples)
    measured_bytes = sum(sample.measured_bytes for sample in samples)
    expected_bytes = live_rows * measured_bytes / measured_rows if measured_rows else group.input_bytes
    # Rounded, not cut: files that are too small would be rewritten by the next run.
    files = max(1, expected_outputs(int(expected_bytes), group.job))
    while files > 1 and expected_bytes / files < group.job.min_file_bytes:
        files -= 1
    return min(files, max(1, live_rows))


def _measure(ordered: OrderedJob, task: RewriteTask, io: FileIO) -> tuple[int, int]:
    """Sort and encode some rows of a slice; return their number and their bytes."""
    votes = DictionaryVotes()
    batches: list[pa.RecordBatch] = []
    held_bytes = 0
    for reader in open_inputs(ordered.job, task, io, dictionaries=True):
        with reader:
            for row_group in reader.row_groups:
                if reader.footer is not None and held_bytes < _MEASURED_BYTES:
                    votes.count(reader.footer, reader.footer.row_groups[row_group.index], ordered.encoder.paths_by_id)
                for batch in reader.read(row_group.index) if held_bytes < _MEASURED_BYTES else ():
                    batches.append(batch)
                    held_bytes += batch.nbytes
                    if held_bytes >= _MEASURED_BYTES:
                        break
        if held_bytes >= _MEASURED_BYTES:
            break
    if not batches:
        return 0, 0
    rows = ordered.order.sorted(one_batch(batches, ordered.arrow_schema), None)
    return rows.num_rows, ordered.encoder.encode([rows], votes.winners()).buffer.size


def _key_sample(sample: SliceSample) -> KeySample:
    [batch] = from_blob(sample.keys)
    *columns, ties = batch.columns
    return KeySample(
        columns=tuple(columns),
        ties=ties.to_numpy(),
        has_nulls=sample.has_nulls,
        live_rows=sample.live_rows,
        decoded_bytes=sample.decoded_bytes,
    )

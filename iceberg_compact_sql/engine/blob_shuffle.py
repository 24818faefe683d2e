"""A shuffle of large binary values on Spark: rows travel as Arrow blobs, not as rows of Spark.

Stage 1 runs `scatter` once for each item and emits blobs, each for one bucket. Spark's own shuffle brings the blobs of
a bucket to one task. Stage 2 runs `gather` once for each bucket that has blobs, and returns small results to the
driver. Sort and join are built on it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import itertools
import operator
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mmh3
import pyarrow as pa
from pyspark import TaskContext

from iceberg_compact_sql.engine.shipping import SparkWorkers, packed, unpacked

# The largest payload of a blob. A batch between Spark and Python holds a few blobs, so this bounds its memory.
MAX_BLOB_BYTES = 32 * 1024**2
_BLOBS_PER_BATCH = 4
# Spark ships the closure with every task: items beyond this size travel as rows.
_CLOSURE_BYTES = 1_500_000
_ARROW_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SPARK_HASH_SEED = 42
_ITEM_SCHEMA = "place int, item int, payload binary"
_BLOB_SCHEMA = "place int, bucket int, rank bigint, item int, number int, payload binary"
_RESULT_SCHEMA = "bucket int, attempt int, payload binary"
_BLOB_ORDER = ("bucket", "rank", "item", "number")
_connect_conf_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Blob:
    """A binary value on its way to a bucket. `rank` orders the blobs of a bucket.

    Blobs of one rank come in the order of their items, then in the order in which `scatter` emitted them: the same on
    every attempt of a task.
    """

    bucket: int
    rank: int
    payload: pa.Buffer | bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A result of `gather`. `repeated`: its Spark task was tried before, so files of lost attempts may exist."""

    bucket: int
    value: Any
    repeated: bool


Scatter = Callable[[Any, Any], Iterator[Blob]]
Gather = Callable[[Any, int, Iterator[Blob]], Iterator[Any]]


@dataclass(frozen=True, slots=True)
class _Stage:
    """A function at the top level of a module of this package, and its packed argument."""

    module: str
    name: str
    argument: bytes = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any], argument: object) -> _Stage:
        return cls(function.__module__, function.__name__, packed(argument))

    def bound(self) -> Callable[..., Any]:
        function = getattr(importlib.import_module(self.module), self.name)
        return functools.partial(function, unpacked(self.argument))


@dataclass(frozen=True, slots=True)
class _ScatterWork:
    stage: _Stage
    # None: the items come as rows.
    items: tuple[bytes, ...] | None = field(repr=False)
    places: tuple[int, ...]


def shuffle_blobs(
    workers: SparkWorkers,
    scatter: Scatter,
    items: Sequence[object],
    gather: Gather,
    buckets: int,
    *,
    argument: object,
    text: str,
    tasks: int | None = None,
) -> list[Gathered]:
    """Run `scatter(argument, item)` for each item and `gather(argument, bucket, blobs)` for each bucket with blobs.

    Both are functions at the top level of a module of this package. Each item is one Spark task. The buckets are spread
    over `tasks` Spark tasks, by default one for each. `gather` yields results that can be pickled, small enough for the
    driver. A task may run several times: results are those of one complete attempt. Raises the error of Spark; a
    cancelled run cancels the jobs.
    """
    if not items or buckets < 1:
        return []
    partitions = min(tasks or buckets, buckets)
    places = spark_places(partitions)
    with workers.jobs(text), _small_batches(workers) as spark:
        payloads = tuple(packed(item) for item in items)
        in_closure = sum(map(len, payloads)) <= _CLOSURE_BYTES
        work = _ScatterWork(_Stage.of(scatter, argument), payloads if in_closure else None, places)
        source = spark.range(0, len(items), 1, len(items)) if in_closure else _item_rows(spark, payloads)
        blobs = workers.map_batches(source, scatter_items, work, _BLOB_SCHEMA)
        moved = blobs.repartition(partitions, "place").sortWithinPartitions(*_BLOB_ORDER)
        rows = workers.map_batches(moved, gather_buckets, _Stage.of(gather, argument), _RESULT_SCHEMA).collect()
    return [Gathered(row["bucket"], unpacked(bytes(row["payload"])), row["attempt"] > 0) for row in rows]


def spark_places(partitions: int) -> tuple[int, ...]:
    """Return for each partition an int that Spark's hash partitioning sends there.

    >>> [mmh3.hash(place.to_bytes(4, "little"), 42) % 3 for place in spark_places(3)]
    [0, 1, 2]
    """
    places: dict[int, int] = {}
    for value in itertools.count():
        if len(places) == partitions:
            break
        # Spark's Murmur3Hash of an int, and `pmod`, which is the modulo of Python.
        places.setdefault(mmh3.hash(value.to_bytes(4, "little"), _SPARK_HASH_SEED) % partitions, value)
    return tuple(places[number] for number in range(partitions))


def scatter_items(work: _ScatterWork, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run stage 1 for the given items; runs on the executors."""
    run = work.stage.bound()
    for number, payload in _items(work, rows):
        for emitted, blob in enumerate(run(unpacked(payload))):
            buffer = pa.py_buffer(blob.payload)
            if buffer.size > MAX_BLOB_BYTES:
                raise ValueError(f"a blob of {buffer.size} bytes is above the limit of {MAX_BLOB_BYTES}")
            place = work.places[blob.bucket % len(work.places)]
            numbers = (place, blob.bucket, blob.rank, number, emitted)
            kinds = (pa.int32(), pa.int32(), pa.int64(), pa.int32(), pa.int32())
            columns = [pa.array([value], kind) for value, kind in zip(numbers, kinds, strict=True)]
            names = ["place", *_BLOB_ORDER, "payload"]
            yield pa.RecordBatch.from_arrays([*columns, _single_value(buffer)], names=names)


def gather_buckets(stage: _Stage, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run stage 2 for the buckets of a partition, which come sorted; runs on the executors."""
    run = stage.bound()
    context = TaskContext.get()
    attempt = context.attemptNumber() if context is not None else 0
    for bucket, blobs in itertools.groupby(_blobs(rows), operator.attrgetter("bucket")):
        for value in run(bucket, blobs):
            columns = [pa.array([bucket], pa.int32()), pa.array([attempt], pa.int32())]
            payload = pa.array([packed(value)], pa.binary())
            yield pa.RecordBatch.from_arrays([*columns, payload], names=["bucket", "attempt", "payload"])


def _items(work: _ScatterWork, rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in rows:
        if work.items is None:
            yield from zip(batch.column("item").to_pylist(), batch.column("payload").to_pylist(), strict=True)
        else:
            yield from ((number, work.items[number]) for number in batch.column(0).to_pylist())


def _blobs(rows: Iterator[pa.RecordBatch]) -> Iterator[Blob]:
    for batch in rows:
        names = batch.schema.names
        bucket, rank, payload = (batch.column(names.index(name)) for name in ("bucket", "rank", "payload"))
        for position in range(batch.num_rows):
            yield Blob(bucket[position].as_py(), rank[position].as_py(), payload[position].as_buffer())


def _single_value(buffer: pa.Buffer) -> pa.Array:
    """Return a binary array of one value, without a copy."""
    offsets = pa.array([0, buffer.size], pa.int32()).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), 1, [None, offsets, buffer])


def _item_rows(spark: Any, payloads: Sequence[bytes]) -> Any:
    """Return a frame with one partition for each item."""
    places = spark_places(len(payloads))
    rows = [(places[number], number, bytearray(payload)) for number, payload in enumerate(payloads)]
    return spark.createDataFrame(rows, _ITEM_SCHEMA).repartition(len(payloads), "place")


@contextlib.contextmanager
def _small_batches(workers: SparkWorkers) -> Iterator[Any]:
    """Yield a session that passes few rows at a time to Python: each row is a large blob."""
    if not workers.cluster.is_connect:
        session = workers.spark.newSession()
        session.conf.set(_ARROW_BATCH_ROWS, str(_BLOBS_PER_BATCH))
        yield session
        return
    # A Connect session has no second session with settings of its own: change the setting for a while. Queries of other
    # threads then get small batches too, which is slower but right.
    conf = workers.spark.conf
    with _connect_conf_lock:
        before = conf.get(_ARROW_BATCH_ROWS)
        conf.set(_ARROW_BATCH_ROWS, str(_BLOBS_PER_BATCH))
        try:
            yield workers.spark
        finally:
            conf.set(_ARROW_BATCH_ROWS, before)

"""Runs rewrite tasks in a Spark worker: one input row for each task, one output row for its result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from iceberg_compact_sql.engine.shipping import packed, unpacked
from iceberg_compact_sql.rewrite.run_task import run_task

RESULT_SCHEMA = "attempt int, payload binary"


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """The rewrite job and the tasks of one Spark job, each packed separately: a worker unpacks only its own tasks.

    `repr` shows neither: a job holds storage credentials.
    """

    job: bytes = field(repr=False)
    tasks: tuple[bytes, ...] = field(repr=False)


def run_task_batch(batch: TaskBatch, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the tasks with these numbers; yield each packed result with the number of the Spark attempt."""
    job = unpacked(batch.job)
    for rows in numbers:
        for number in rows.column(0).to_pylist():
            result = run_task(job, unpacked(batch.tasks[number]))
            context = TaskContext.get()
            attempt = context.attemptNumber() if context is not None else 0
            columns = [pa.array([attempt], pa.int32()), pa.array([packed(result)], pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["attempt", "payload"])

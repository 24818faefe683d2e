"""One rewrite task from its input slices to proved output files; runs in a Spark worker or in the driver."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io import FileIO, load_file_io

from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.rewrite.copy.plan import CopyPlan, may_copy, plan_copies
from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.job import job_schema, job_spec
from iceberg_compact_sql.rewrite.live_rows import InputReader, open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.task import (
    OutputFile,
    RewriteFailure,
    RewriteJob,
    RewriteResult,
    RewriteTask,
    slice_bytes,
)
from iceberg_compact_sql.rewrite.write.gather import PieceGatherer
from iceberg_compact_sql.rewrite.write.naming import OutputNames, layout_notes
from iceberg_compact_sql.rewrite.write.open_files import TaskOutputs
from iceberg_compact_sql.rewrite.write.output_file import TaskFiles
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter
from iceberg_compact_sql.rewrite.write.row_groups import PieceEncoder, ProofError
from iceberg_compact_sql.rewrite.write.settings import writer_settings
from iceberg_compact_sql.storage.remove_created import remove_files


def run_task(job: RewriteJob, task: RewriteTask) -> RewriteResult | RewriteFailure:
    """Rewrite a task's slices; live rows in = rows out is proved before a result is given.

    What goes wrong with data or storage comes back as a RewriteFailure, after its files were taken away; those that
    could not be are listed in it. Nothing is committed here, and running a task twice gives two sets of files.
    """
    started = time.monotonic()
    created: list[str] = []
    io = job_io(job)
    try:
        result = _rewrite(job, task, io, created)
    except Exception as error:
        left = remove_files(io, created)
        return RewriteFailure(task.group_id, task.output_index, reason_of(error), tuple(left))
    except BaseException:
        # An interrupt: nobody will ask for these files again.
        remove_files(io, created)
        raise
    finally:
        # A worker may wait long for its next task, and a notebook for its next cell.
        pa.default_memory_pool().release_unused()
    return replace(result, seconds=time.monotonic() - started)


def job_io(job: RewriteJob) -> FileIO:
    """The storage of the job's table."""
    return _file_io(tuple(sorted(job.io_properties.items())), job.table_location)


def reason_of(error: BaseException) -> str:
    """One line that says what went wrong, naming the file where the error does, and no credential."""
    text = " ".join(redact(error).split())
    if not text:
        return type(error).__name__
    known = isinstance(error, ProofError) or type(error).__module__.startswith("iceberg_compact_sql.")
    return text[:1000] if known else f"{type(error).__name__}: {text[:1000]}"


def _rewrite(job: RewriteJob, task: RewriteTask, io: FileIO, created: list[str]) -> RewriteResult:
    schema, spec = job_schema(job), job_spec(job, job.output_spec_id)
    arrow_schema = output_arrow_schema(job)
    settings = writer_settings(job.properties, schema)
    checksum = job.verify == "checksum"
    names = OutputNames(job, schema, spec)
    files = TaskFiles(
        io=io,
        schema=schema,
        properties=job.properties,
        spec_id=spec.spec_id,
        checksum=checksum,
        new_path=lambda partition: names.new_path(task.group_id, task.output_index, partition),
        created=created,
    )
    input_bytes = sum(slice_bytes(piece) for piece in task.inputs)
    forecast = Forecast(job, input_bytes, task.expected_ratio, settings.row_group_bytes)
    # Inputs that may be copied come first: whether they are is decided with all of them in view.
    first = [piece for piece in task.inputs if may_copy(job, task, piece)]
    rest = [piece for piece in task.inputs if not may_copy(job, task, piece)]
    readers = open_inputs(job, replace(task, inputs=(*first, *rest)), io, dictionaries=True)
    surveyed = [next(readers) for _ in first]
    try:
        plan = plan_copies(job, surveyed, sum(map(slice_bytes, rest)), settings, arrow_schema)
        encoder = PieceEncoder(schema, arrow_schema, plan.settings, checksum=checksum)
        spread = PartitionSplitter(schema, spec) if task.partition is None else None
        with (
            TaskOutputs(job, files, forecast, task.partition) as outputs,
            PieceGatherer(job, encoder, arrow_schema, forecast, outputs, spread, task.partition) as gatherer,
        ):
            _feed(gatherer, _chain(surveyed, readers), plan)
            gatherer.finish()
            finished = outputs.finish()
    finally:
        for reader in surveyed:
            reader.close()
    return _proved(task, finished, gatherer, (*settings.notes, *layout_notes(job.properties)))


def _chain(surveyed: list[InputReader], readers: Iterator[InputReader]) -> Iterator[InputReader]:
    while surveyed:
        yield surveyed.pop(0)
    yield from readers


def _feed(gatherer: PieceGatherer, readers: Iterator[InputReader], plan: CopyPlan) -> None:
    for reader in readers:
        gatherer.open(reader)
        for part in reader.parts:
            if plan.copies(reader, part):
                gatherer.copy(reader, part)
            else:
                gatherer.decode(reader, part)
        gatherer.release(reader)


def _proved(
    task: RewriteTask, finished: tuple[OutputFile, ...], gatherer: PieceGatherer, notes: tuple[str, ...]
) -> RewriteResult:
    written_rows = sum(output.rows for output in finished)
    if written_rows != gatherer.live_rows:
        raise ProofError(f"{gatherer.live_rows} live rows were read, {written_rows} were written")
    return RewriteResult(
        group_id=task.group_id,
        output_index=task.output_index,
        outputs=finished,
        live_rows=gatherer.live_rows,
        input_rows=gatherer.input_rows,
        copied_row_groups=gatherer.copied_row_groups,
        copied_bytes=gatherer.copied_bytes,
        read_bytes=gatherer.read_bytes,
        notes=notes,
    )


@functools.lru_cache(maxsize=8)
def _file_io(properties: tuple[tuple[str, str], ...], location: str) -> FileIO:
    """One FileIO a process for all tasks of a run: connections are made once."""
    pa.set_io_thread_count(max(8, pa.io_thread_count()))
    return load_file_io(dict(properties), location)

"""Runs one rewrite task, from input slices to proved output files, in a Spark worker or in the driver."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.garbage_collector import garbage_collector_off
from iceberg_compact_sql.redaction import redact, remember_secrets
from iceberg_compact_sql.rewrite.clustering.sorted_task import rewrite_in_order
from iceberg_compact_sql.rewrite.copy.gather import SpliceGatherer
from iceberg_compact_sql.rewrite.copy.lineage_chunks import lineage_columns, lineage_memory_bytes
from iceberg_compact_sql.rewrite.copy.plan import CopyPlan, may_copy, open_candidates, plan_copies
from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.job import job_schema, job_spec
from iceberg_compact_sql.rewrite.live_rows import InputReader, open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.scan.read_ahead import reading_ahead
from iceberg_compact_sql.rewrite.task import (
    OutputFile,
    RewriteFailure,
    RewriteJob,
    RewriteResult,
    RewriteTask,
    slice_bytes,
)
from iceberg_compact_sql.rewrite.write.column_encoder import ColumnEncoder
from iceberg_compact_sql.rewrite.write.gather import RowGroupGatherer
from iceberg_compact_sql.rewrite.write.naming import OutputNames, layout_notes
from iceberg_compact_sql.rewrite.write.open_files import TaskOutputs
from iceberg_compact_sql.rewrite.write.output_file import TaskFiles
from iceberg_compact_sql.rewrite.write.partitioning import PartitionSplitter
from iceberg_compact_sql.rewrite.write.row_groups import ProofError, RowGroupEncoder
from iceberg_compact_sql.rewrite.write.settings import writer_settings
from iceberg_compact_sql.storage.file_io import open_file_io
from iceberg_compact_sql.storage.remove_created import remove_files
from iceberg_compact_sql.storage.request_limit import limited_requests, request_limit
from iceberg_compact_sql.storage.silent_stores import remembering_silence


def run_task(job: RewriteJob, task: RewriteTask) -> RewriteResult | RewriteFailure:
    """Rewrite a task's slices; return a result only after the proof that live rows in = rows out.

    Errors of data or storage are returned as a RewriteFailure after the task's files are deleted; it lists files that
    could not be deleted. Nothing is committed here. Running a task twice writes two sets of files.
    """
    started = time.monotonic()
    created: list[str] = []
    io = job_io(job)
    with remembering_silence():
        return _run(job, task, io, created, started)


def _run(
    job: RewriteJob, task: RewriteTask, io: FileIO, created: list[str], started: float
) -> RewriteResult | RewriteFailure:
    try:
        rewrite = _rewrite if job.order is None else rewrite_in_order
        with limited_requests(job.requests), reading_ahead(io, task):
            result = rewrite(job, task, io, created)
    except Exception as error:
        remaining = remove_files(io, created)
        return RewriteFailure(task.group_id, task.output_index, reason_of(error), tuple(remaining))
    except BaseException:
        # An interrupt: these files will not be used.
        remove_files(io, created)
        raise
    finally:
        # Return memory to the system: a worker may wait long for its next task, and a notebook for its next cell.
        pa.default_memory_pool().release_unused()
    return replace(result, seconds=time.monotonic() - started)


def job_io(job: RewriteJob) -> FileIO:
    """Return the FileIO of the job's table."""
    # A worker of Spark is a process of its own: it has not seen the credentials of the session.
    remember_secrets(job.io_properties)
    return _file_io(tuple(sorted(job.io_properties.items())), job.table_location)


def reason_of(error: BaseException) -> str:
    """Return an error as one line, without credentials."""
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
    input_bytes = sum(slice_bytes(input_slice) for input_slice in task.inputs)
    forecast = Forecast(job, input_bytes, task.expected_ratio, settings.row_group_bytes)
    # Open all inputs first where row groups may be copied: whether they share a file depends on all of them.
    readers = open_inputs(job, task, io, dictionaries=True)
    copy_candidates: list[InputReader] = []
    try:
        # The parsed footers of all inputs stay; their number is limited.
        with garbage_collector_off():
            if may_copy(job, task):
                copy_candidates = open_candidates(readers)
            decoded_bytes = sum(map(slice_bytes, task.inputs[len(copy_candidates) :]))
            plan = plan_copies(job, copy_candidates, decoded_bytes, settings, arrow_schema)
        encoder = RowGroupEncoder(schema, arrow_schema, plan.settings, checksum=checksum)
        splitter = PartitionSplitter(schema, spec) if task.partition is None else None
        with (
            TaskOutputs(job, files, forecast, task.partition) as outputs,
            RowGroupGatherer(job, encoder, arrow_schema, forecast, outputs, splitter, task.partition) as gatherer,
            SpliceGatherer(job, plan.settings, forecast, outputs, gatherer) as splicer,
        ):
            column_encoder = ColumnEncoder(plan.settings, checksum, lineage_memory_bytes(job))
            _feed(gatherer, splicer, _chain(copy_candidates, readers), plan, column_encoder)
            splicer.flush()
            gatherer.finish()
            finished = outputs.finish()
    finally:
        for reader in copy_candidates:
            reader.close()
    return _proved_result(
        task, finished, gatherer, splicer.spliced_columns, (*settings.notes, *layout_notes(job.properties))
    )


def _chain(copy_candidates: list[InputReader], readers: Iterator[InputReader]) -> Iterator[InputReader]:
    while copy_candidates:
        yield copy_candidates.pop(0)
    yield from readers


def _feed(
    gatherer: RowGroupGatherer,
    splicer: SpliceGatherer,
    readers: Iterator[InputReader],
    plan: CopyPlan,
    encoder: ColumnEncoder,
) -> None:
    for reader in readers:
        gatherer.open(reader)
        for row_group in reader.row_groups:
            if plan.copies(reader, row_group):
                gatherer.copy(reader, row_group, lineage_columns(reader, row_group, encoder))
            elif plan.splices(reader, row_group):
                splicer.add(reader, row_group)
            else:
                gatherer.decode(reader, row_group)
        gatherer.release(reader)


def _proved_result(
    task: RewriteTask,
    finished: tuple[OutputFile, ...],
    gatherer: RowGroupGatherer,
    spliced_columns: int,
    notes: tuple[str, ...],
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
        spliced_columns=spliced_columns,
    )


@functools.lru_cache(maxsize=8)
def _file_io(properties: tuple[tuple[str, str], ...], location: str) -> FileIO:
    """Return one FileIO for all tasks of a run in this process, so that connections are reused."""
    pa.set_io_thread_count(max(8, min(request_limit().requests, 32)))
    return open_file_io(dict(properties), location)

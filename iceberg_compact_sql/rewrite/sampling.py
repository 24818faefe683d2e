"""How much a group shrinks when its small files are merged, measured on a few of them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.job import job_schema
from iceberg_compact_sql.rewrite.live_rows import open_inputs, output_arrow_schema
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from iceberg_compact_sql.rewrite.scan.read_ahead import reading_ahead
from iceberg_compact_sql.rewrite.slicing import whole_task
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.rewrite.write.row_groups import DictionaryVotes, RowGroupEncoder
from iceberg_compact_sql.rewrite.write.settings import writer_settings

_SAMPLE_BYTES = 12 * 1024**2
_SAMPLE_FILES = 12


def sampled_ratio(job: RewriteJob, group: FileGroup, io: FileIO) -> float:
    """Return output bytes per input byte; 1.0 when it does not matter or is unknown.

    It matters when a group becomes several files. Small files have footers and dictionaries that disappear in the
    merge. Outputs cut by input bytes would be below the minimum size and be rewritten again by the next run.
    """
    if group.expected_files <= 1 or group.partition is None or not _is_decoded(job, group):
        return 1.0
    chosen = _evenly_chosen_files(group)
    if not chosen:
        return 1.0
    try:
        return _encoded_ratio(job, group, io, chosen)
    except (InputFileError, OSError, pa.ArrowException, ValueError):
        # The task that reads the file reports the error.
        return 1.0


def _is_decoded(job: RewriteJob, group: FileGroup) -> bool:
    row_groups = sum(max(1, len(file.split_offsets)) for file in group.files)
    return job.copy != "auto" or group.input_bytes / max(1, row_groups) < job.copy_min_row_group_bytes


def _evenly_chosen_files(group: FileGroup) -> list[int]:
    files = group.files
    count = min(_SAMPLE_FILES, len(files))
    positions = [index * len(files) // count for index in range(count)]
    chosen: list[int] = []
    total_bytes = 0
    for position in positions:
        if total_bytes + files[position].size_bytes <= _SAMPLE_BYTES:
            chosen.append(position)
            total_bytes += files[position].size_bytes
    return chosen


def _encoded_ratio(job: RewriteJob, group: FileGroup, io: FileIO, chosen: Sequence[int]) -> float:
    schema, arrow_schema = job_schema(job), output_arrow_schema(job)
    encoder = RowGroupEncoder(schema, arrow_schema, writer_settings(job.properties, schema), checksum=False)
    votes = DictionaryVotes()
    batches: list[pa.RecordBatch] = []
    task = whole_task(group, chosen)
    with reading_ahead(io, task):
        for reader in open_inputs(job, task, io, dictionaries=True):
            with reader:
                for row_group in reader.row_groups:
                    if reader.footer is not None:
                        votes.count(reader.footer, reader.footer.row_groups[row_group.index], encoder.paths_by_id)
                    batches.extend(reader.read(row_group.index))
    input_bytes = sum(group.files[position].size_bytes for position in chosen)
    if not batches:
        return 1.0
    return int(encoder.encode(batches, votes.winners()).buffer.size) / input_bytes

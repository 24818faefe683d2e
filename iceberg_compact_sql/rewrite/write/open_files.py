"""The files that a task writes: by partition, and by Parquet schema where copied row groups keep an older one."""

from __future__ import annotations

from collections.abc import Hashable
from types import TracebackType
from typing import Any

from iceberg_compact_sql.parquet.footer import ParquetFooter
from iceberg_compact_sql.parquet.last_columns import LastColumns
from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.task import OutputFile, RewriteJob
from iceberg_compact_sql.rewrite.write.nan_counts import StoredRowGroup
from iceberg_compact_sql.rewrite.write.output_file import ChunkedRowGroup, RollingOutput, TaskFiles
from iceberg_compact_sql.rewrite.write.row_groups import EncodedRowGroup
from iceberg_compact_sql.table.partition_keys import exact_partition_key

# An open file costs a handle, and some MB of buffers on object stores.
_MAX_OPEN_FILES = 100


class TaskOutputs:
    """Writes copied and encoded row groups; leaving the block without `finish` leaves unfinished files behind.

    `partition` is None if the rows are split by partition. Their number for each partition is then unknown, and files
    roll at the target size.
    """

    def __init__(
        self, job: RewriteJob, files: TaskFiles, forecast: Forecast, partition: tuple[Any, ...] | None
    ) -> None:
        self._job = job
        self._files = files
        self._forecast = forecast
        self._partition = partition
        self._outputs: dict[Hashable, RollingOutput] = {}

    def append(self, source: Any, row_group: StoredRowGroup, last: LastColumns | None = None) -> int:
        """Copy a row group of an input, with `last` columns behind its own; return the bytes copied."""
        assert self._partition is not None
        footer = row_group.footer
        output = self._output(self._partition, footer if last is None else last.base, copying=True)
        copied_bytes = output.append(source, row_group, last)
        self._forecast.copied(footer.row_groups[row_group.index].compressed_bytes)
        return copied_bytes

    def append_encoded(self, row_group: EncodedRowGroup, partition: tuple[Any, ...]) -> None:
        self._output(partition, row_group.footer, copying=False).append_encoded(row_group)

    def append_chunks(self, row_group: ChunkedRowGroup) -> None:
        """Write a row group that was made chunk by chunk from inputs of the task's partition."""
        assert self._partition is not None
        self._output(self._partition, row_group.base, copying=False).append_chunks(row_group)

    def finish(self) -> tuple[OutputFile, ...]:
        """Close every file; return complete and proved files."""
        for output in self._outputs.values():
            output.close()
        return tuple(file for output in self._outputs.values() for file in output.finished)

    def _output(self, partition: tuple[Any, ...], footer: ParquetFooter, *, copying: bool) -> RollingOutput:
        key = (exact_partition_key(partition), footer.signature)
        output = self._outputs.pop(key, None)
        if output is None:
            if sum(other.is_open for other in self._outputs.values()) >= _MAX_OPEN_FILES:
                next(other for other in self._outputs.values() if other.is_open).close()
            output = RollingOutput(
                self._files,
                partition,
                share_bytes=lambda: self._share_bytes(copying=copying),
                max_file_bytes=self._job.max_file_bytes,
            )
        # Keep the files in order of their last use.
        self._outputs[key] = output
        return output

    def _share_bytes(self, *, copying: bool) -> float:
        if self._partition is None:
            return float(self._job.target_bytes)
        return self._forecast.file_share_bytes(copying=copying)

    def __enter__(self) -> TaskOutputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for output in self._outputs.values():
            output.abandon()

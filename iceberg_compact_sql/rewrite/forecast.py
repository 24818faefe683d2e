"""Predicts the output bytes of the rest of a task, to size its next file and row group."""

from __future__ import annotations

import math

from iceberg_compact_sql.plan.packing import expected_outputs
from iceberg_compact_sql.rewrite.task import RewriteJob


class Forecast:
    """Counts input and output bytes of a task; starts with an expected ratio and continues with the measured one."""

    def __init__(self, job: RewriteJob, input_bytes: int, expected_ratio: float, row_group_bytes: int) -> None:
        self._job = job
        self._row_group_bytes = row_group_bytes
        self._unopened_bytes = input_bytes
        self._opened_bytes = 0
        # Of the opened inputs: bytes of all row groups, and of those that are not in an output yet.
        self._data_bytes = 0.0
        self._waiting_bytes = 0.0
        self._expected_ratio = min(1.5, max(0.05, expected_ratio))
        self._read_bytes = 0.0
        self._encoded_bytes = 0.0

    @property
    def ratio(self) -> float:
        """Return output bytes per input byte, of rows that are decoded and encoded."""
        # No output, for example when all rows so far were deleted, says nothing about the next rows.
        measured = self._encoded_bytes > 0 and self._read_bytes > 0
        return self._encoded_bytes / self._read_bytes if measured else self._expected_ratio

    def opened(self, slice_bytes: int, data_bytes: int) -> None:
        """Record that an input was opened: `data_bytes` of the slice are row groups, the rest is footer."""
        self._unopened_bytes -= slice_bytes
        self._opened_bytes += slice_bytes
        self._data_bytes += data_bytes
        self._waiting_bytes += data_bytes

    def copied(self, source_bytes: int) -> None:
        self._waiting_bytes -= source_bytes

    def encoded(self, source_bytes: float, written_bytes: int) -> None:
        """Record that `source_bytes` of input became `written_bytes` of output."""
        self._waiting_bytes -= source_bytes
        self._read_bytes += source_bytes
        self._encoded_bytes += written_bytes

    def _left_bytes(self) -> float:
        density = self._data_bytes / self._opened_bytes if self._opened_bytes else 1.0
        return max(0.0, self._waiting_bytes + self._unopened_bytes * density)

    def file_share_bytes(self, *, copying: bool = False) -> float:
        """Return the bytes of the next file: all that is left if it fits one file, else an even share of it."""
        left_bytes = self._left_bytes() * (1.0 if copying else self.ratio)
        if left_bytes <= self._job.roll_bytes:
            # A smaller limit would only cut off a small last file.
            return float(self._job.max_file_bytes)
        return left_bytes / expected_outputs(int(left_bytes), self._job)

    def row_group_source_bytes(self) -> float:
        """Return the input bytes of one output row group, so that a file's row groups have even sizes."""
        share_bytes = min(self.file_share_bytes(), max(1.0, self._left_bytes() * self.ratio))
        row_groups = max(1, math.ceil(0.98 * share_bytes / self._row_group_bytes))
        return max(1.0, share_bytes / row_groups / self.ratio)

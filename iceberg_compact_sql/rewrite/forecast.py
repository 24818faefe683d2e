"""How large the rest of a task will come out, and so how large its next file and row group should be."""

from __future__ import annotations

import math

from iceberg_compact_sql.rewrite.slicing import files_for
from iceberg_compact_sql.rewrite.task import RewriteJob


class Forecast:
    """Keeps the account of bytes in and out of a task; starts from an expectation and goes on with the measure."""

    def __init__(self, job: RewriteJob, input_bytes: int, expected_ratio: float, row_group_bytes: int) -> None:
        self._job = job
        self._row_group_bytes = row_group_bytes
        self._unopened_bytes = input_bytes
        self._opened_bytes = 0
        # Of the opened inputs: bytes of row groups in all, and of those that are not in an output yet.
        self._data_bytes = 0.0
        self._waiting_bytes = 0.0
        self._expected_ratio = min(1.5, max(0.05, expected_ratio))
        self._read_bytes = 0.0
        self._encoded_bytes = 0.0

    @property
    def ratio(self) -> float:
        """Bytes out for a byte in, of what is decoded and encoded."""
        # Nothing out of so much in, as where all rows so far were deleted, says nothing of the rows to come.
        measured = self._encoded_bytes > 0 and self._read_bytes > 0
        return self._encoded_bytes / self._read_bytes if measured else self._expected_ratio

    def opened(self, slice_bytes: int, data_bytes: int) -> None:
        """An input was opened: so much of it is row groups, the rest is footer and does not come out again."""
        self._unopened_bytes -= slice_bytes
        self._opened_bytes += slice_bytes
        self._data_bytes += data_bytes
        self._waiting_bytes += data_bytes

    def copied(self, source_bytes: int) -> None:
        self._waiting_bytes -= source_bytes

    def encoded(self, source_bytes: float, written_bytes: int) -> None:
        """So many bytes of the inputs are in an output now, as so many."""
        self._waiting_bytes -= source_bytes
        self._read_bytes += source_bytes
        self._encoded_bytes += written_bytes

    def _left_bytes(self) -> float:
        density = self._data_bytes / self._opened_bytes if self._opened_bytes else 1.0
        return max(0.0, self._waiting_bytes + self._unopened_bytes * density)

    def file_share_bytes(self, *, copying: bool = False) -> float:
        """Bytes of the file that is opened next: all that is left if that is one file, else an even share of it."""
        left_bytes = self._left_bytes() * (1.0 if copying else self.ratio)
        if left_bytes <= self._job.roll_bytes:
            # The limit would only cut off a needless tail.
            return float(self._job.max_file_bytes)
        return left_bytes / files_for(int(left_bytes), self._job)

    def piece_source_bytes(self) -> float:
        """Bytes of the inputs that make one row group, so that a file's row groups come out even."""
        share_bytes = min(self.file_share_bytes(), max(1.0, self._left_bytes() * self.ratio))
        pieces = max(1, math.ceil(0.98 * share_bytes / self._row_group_bytes))
        return max(1.0, share_bytes / pieces / self.ratio)

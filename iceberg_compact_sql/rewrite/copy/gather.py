"""Gathers small row groups of the inputs until they fill an output row group, and has them spliced."""

from __future__ import annotations

from iceberg_compact_sql.rewrite.copy.splice import SPLICE_ERRORS, InputRowGroup, RowGroupSplicer
from iceberg_compact_sql.rewrite.forecast import Forecast
from iceberg_compact_sql.rewrite.live_rows import InputReader, SliceRowGroup
from iceberg_compact_sql.rewrite.scan.inputs import InputFileError
from iceberg_compact_sql.rewrite.task import RewriteJob
from iceberg_compact_sql.rewrite.write.column_encoder import ColumnEncoder
from iceberg_compact_sql.rewrite.write.encoding_threads import EncodingThreads
from iceberg_compact_sql.rewrite.write.gather import RowGroupGatherer
from iceberg_compact_sql.rewrite.write.open_files import TaskOutputs
from iceberg_compact_sql.rewrite.write.row_groups import ProofError
from iceberg_compact_sql.rewrite.write.settings import WriterSettings

# Parsed metadata of the chunks of one output row group: about 3 KB each.
_MAX_CHUNKS = 30_000
# Smaller files are held in memory while they wait: an output row group of them would need too many open files.
_HELD_BELOW_BYTES = 512 * 1024


class SpliceGatherer(EncodingThreads):
    """Row groups that wait for being spliced; one that cannot be spliced is decoded by the other gatherer."""

    def __init__(
        self,
        job: RewriteJob,
        settings: WriterSettings,
        forecast: Forecast,
        outputs: TaskOutputs,
        gatherer: RowGroupGatherer,
    ) -> None:
        self._forecast = forecast
        self._outputs = outputs
        self._gatherer = gatherer
        super().__init__(job, "splice")
        max_bytes = job.memory_bytes // (3 * max(2, job.threads))
        encoder = ColumnEncoder(settings, job.verify == "checksum", max_bytes)
        self._splicer = RowGroupSplicer(settings, encoder, self._pool)
        self._waiting: list[InputRowGroup] = []
        self._waiting_bytes = 0
        self.spliced_columns = 0

    def add(self, reader: InputReader, row_group: SliceRowGroup) -> None:
        """Take a row group without deletes; may write the row groups that wait."""
        if row_group.rows == 0:
            return
        if self._waiting and not self._has_room(reader, row_group):
            self.flush()
        self._gatherer.keep(reader)
        if reader.slice.size_bytes < _HELD_BELOW_BYTES:
            reader.hold()
        self._waiting.append(InputRowGroup(reader, row_group))
        self._waiting_bytes += row_group.compressed_bytes

    def flush(self) -> None:
        """Write the waiting row groups as one, or decode them if that is not possible."""
        waiting, self._waiting = self._waiting, []
        source_bytes, self._waiting_bytes = self._waiting_bytes, 0
        if not waiting:
            return
        try:
            made = self._splicer.splice(waiting)
        except (ProofError, InputFileError):
            raise
        except SPLICE_ERRORS:
            for entry in waiting:
                self._gatherer.decode(entry.reader, entry.row_group)
        else:
            self._outputs.append_chunks(made.row_group)
            self._forecast.encoded(source_bytes, made.row_group.size_bytes)
            self.spliced_columns += made.spliced_columns
            for entry in waiting:
                self._gatherer.count_spliced(entry.row_group)
        for entry in waiting:
            self._gatherer.unkeep(entry.reader)

    def _has_room(self, reader: InputReader, row_group: SliceRowGroup) -> bool:
        first = self._waiting[0].base
        assert reader.base is not None
        return (
            reader.base.signature == first.signature
            and (len(self._waiting) + 1) * len(first.leaves) <= _MAX_CHUNKS
            and self._waiting_bytes + row_group.compressed_bytes / 2 <= self._forecast.row_group_source_bytes()
        )

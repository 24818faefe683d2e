"""The strategy `binpack`: groups are cut into slices of files, one task for each output file."""

from __future__ import annotations

from pyiceberg.io import FileIO

from iceberg_compact_sql.engine.task_runner import TaskRunner
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.sampling import sampled_ratio
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import RewriteTask


class BinpackRunner(TaskRunner):
    """Merges files: rows keep the order in which they are read."""

    def tasks_of(self, group: FileGroup, io: FileIO) -> tuple[RewriteTask, ...]:
        return cut_group(group, self.job, expected_ratio=sampled_ratio(self.job, group, io))

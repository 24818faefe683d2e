"""The strategies `sort`, `zorder` and `hilbert`: the rows of each group are written in one order."""

from __future__ import annotations

from pyiceberg.io import FileIO

from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.engine.task_runner import TaskRunner
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.slicing import whole_task
from iceberg_compact_sql.rewrite.task import RewriteTask


class ClusterRunner(TaskRunner):
    """Writes the rows of each group in the job's order: a group is one task, which spills to disk if it must."""

    def __init__(self, run: RewriteRun) -> None:
        if run.job.order is None:
            raise InvalidArgumentError(
                "the strategy needs an order of rows, and none is given",
                argument="sort_order",
                hint="Give sort_order, such as 'id DESC NULLS LAST' or 'zorder(a, b)'.",
            )
        super().__init__(run)

    def tasks_of(self, group: FileGroup, io: FileIO) -> tuple[RewriteTask, ...]:
        return (whole_task(group, range(len(group.files))),)

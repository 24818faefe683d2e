"""The strategies `sort`, `zorder` and `hilbert`: the rows of each group are written in one order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.job_labels import tagged
from iceberg_compact_sql.engine.renewed_job import RenewedJob
from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.engine.sort_shuffle import ShuffledGroup, sort_group
from iceberg_compact_sql.engine.spark_tasks import PackedTask, SparkTasks, failed_batch
from iceberg_compact_sql.engine.task_pool import TaskPool, TaskResults
from iceberg_compact_sql.engine.task_runner import TaskRunner
from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.slicing import even_slices, whole_task
from iceberg_compact_sql.rewrite.task import RewriteJob, RewriteTask

# Rows take about so many times the bytes of their file.
_USUAL_GROWTH = 4
# Input bytes of a task that reads: large enough for its start, small enough for every core of the cluster.
_LARGEST_SLICE_BYTES = 128 * 1024**2
_SMALLEST_SLICE_BYTES = 8 * 1024**2


class ClusterRunner(TaskRunner):
    """Writes the rows of each group in the job's order.

    A group is one task, which spills to disk if it must. On Spark, a group above the limit is sorted by many tasks.
    """

    def __init__(self, run: RewriteRun) -> None:
        if run.job.order is None:
            raise InvalidArgumentError(
                "the strategy needs an order of rows, and none is given",
                argument="sort_order",
                hint="Give sort_order, such as 'id DESC NULLS LAST' or 'zorder(a, b)'.",
            )
        super().__init__(run)
        self._groups: dict[int, FileGroup] = {}

    def tasks_of(self, group: FileGroup, io: FileIO) -> tuple[RewriteTask, ...]:
        self._groups[group.group_id] = group
        return (whole_task(group, range(len(group.files))),)

    def spark_pool(self, tasks: Sequence[RewriteTask]) -> TaskPool:
        limit_bytes = shuffle_limit_bytes(self.job, self.settings.shuffle_bytes)
        large = {number: group for number, group in self._groups.items() if group.input_bytes > limit_bytes}
        return ClusterTasks(self.settings, self.renewing, tasks, large)


def shuffle_limit_bytes(job: RewriteJob, setting_bytes: int | None) -> int:
    """Return the input bytes of the largest group that one task sorts: by default what it can hold in memory."""
    return job.memory_bytes // _USUAL_GROWTH if setting_bytes is None else setting_bytes


class ClusterTasks(SparkTasks):
    """Runs groups as Spark tasks, one for each; those in `large` on Spark's shuffle."""

    def __init__(
        self, run: RewriteRun, renewing: RenewedJob, tasks: Sequence[RewriteTask], large: Mapping[int, FileGroup]
    ) -> None:
        super().__init__(run, renewing, [task for task in tasks if task.group_id not in large])
        self._large = large
        # Large groups first: the small ones fill the cluster at the end.
        self._batches.extendleft([(task, b"")] for task in tasks if task.group_id in large)

    def _run(self, batch: Sequence[PackedTask]) -> TaskResults:
        group = self._large.get(batch[0][0].group_id)
        return super()._run(batch) if group is None else self._sort(batch, group)

    def _sort(self, batch: Sequence[PackedTask], group: FileGroup) -> TaskResults:
        [(task, _)] = batch
        slots = self._cluster.slots
        by_slots = min(slots, math.ceil(group.input_bytes / _SMALLEST_SLICE_BYTES))
        slices = even_slices(group, max(by_slots, math.ceil(group.input_bytes / _LARGEST_SLICE_BYTES)))
        try:
            with tagged(self._spark, self._tag):
                events.reach("rewrite.job", tasks=len(slices))
                job = replace(self._renewing.current(), threads=self._cluster.task_cpus)
                shuffled = ShuffledGroup(task, slices, group.input_bytes)
                result, repeated = sort_group(self._workers, job, shuffled, self._description)
        except Exception as error:
            return failed_batch(batch, error)
        # An executor that is lost between the stages makes Spark run a stage again. Its tasks count as first attempts.
        return TaskResults((result,), repeated=repeated or not self._cluster.is_local)

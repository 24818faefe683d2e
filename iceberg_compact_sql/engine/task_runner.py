"""What the strategies share: the tasks of all groups run in one pool, and each group gets one outcome."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import replace

from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.cluster import LOCAL_DRIVER_BYTES, Cluster
from iceberg_compact_sql.engine.group_results import GroupResults
from iceberg_compact_sql.engine.in_process import InProcessTasks
from iceberg_compact_sql.engine.renewed_job import RenewedJob
from iceberg_compact_sql.engine.runner import RewriteProgress, RewriteRun
from iceberg_compact_sql.engine.spark_tasks import SparkTasks
from iceberg_compact_sql.engine.task_pool import TaskPool
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.rewrite.job import job_schema, job_spec
from iceberg_compact_sql.rewrite.run_task import job_io
from iceberg_compact_sql.rewrite.task import GroupOutcome, RewriteJob, RewriteTask
from iceberg_compact_sql.rewrite.write.naming import OutputNames, location_provider
from iceberg_compact_sql.storage.remove_created import find_lost_files, remove_files
from iceberg_compact_sql.table.properties import OBJECT_STORAGE_ENABLED, PYTHON_LOCATION_PROVIDER

_log = masked_logger(__name__)
# A plan of more tasks runs on the cluster, whatever its size, unless the user has set `driver_bytes`.
DRIVER_TASKS = 32


class TaskRunner(ABC):
    """A `GroupRunner` that cuts groups into tasks: threads of this process for small plans, else Spark jobs."""

    def __init__(self, run: RewriteRun) -> None:
        # The names are unique to this call. Files of another call of the same run may be committed already: the
        # search for lost files must not find them.
        self.job = replace(run.job, run_id=f"{run.job.run_id}-{uuid.uuid4().hex[:8]}")
        self.settings = run
        self.renewing = RenewedJob(self.job, run.renewed_io)

    def run(self, groups: Sequence[FileGroup]) -> Generator[GroupOutcome, None, None]:
        """Rewrite the groups; see `GroupRunner` for the guarantees."""
        io = job_io(self.job)
        tasks = {group.group_id: self.tasks_of(group, io) for group in groups}
        rows_by_group = {group.group_id: sum(file.rows for file in group.files) for group in groups}
        group_results = GroupResults(io, tasks, rows_by_group)
        all_tasks = [task for group in tasks.values() for task in group]
        input_bytes = sum(group.input_bytes for group in groups)
        events.reach("rewrite.start", tasks=len(all_tasks), input_bytes=input_bytes)
        pool = self._pool(all_tasks, input_bytes)
        tasks_done = 0
        finished = False
        try:
            for completed in pool.results(group_results.is_failing):
                for result in completed.results:
                    tasks_done += 1
                    if self.settings.on_progress is not None:
                        self.settings.on_progress(RewriteProgress(tasks_done, len(all_tasks)))
                    events.reach("rewrite.result", group_id=result.group_id)
                    outcome = group_results.add(result)
                    if outcome is not None:
                        yield outcome
            finished = True
        finally:
            pool.stop()
            if not finished:
                group_results.abandon()
            if pool.may_have_lost_files or not finished:
                current = self.renewing.current()
                _remove_lost(current, job_io(current), groups, group_results)

    @abstractmethod
    def tasks_of(self, group: FileGroup, io: FileIO) -> tuple[RewriteTask, ...]:
        """Cut a group into its tasks."""

    def spark_pool(self, tasks: Sequence[RewriteTask]) -> TaskPool:
        """Return the pool that runs the tasks on Spark."""
        return SparkTasks(self.settings, self.renewing, tasks)

    def _pool(self, tasks: Sequence[RewriteTask], input_bytes: int) -> TaskPool:
        run = self.settings
        if (run.spark is None and run.start_spark is None) or self._fits_driver(len(tasks), input_bytes):
            return InProcessTasks(self.renewing, tasks)
        if run.spark is None and run.start_spark is not None:
            self.settings = replace(run, spark=run.start_spark())
        return self.spark_pool(tasks)

    def _fits_driver(self, tasks: int, input_bytes: int) -> bool:
        if self.settings.driver_bytes is not None:
            return 0 < self.settings.driver_bytes >= input_bytes
        spark = self.settings.spark
        # A session that is not started yet will be a local one.
        limit = LOCAL_DRIVER_BYTES if spark is None else Cluster.of(spark).driver_bytes
        return tasks <= DRIVER_TASKS and input_bytes <= limit


def _remove_lost(job: RewriteJob, io: FileIO, groups: Sequence[FileGroup], group_results: GroupResults) -> None:
    """Remove files of killed and repeated attempts: their names have the run's id, and no result lists them."""
    names = OutputNames(job, job_schema(job), job_spec(job, job.output_spec_id))
    folder_per_partition = not OBJECT_STORAGE_ENABLED.of(job.properties)
    custom_provider = PYTHON_LOCATION_PROVIDER.name in job.properties
    partitions = {group.partition for group in groups}
    if folder_per_partition and not custom_provider and None not in partitions:
        folders = [
            names.new_path(0, 0, partition).rpartition("/")[0] for partition in partitions if partition is not None
        ]
        lost = find_lost_files(io, job.run_id, folders, group_results.accepted_paths, deep=False)
    else:
        data_path = location_provider(job.table_location, job.properties).data_path
        lost = find_lost_files(io, job.run_id, [data_path], group_results.accepted_paths, deep=True)
    if lost:
        _log.info("removing %d files that lost attempts of this run left behind", len(lost))
        remove_files(io, lost)

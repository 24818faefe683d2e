"""Rewrite tasks as Spark jobs: one Spark task for each rewrite task, without a shuffle."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

from pyspark.util import inheritable_thread_target

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.group_results import SKIPPED
from iceberg_compact_sql.engine.job_labels import described, interrupt, tagged
from iceberg_compact_sql.engine.killed_tasks import await_killed_tasks
from iceberg_compact_sql.engine.renewed_job import RenewedJob
from iceberg_compact_sql.engine.runner import RewriteRun
from iceberg_compact_sql.engine.shipping import SparkWorkers, packed, unpacked
from iceberg_compact_sql.engine.spark_errors import describe_error, missing_package
from iceberg_compact_sql.engine.task_pool import CANCEL_CHECK_SECONDS, TaskResult, TaskResults
from iceberg_compact_sql.engine.worker import RESULT_SCHEMA, TaskBatch, run_task_batch
from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteTask

_log = masked_logger(__name__)

# Spark ships the closure with every task.
_CLOSURE_BYTES = 1_500_000
_JOBS_AT_ONCE = 2
_TASKS_PER_SLOT = 4
_MAX_JOBS = 50

PackedTask = tuple[RewriteTask, bytes]


class SparkTasks:
    """Runs tasks in batches; each batch is one Spark job.

    Several jobs run at once, so that the last task of one job does not leave the cluster idle.
    """

    def __init__(self, run: RewriteRun, renewing: RenewedJob, tasks: Sequence[RewriteTask]) -> None:
        self._spark = run.spark
        self._workers = SparkWorkers(run.spark)
        self._cluster = self._workers.cluster
        self._renewing = renewing
        self._description = run.description
        self._tag = f"iceberg-compact-{renewing.current().run_id}"
        at_once = min(self._cluster.slots, len(tasks))
        cores = self._cluster.slots // max(1, at_once) if self._cluster.is_local else self._cluster.task_cpus
        self._threads = max(1, cores)
        self._jobs_at_once = run.max_concurrent_groups or _JOBS_AT_ONCE
        by_group = run.max_concurrent_groups is not None
        self._batches = deque(_batches(tasks, self._cluster.slots, by_group=by_group))
        self._pool = events.ThreadPool(self._jobs_at_once, "spark-job")
        self._running: set[Future[TaskResults]] = set()
        self.may_have_lost_files = self._cluster.speculates

    def results(self, is_failing: Callable[[int], bool]) -> Iterator[TaskResults]:
        while self._batches or self._running:
            # Raises when the run was cancelled; `stop` interrupts the jobs then.
            events.stop_if_cancelled()
            while self._batches and len(self._running) < self._jobs_at_once:
                batch = self._batches.popleft()
                skipped = [task for task, _ in batch if is_failing(task.group_id)]
                wanted = [(task, payload) for task, payload in batch if not is_failing(task.group_id)]
                if skipped:
                    yield TaskResults(tuple(RewriteFailure(t.group_id, t.output_index, SKIPPED) for t in skipped))
                if wanted:
                    # Wrapped for each job: the local properties of the calling thread are copied at this moment.
                    inheriting = inheritable_thread_target(self._spark)
                    target = inheriting(self._run) if inheriting is not self._spark else self._run
                    self._running.add(self._pool.submit(target, wanted))
            if self._running:
                completed, self._running = wait(
                    self._running, timeout=CANCEL_CHECK_SECONDS, return_when=FIRST_COMPLETED
                )
                for future in completed:
                    task_results = future.result()
                    self.may_have_lost_files = self.may_have_lost_files or task_results.repeated
                    yield task_results

    def stop(self) -> None:
        """Cancel running jobs, and wait until none of their tasks writes."""
        interrupted = bool(self._running)
        if interrupted:
            self.may_have_lost_files = True
            self._interrupt_jobs()
        self._pool.shutdown(wait=True, cancel_futures=True)
        if interrupted or self._cluster.speculates:
            await_killed_tasks(self._spark, self._cluster, cancelled=interrupted)

    def _interrupt_jobs(self) -> None:
        """Cancel running jobs until none is left: a thread may start its job only after the first attempt."""
        waiting = {future for future in self._running if not future.cancel()}
        while waiting:
            interrupt(self._spark, self._tag)
            waiting = wait(waiting, timeout=CANCEL_CHECK_SECONDS).not_done

    def _run(self, batch: Sequence[PackedTask]) -> TaskResults:
        try:
            with tagged(self._spark, self._tag), described(self._spark, self._description):
                events.reach("rewrite.job", tasks=len(batch))
                job = packed(replace(self._renewing.current(), threads=self._threads))
                work = TaskBatch(job, tuple(payload for _, payload in batch))
                numbers = self._spark.range(0, len(batch), 1, len(batch))
                rows = self._workers.map_batches(numbers, run_task_batch, work, RESULT_SCHEMA).collect()
        except Exception as error:
            return failed_batch(batch, error)
        results = tuple(unpacked(bytes(row["payload"])) for row in rows)
        return TaskResults(_complete(batch, results), repeated=any(row["attempt"] > 0 for row in rows))


def _batches(tasks: Sequence[RewriteTask], slots: int, *, by_group: bool) -> Iterator[list[PackedTask]]:
    """Yield one batch of tasks for each Spark job, in the given order, with the pickled bytes of each task."""
    limit = max(_TASKS_PER_SLOT * slots, -(-len(tasks) // _MAX_JOBS))
    for _, members in itertools.groupby(tasks, key=lambda task: task.group_id if by_group else None):
        batch: list[PackedTask] = []
        size_bytes = 0
        for task in members:
            payload = packed(task)
            if batch and (len(batch) >= limit or size_bytes + len(payload) > _CLOSURE_BYTES):
                yield batch
                batch, size_bytes = [], 0
            batch.append((task, payload))
            size_bytes += len(payload)
        yield batch


def failed_batch(batch: Sequence[PackedTask], error: Exception) -> TaskResults:
    """Return a failure for each task of a job that failed as a whole, as when it was cancelled."""
    missing = missing_package(error)
    if missing is not None:
        raise missing from None
    text = describe_error(error)
    _log.warning("a rewrite job of %d tasks failed: %s", len(batch), text)
    failures = (RewriteFailure(task.group_id, task.output_index, f"Spark job failed: {text}") for task, _ in batch)
    return TaskResults(tuple(failures), repeated=True)


def _complete(batch: Sequence[PackedTask], results: Sequence[TaskResult]) -> tuple[TaskResult, ...]:
    """Return exactly one result for each task; a task without a result has failed."""
    keys = {(result.group_id, result.output_index) for result in results}
    missing = (
        RewriteFailure(task.group_id, task.output_index, "the task returned no result")
        for task, _ in batch
        if (task.group_id, task.output_index) not in keys
    )
    return (*results, *missing)

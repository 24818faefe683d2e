"""Rewrite tasks in threads of this process: for small plans, and where there is no Spark session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.group_results import SKIPPED
from iceberg_compact_sql.engine.renewed_job import RenewedJob
from iceberg_compact_sql.engine.task_pool import CANCEL_CHECK_SECONDS, TaskResult, TaskResults
from iceberg_compact_sql.rewrite.run_task import run_task
from iceberg_compact_sql.rewrite.task import RewriteFailure, RewriteJob, RewriteTask, slice_bytes
from iceberg_compact_sql.storage.locations import split_location

# Small tasks on a remote store wait most of the time: more of them than cores run at the same time.
_SMALL_TASK_BYTES = 16 * 1024**2
_SMALL_TASKS_AT_ONCE = 8


class InProcessTasks:
    """Runs tasks in a pool of threads that share the cores and the memory of the job."""

    def __init__(self, renewing: RenewedJob, tasks: Sequence[RewriteTask]) -> None:
        job = renewing.current()
        at_once = max(1, min(_tasks_at_once(job, tasks), len(tasks)))
        self._renewing = renewing
        self._threads = max(1, job.threads // at_once)
        self._memory_bytes = job.memory_bytes // at_once
        self._tasks = deque(tasks)
        self._at_once = at_once
        self._pool = events.ThreadPool(at_once, "rewrite")
        self._running: set[Future[TaskResult]] = set()
        self.may_have_lost_files = False

    def results(self, is_failing: Callable[[int], bool]) -> Iterator[TaskResults]:
        while self._tasks or self._running:
            events.stop_if_cancelled()
            while self._tasks and len(self._running) < self._at_once:
                task = self._tasks.popleft()
                if is_failing(task.group_id):
                    yield TaskResults((RewriteFailure(task.group_id, task.output_index, SKIPPED),))
                    continue
                job = replace(self._renewing.current(), threads=self._threads, memory_bytes=self._memory_bytes)
                self._running.add(self._pool.submit(run_task, job, task))
            if self._running:
                completed, self._running = wait(
                    self._running, timeout=CANCEL_CHECK_SECONDS, return_when=FIRST_COMPLETED
                )
                # `result` raises the exception of a cancelled task.
                yield TaskResults(tuple(future.result() for future in completed))

    def stop(self) -> None:
        """Wait for running tasks: only a finished task can list its files. A cancelled task ends after its batch."""
        self.may_have_lost_files = bool(self._running)
        self._pool.shutdown(wait=True, cancel_futures=True)


def _tasks_at_once(job: RewriteJob, tasks: Sequence[RewriteTask]) -> int:
    small = all(sum(map(slice_bytes, task.inputs)) <= _SMALL_TASK_BYTES for task in tasks)
    remote = not split_location(job.table_location).is_local
    return max(job.threads, min(_SMALL_TASKS_AT_ONCE, job.requests)) if small and remote else job.threads

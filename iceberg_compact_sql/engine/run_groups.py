"""Tasks spread over a Spark cluster, or run in this process when they are few and small; outcomes as they finish."""

from __future__ import annotations

import itertools
import logging
import re
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.io import FileIO
from pyspark.util import inheritable_thread_target

from iceberg_compact_sql import events
from iceberg_compact_sql.engine.group_results import SKIPPED, GroupAccounts
from iceberg_compact_sql.engine.shipping import RESULT_SCHEMA, packed, unpacked_result, worker_function
from iceberg_compact_sql.errors import MissingDependencyError
from iceberg_compact_sql.plan.model import FileGroup
from iceberg_compact_sql.rewrite.job import job_schema, job_spec
from iceberg_compact_sql.rewrite.run_task import job_io, run_task
from iceberg_compact_sql.rewrite.sampling import sampled_ratio
from iceberg_compact_sql.rewrite.slicing import cut_group
from iceberg_compact_sql.rewrite.task import GroupOutcome, RewriteFailure, RewriteJob, RewriteResult, RewriteTask
from iceberg_compact_sql.rewrite.write.naming import OutputNames, location_provider
from iceberg_compact_sql.storage.remove_created import find_lost_files, remove_files

_log = logging.getLogger("iceberg_compact_sql")

# Below this a Spark job costs more than it saves: its floor is 0.2 s, and a second for a fresh Python worker.
IN_PROCESS_BYTES = 64 * 1024**2
IN_PROCESS_TASKS = 32
_LOCAL_FACTOR = 8
# What a task closure may weigh; Spark ships it with every task.
_CLOSURE_BYTES = 1_500_000
_JOBS_AT_ONCE = 2
_TASKS_PER_SLOT = 4
# Spark looks every 2 s whether a task was killed, and gives its Python worker 2 s (spark.python.task.killTimeout).
_LOSERS_SECONDS = 6.0
# Credentials that catalogs lend live for a quarter of an hour at least.
RENEW_AFTER_S = 300.0
_MAX_JOBS = 50

TaskResult = RewriteResult | RewriteFailure


@dataclass(frozen=True, slots=True)
class RewriteProgress:
    """How far a run is; told after every task, or every Spark job of tasks."""

    tasks_done: int
    tasks_total: int
    files_written: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a batch of tasks came to; `repeated` if some attempt may have left files that no result names."""

    results: tuple[TaskResult, ...]
    repeated: bool = False


def rewrite_groups(
    spark: Any,
    job: RewriteJob,
    groups: Sequence[FileGroup],
    *,
    description: str,
    max_concurrent_groups: int | None = None,
    on_progress: Callable[[RewriteProgress], None] | None = None,
    renewed_io: Callable[[], Mapping[str, str]] | None = None,
) -> Iterator[GroupOutcome]:
    """Rewrite groups and give each one's outcome exactly once, as it is known; nothing is committed.

    Small plans, and all plans where `spark` is None, run in this process. When the iterator is closed early, or
    interrupted, running Spark jobs are cancelled and the files of groups not handed out are removed. `renewed_io` is
    asked now and then for the storage's properties as they are by then.
    """
    # Names of this call alone: another one of the same run may have handed out files that are committed by now, and
    # the search for lost files must not see those.
    job = replace(job, run_id=f"{job.run_id}-{uuid.uuid4().hex[:8]}")
    renewing = RenewedJob(job, renewed_io)
    io = job_io(job)
    tasks = {group.group_id: cut_group(group, job, expected_ratio=sampled_ratio(job, group, io)) for group in groups}
    flat = [task for group in tasks.values() for task in group]
    input_bytes = sum(group.input_bytes for group in groups)
    events.reach("rewrite.start", tasks=len(flat), input_bytes=input_bytes)
    rows_by_group = {group.group_id: sum(file.rows for file in group.files) for group in groups}
    accounts = GroupAccounts(io, tasks, rows_by_group)
    in_process = spark is None or (input_bytes <= _in_process_bytes(spark) and len(flat) <= IN_PROCESS_TASKS)
    runner: _InProcess | _OnSpark
    if in_process:
        runner = _InProcess(renewing, flat)
    else:
        runner = _OnSpark(spark, renewing, flat, description=description, max_concurrent_groups=max_concurrent_groups)
    done = files = written_bytes = 0
    finished = False
    try:
        for answer in runner.answers(accounts.is_failing):
            for result in answer.results:
                done += 1
                if isinstance(result, RewriteResult):
                    files += len(result.outputs)
                    written_bytes += sum(output.size_bytes for output in result.outputs)
                if on_progress is not None:
                    on_progress(RewriteProgress(done, len(flat), files, written_bytes))
                events.reach("rewrite.result", group_id=result.group_id)
                outcome = accounts.take(result)
                if outcome is not None:
                    yield outcome
        finished = True
    finally:
        runner.stop()
        if not finished:
            accounts.abandon()
        if runner.may_have_lost_files or not finished:
            current = renewing.current()
            _remove_lost(current, job_io(current), groups, accounts)


class RenewedJob:
    """A job with the storage's credentials as they are now: those that a catalog lends end before a long run does."""

    def __init__(self, job: RewriteJob, renewed_io: Callable[[], Mapping[str, str]] | None) -> None:
        self._job = job
        self._renewed_io = renewed_io
        self._taken = time.monotonic()

    def current(self) -> RewriteJob:
        """The job for tasks that start now; old credentials are kept where nobody can be asked for new ones."""
        if self._renewed_io is not None and time.monotonic() - self._taken >= RENEW_AFTER_S:
            self._taken = time.monotonic()
            try:
                self._job = replace(self._job, io_properties=self._renewed_io())
            except Exception as error:
                _log.warning("the storage's credentials could not be renewed: %s", type(error).__name__)
        return self._job


class _InProcess:
    """Runs tasks in threads of this process."""

    def __init__(self, renewing: RenewedJob, tasks: Sequence[RewriteTask]) -> None:
        job = renewing.current()
        at_once = max(1, min(job.threads, len(tasks)))
        self._renewing = renewing
        self._threads = max(1, job.threads // at_once)
        self._memory_bytes = job.memory_bytes // at_once
        self._tasks = deque(tasks)
        self._at_once = at_once
        self._pool = ThreadPoolExecutor(at_once, "rewrite")
        self._running: set[Future[TaskResult]] = set()
        self.may_have_lost_files = False

    def answers(self, is_failing: Callable[[int], bool]) -> Iterator[_Answer]:
        while self._tasks or self._running:
            while self._tasks and len(self._running) < self._at_once:
                task = self._tasks.popleft()
                if is_failing(task.group_id):
                    yield _Answer((RewriteFailure(task.group_id, task.output_index, SKIPPED),))
                    continue
                job = replace(self._renewing.current(), threads=self._threads, memory_bytes=self._memory_bytes)
                self._running.add(self._pool.submit(run_task, job, task))
            if self._running:
                completed, self._running = wait(self._running, return_when=FIRST_COMPLETED)
                yield _Answer(tuple(future.result() for future in completed))

    def stop(self) -> None:
        """Wait for what runs: its files are only known when it is done."""
        self.may_have_lost_files = bool(self._running)
        self._pool.shutdown(wait=True, cancel_futures=True)


class _OnSpark:
    """Runs tasks as Spark jobs of some tasks each, one Spark task a rewrite task, without a shuffle.

    A few jobs run at once, so that the last task of one does not leave the cluster idle.
    """

    def __init__(
        self,
        spark: Any,
        renewing: RenewedJob,
        tasks: Sequence[RewriteTask],
        *,
        description: str,
        max_concurrent_groups: int | None,
    ) -> None:
        self._spark = spark
        self._renewing = renewing
        self._description = description
        self._tag = f"iceberg-compact-{renewing.current().run_id}"
        self._cluster = _Cluster.of(spark)
        at_once = min(self._cluster.slots, len(tasks))
        cores = self._cluster.slots // max(1, at_once) if self._cluster.is_local else self._cluster.task_cpus
        self._threads = max(1, cores)
        self._jobs_at_once = max_concurrent_groups or _JOBS_AT_ONCE
        self._batches = deque(_batches(tasks, self._cluster.slots, by_group=max_concurrent_groups is not None))
        self._pool = ThreadPoolExecutor(self._jobs_at_once, "spark-job")
        self._running: set[Future[_Answer]] = set()
        self.may_have_lost_files = self._cluster.speculates

    def answers(self, is_failing: Callable[[int], bool]) -> Iterator[_Answer]:
        while self._batches or self._running:
            while self._batches and len(self._running) < self._jobs_at_once:
                batch = self._batches.popleft()
                skipped = [task for task, _ in batch if is_failing(task.group_id)]
                wanted = [(task, size) for task, size in batch if not is_failing(task.group_id)]
                if skipped:
                    yield _Answer(tuple(RewriteFailure(t.group_id, t.output_index, SKIPPED) for t in skipped))
                if wanted:
                    # Wrapped for each job: local properties of the calling thread are copied at this moment.
                    inheriting = inheritable_thread_target(self._spark)
                    target = inheriting(self._run) if inheriting is not self._spark else self._run
                    self._running.add(self._pool.submit(target, wanted))
            if self._running:
                completed, self._running = wait(self._running, return_when=FIRST_COMPLETED)
                for future in completed:
                    answer = future.result()
                    self.may_have_lost_files = self.may_have_lost_files or answer.repeated
                    yield answer

    def stop(self) -> None:
        """Cancel what still runs, and wait until Spark has let go of it."""
        if self._running:
            self.may_have_lost_files = True
            self._spark.interruptTag(self._tag)
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._cluster.speculates and not self._cluster.is_connect:
            self._await_losers()

    def _await_losers(self) -> None:
        """Wait until no attempt that lost its race writes any more, so that its files are there to be found.

        Spark kills the Python worker of such an attempt some seconds after its task. Tasks of others can only make
        this wait as long as that at most.
        """
        tracker = self._spark.sparkContext._jsc.sc().statusTracker()
        deadline = time.monotonic() + _LOSERS_SECONDS
        while any(executor.numRunningTasks() for executor in tracker.getExecutorInfos()):
            if time.monotonic() > deadline:
                return
            time.sleep(0.05)

    def _run(self, batch: Sequence[tuple[RewriteTask, bytes]]) -> _Answer:
        self._spark.addTag(self._tag)
        try:
            self._describe()
            events.reach("rewrite.job", tasks=len(batch))
            job = packed(replace(self._renewing.current(), threads=self._threads))
            function = worker_function(
                job, [payload for _, payload in batch], prefer_shipped=not self._cluster.is_local
            )
            count = len(batch)
            rows = self._spark.range(0, count, 1, count).mapInArrow(function, RESULT_SCHEMA).collect()
        except Exception as error:
            return self._failed(batch, error)
        finally:
            self._spark.removeTag(self._tag)
        missing = next((row["missing"] for row in rows if row["missing"]), None)
        if missing is not None:
            raise _missing(missing)
        results = tuple(unpacked_result(bytes(row["payload"])) for row in rows)
        return _Answer(_complete(batch, results), repeated=any(row["attempt"] > 0 for row in rows))

    def _describe(self) -> None:
        if self._cluster.is_connect:
            return
        self._spark.sparkContext.setJobDescription(self._description)

    def _failed(self, batch: Sequence[tuple[RewriteTask, bytes]], error: Exception) -> _Answer:
        """The job as a whole failed: an executor was lost, or the job was cancelled."""
        for needed in ("pyarrow", "pyiceberg"):
            if f"No module named '{needed}" in str(error):
                raise _missing(needed) from None
        text = _told_by_spark(error)
        _log.warning("a rewrite job of %d tasks failed: %s", len(batch), text)
        failures = (RewriteFailure(task.group_id, task.output_index, f"Spark job failed: {text}") for task, _ in batch)
        return _Answer(tuple(failures), repeated=True)


@dataclass(frozen=True, slots=True)
class _Cluster:
    """What the session tells about where tasks run; Connect tells less than classic."""

    is_connect: bool
    is_local: bool
    slots: int
    task_cpus: int
    speculates: bool

    @classmethod
    def of(cls, spark: Any) -> _Cluster:
        is_connect = "connect" in type(spark).__module__
        master = _setting(spark, "spark.master", "")
        task_cpus = max(1, int(_setting(spark, "spark.task.cpus", "1")))
        if is_connect:
            cores = int(_setting(spark, "spark.default.parallelism", "0")) or _local_cores(master) or 8
        else:
            cores = spark.sparkContext.defaultParallelism
        return cls(
            is_connect=is_connect,
            is_local=master.startswith("local") and "cluster" not in master,
            slots=max(1, cores // task_cpus),
            task_cpus=task_cpus,
            speculates=_setting(spark, "spark.speculation", "false").lower() == "true",
        )


def _in_process_bytes(spark: Any) -> int:
    """What the driver does itself: more where tasks would share its machine and only pay for starting workers."""
    cluster = _Cluster.of(spark)
    return IN_PROCESS_BYTES * (_LOCAL_FACTOR if cluster.is_local and not cluster.is_connect else 1)


def _setting(spark: Any, name: str, default: str) -> str:
    return str(spark.conf.get(name, default) or default)


def _local_cores(master: str) -> int:
    """Cores of `local[2]` and `local[2, 4]`; 0 if the master does not say."""
    inside = master.partition("[")[2].partition("]")[0].partition(",")[0].strip()
    return int(inside) if inside.isdigit() else 0


def _batches(tasks: Sequence[RewriteTask], slots: int, *, by_group: bool) -> Iterator[list[tuple[RewriteTask, bytes]]]:
    """Tasks with their bytes, in the order given, in jobs that are large enough to pay and small enough to ship."""
    limit = max(_TASKS_PER_SLOT * slots, -(-len(tasks) // _MAX_JOBS))
    for _, members in itertools.groupby(tasks, key=lambda task: task.group_id if by_group else None):
        batch: list[tuple[RewriteTask, bytes]] = []
        size_bytes = 0
        for task in members:
            payload = packed(task)
            if batch and (len(batch) >= limit or size_bytes + len(payload) > _CLOSURE_BYTES):
                yield batch
                batch, size_bytes = [], 0
            batch.append((task, payload))
            size_bytes += len(payload)
        yield batch


def _complete(batch: Sequence[tuple[RewriteTask, bytes]], results: Sequence[TaskResult]) -> tuple[TaskResult, ...]:
    """Exactly one result a task: a task that did not answer has failed."""
    answered = {(result.group_id, result.output_index) for result in results}
    silent = (
        RewriteFailure(task.group_id, task.output_index, "the task gave no result")
        for task, _ in batch
        if (task.group_id, task.output_index) not in answered
    )
    return (*results, *silent)


def _told_by_spark(error: Exception) -> str:
    """The line of a Spark error that says what happened: of a Python worker's traceback the last one."""
    lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith(("\t", " "))]
    telling = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return " ".join((telling or lines or [type(error).__name__])[-1].split())[:1000]


def _missing(module: str) -> MissingDependencyError:
    return MissingDependencyError(
        f"the Python package '{module}' is missing on the Spark workers",
        hint="Install pyiceberg[pyarrow,pyiceberg-core] and numpy where the executors' Python finds them.",
    )


def _remove_lost(job: RewriteJob, io: FileIO, groups: Sequence[FileGroup], accounts: GroupAccounts) -> None:
    """Take away what killed and repeated attempts of this run left: files with its id that no result names."""
    names = OutputNames(job, job_schema(job), job_spec(job, job.output_spec_id))
    flat = job.properties.get("write.object-storage.enabled", "false").lower() != "true"
    custom = "write.py-location-provider.impl" in job.properties
    partitions = {group.partition for group in groups}
    if flat and not custom and None not in partitions:
        folders = [
            names.new_path(0, 0, partition).rpartition("/")[0] for partition in partitions if partition is not None
        ]
        lost = find_lost_files(io, job.run_id, folders, accounts.accepted_paths, deep=False)
    else:
        data_path = location_provider(job.table_location, job.properties).data_path
        lost = find_lost_files(io, job.run_id, [data_path], accounts.accepted_paths, deep=True)
    if lost:
        _log.info("removing %d files that lost attempts of this run left behind", len(lost))
        remove_files(io, lost)

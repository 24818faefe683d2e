"""Runs one claimed job: its procedure, its progress, its cancel, and exactly one final state."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.errors import IcebergCompactError, RunCancelledError
from iceberg_compact_sql.events import Listener, Observer
from iceberg_compact_sql.procedures.registry import procedures
from iceberg_compact_sql.procedures.run_procedure import run_procedure
from iceberg_compact_sql.redaction import mask_remembered, mask_rows, masked_logger, redact
from iceberg_compact_sql.service.checks import bind_request, is_read_only
from iceberg_compact_sql.service.jobs import MAX_RESULT_ROWS, Job, Status, plain_json
from iceberg_compact_sql.service.progress import JobProgress
from iceberg_compact_sql.service.queue import JobQueue
from iceberg_compact_sql.service.tracing import job_context
from iceberg_compact_sql.table.summary_keys import RUN_ID

_log = masked_logger(__name__)
# Makes the context of a run from its observer.
ContextOf = Callable[[Observer], Context]
# Called when a job is over, with its final state.
Finished = Callable[[Job], None]
_SNAPSHOT = "snapshot_id"


class Runner:
    """The jobs that run in this process."""

    def __init__(
        self,
        queue: JobQueue,
        context_of: ContextOf,
        *,
        listeners: Callable[[Job], tuple[Listener, ...]] = lambda job: (),
        on_finished: Finished = lambda job: None,
        lost_engine: Callable[[], bool] = lambda: False,
    ) -> None:
        self.queue = queue
        self._context_of = context_of
        self._listeners = listeners
        self._on_finished = on_finished
        self._lost_engine = lost_engine
        self._lock = threading.Lock()
        self._running: dict[str, tuple[Observer, JobProgress]] = {}
        self._run_again: set[str] = set()
        self._stopping = False

    def run(self, job: Job) -> None:
        """Run a claimed job to its end; never raises, and the job has a final state or waits again."""
        assert job.run_id is not None
        progress = JobProgress()
        observer = Observer(progress, *self._listeners(job), run_id=job.run_id)
        with self._lock:
            self._running[job.job_id] = observer, progress
        try:
            stored = self.queue.store.job(job.job_id)
            if self._stopping or (stored is not None and stored.status is Status.CANCELLING):
                observer.cancel()
            self._finish(job, progress, *self._outcome(job, observer, progress))
        except Exception:
            _log.exception("job %s could not be recorded", job.job_id)
        finally:
            with self._lock:
                del self._running[job.job_id]
        ended = self.queue.store.job(job.job_id)
        if ended is not None:
            self._on_finished(ended)

    def cancel(self, job_id: str) -> None:
        """Tell a running job to stop; its next point to stop is at most a batch of rows away."""
        with self._lock:
            running = self._running.get(job_id)
        if running is not None:
            running[0].cancel()

    def stop(self) -> None:
        """Cancel every running job and report them as interrupted."""
        with self._lock:
            self._stopping = True
            observers = [observer for observer, _ in self._running.values()]
        for observer in observers:
            observer.cancel()

    def progress(self, job_id: str) -> JobProgress | None:
        """The live progress of a running job."""
        with self._lock:
            running = self._running.get(job_id)
        return None if running is None else running[1]

    def save_progress(self) -> None:
        """Store the progress of all running jobs; called every 2 s."""
        with self._lock:
            running = [(job_id, progress) for job_id, (_, progress) in self._running.items()]
        for job_id, progress in running:
            self.queue.save_progress(job_id, progress.as_json(), progress.committed())

    def _outcome(self, job: Job, observer: Observer, progress: JobProgress) -> tuple[Status, dict[str, Any]]:
        """Run the procedure; returns the final status with the columns that it sets."""
        procedure = procedures()[job.procedure]
        try:
            context = self._context_of(observer)
            bound = bind_request(context, procedure, job.table, job.arguments)
            with job_context(job):
                rows = mask_rows(run_procedure(procedure, context, bound, procedure.name))
        except RunCancelledError as error:
            status = Status.INTERRUPTED if self._stopping else Status.CANCELLED
            return status, {"error": error_json(error), "outcome": "changed" if progress.changed else None}
        except IcebergCompactError as error:
            return Status.FAILED, {"error": error_json(error), "outcome": "changed" if progress.changed else None}
        except Exception as error:
            _log.warning("job %s failed", job.job_id, exc_info=True)
            text = redact(error).strip().split("\n\nJVM stacktrace")[0]
            message = f"{procedure.name}: {type(error).__name__}: {text}"[:10_000]
            return Status.FAILED, {"error": {"code": "ICEBERG_COMPACT_FAILED", "message": message}}
        names = [column.name for column in procedure.result_columns(bound)]
        result = [dict(zip(names, plain_json(row), strict=True)) for row in rows[:MAX_RESULT_ROWS]]
        outcome = None
        if not is_read_only(job.procedure, bound):
            outcome = "changed" if progress.changed or _changed(result) else "nothing_to_do"
        return Status.SUCCESS, {"result": result, "result_truncated": len(rows) > MAX_RESULT_ROWS, "outcome": outcome}

    def _finish(self, job: Job, progress: JobProgress, status: Status, columns: Mapping[str, Any]) -> None:
        committed = progress.committed()
        nothing_done = not committed["commits"] and not progress.changed
        if status is Status.FAILED and nothing_done and self._lost_engine() and job.job_id not in self._run_again:
            # Spark ended under it, and the table is as it was: the job runs once more when Spark is back.
            self._run_again.add(job.job_id)
            self.queue.put_back(job.job_id)
            return
        self._run_again.discard(job.job_id)
        snapshot = next((row[_SNAPSHOT] for row in columns.get("result") or [] if row.get(_SNAPSHOT)), None)
        if snapshot is not None and not committed["commits"] and snapshot == progress.sent_snapshot:
            # Procedures that rewrite metadata commit once, without an event of their own.
            committed = {**committed, "commits": 1, "snapshots": [snapshot]}
        done = status is Status.SUCCESS
        final = {"progress": progress.as_json(done=done), "committed": committed, "steps": progress.steps, **columns}
        if not self.queue.finish(job.job_id, status, **final):
            _log.error("job %s belongs to another process now; its outcome here was %s", job.job_id, status.value)


def _changed(result: list[dict[str, Any]]) -> bool:
    return any(row.get(_SNAPSHOT) or row.get("outcome") == "done" for row in result)


def error_json(error: IcebergCompactError) -> dict[str, Any]:
    """An error as jobs and HTTP answers show it: the procedure's own sentence, and no credential."""
    fields = {
        "code": error.getCondition(),
        "message": mask_remembered(str(error)),
        "argument": error.argument,
        "hint": None if error.hint is None else mask_remembered(error.hint),
    }
    return {name: value for name, value in fields.items() if value is not None}


def committed_by_run(context: Context, table: str, run_id: str) -> dict[str, Any]:
    """What a run has committed to a table, found by its id in the summaries of the snapshots."""
    snapshots = context.open_table(table).table.metadata.snapshots
    own = [
        snapshot for snapshot in snapshots if snapshot.summary is not None and snapshot.summary.get(RUN_ID) == run_id
    ]
    removed = [int((snapshot.summary or {}).get("deleted-data-files") or 0) for snapshot in own]  # type: ignore[call-overload]
    return {
        "commits": len(own),
        "snapshots": [snapshot.snapshot_id for snapshot in own],
        "removed_data_files": sum(removed),
    }

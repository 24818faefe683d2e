"""The service: one process that owns the state, the queue, the clock and the Spark session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.doors.session import register, session_view
from iceberg_compact_sql.doors.start_spark import (
    connect_listens,
    connect_session,
    forget_dead_session,
    session_lives,
    start_session,
)
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.redaction import masked_logger, remember_secrets
from iceberg_compact_sql.report.metrics import Metrics, TableFigures
from iceberg_compact_sql.service.checks import checked_request, compacts, read_call
from iceberg_compact_sql.service.clock import Clock
from iceberg_compact_sql.service.configuration.config import ServiceConfig
from iceberg_compact_sql.service.configuration.settings import spark_settings
from iceberg_compact_sql.service.configuration.strategies import renamed, strategy_arguments
from iceberg_compact_sql.service.engine import Engine
from iceberg_compact_sql.service.jobs import ACTIVE, FINAL, Job, JobRequest, Status
from iceberg_compact_sql.service.lease import RENEW_SECONDS, Lease
from iceberg_compact_sql.service.queue import KEY_LIFE_MS, JobQueue, Submitted
from iceberg_compact_sql.service.runner import Runner, committed_by_run
from iceberg_compact_sql.service.scores import Scores
from iceberg_compact_sql.service.store import Store
from iceberg_compact_sql.service.tokens import Tokens
from iceberg_compact_sql.units import parse_size

_log = masked_logger(__name__)
_PROGRESS_SECONDS = 2.0
_CLEAN_SECONDS = 3600.0


class Service:
    """Everything behind HTTP. Without `with_spark` every job runs in this process."""

    def __init__(
        self,
        config: ServiceConfig,
        *,
        environment: Mapping[str, str] | None = None,
        with_spark: bool = True,
        on_lost_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self.config = config
        self.folder = Path(config.state.folder).expanduser().resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tokens = Tokens(config.server, self.folder, environment or {})
        url = config.state.url or f"sqlite:///{self.folder / 'state.db'}"
        remember_secrets({"url": url})
        self.store = Store(url)
        self.lease = Lease(self.store)
        self.queue = JobQueue(self.store, owner=self.lease.owner)
        self.metrics = Metrics(table_labels=config.metrics.table_labels)
        self.runner = Runner(
            self.queue,
            self.context,
            listeners=lambda job: (self.metrics.work_listener,),
            on_finished=self._finished,
            lost_engine=lambda: self.engine is not None and self.engine.look_now(),
        )
        self.scores = Scores(self.context, self.scores_target)
        self.clock = Clock(self)
        self.started_at = time.time()
        self._settings = spark_settings(config)
        remember_secrets(self._settings)
        self._view = SessionView(
            conf=self._settings,
            current_namespace=("default",),
            embedded_warehouse=None if config.warehouse is None else str(Path(config.warehouse).expanduser().resolve()),
        )
        self.engine = self._make_engine() if with_spark else None
        self._on_lost_lease = on_lost_lease
        self._stopping = threading.Event()
        self._work = threading.Event()
        self._threads: list[threading.Thread] = []
        self._interrupted: list[Job] = []
        self.leader = False

    def open(self) -> None:
        """Take the lease, recover jobs, start everything; raises StateError when another process has the state.

        On a database that several machines share, this process waits as a standby instead.
        """
        if not self.store.shared:
            self.lease.require()
            self._lead()
        self._threads.append(threading.Thread(target=self._keep_lease, name="lease", daemon=True))
        self._threads[-1].start()

    def close(self, *, seconds: float = 25.0) -> None:
        """Take no new jobs, interrupt the running ones, stop Spark, and give the lease up."""
        deadline = time.monotonic() + seconds
        self._stopping.set()
        self._work.set()
        self.runner.stop()
        self.clock.close()
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
        if self.engine is not None:
            self.engine.close()
        if self.leader:
            self.lease.release()
        self.store.close()

    @property
    def accepts_jobs(self) -> bool:
        return self.leader and not self._stopping.is_set()

    def context(self, observer: Observer | None = None) -> Context:
        """The context of a call, with the session if there is one."""
        session = None if self.engine is None else self.engine.session
        return Context(self._view, spark=session, observer=observer)

    def submit(self, request: JobRequest, **origin: Any) -> Submitted:
        """Queue a checked request; the runner starts it when its table is free."""
        submitted = self.queue.submit(request, **origin)
        self._work.set()
        return submitted

    def request_compaction(
        self, table: str, strategy: str | None, options: Mapping[str, Any], **facts: Any
    ) -> JobRequest:
        """The checked request of a compaction by strategy and options."""
        target = self.config.compaction.target_file_size
        own = strategy_arguments(strategy, self.config.compaction.configured(), target=target)
        return self.request("compact_table", table, own | renamed(options), **facts)

    def request(self, procedure: str, table: str | None, arguments: Mapping[str, Any], **facts: Any) -> JobRequest:
        """The checked request of a procedure, with what its run is expected to take."""
        request = checked_request(self.context(), procedure, table, arguments, **facts)
        # A score is about a compaction; other procedures take as long as they took the last time.
        estimate = self.scores.estimate(request.table) if compacts(request.procedure, arguments) else None
        if estimate is None:
            return replace(request, estimated_seconds=self._last_seconds(request))
        return replace(
            request,
            estimated_seconds=estimate.seconds,
            estimated_bytes=estimate.rewrite_bytes,
            estimated_cost=estimate.cost_dollars,
        )

    def request_call(self, text: str, **facts: Any) -> JobRequest:
        """The checked request of one CALL statement."""
        procedure, table, arguments, catalog = read_call(self.context(), text)
        if catalog is not None and table is not None:
            from iceberg_compact_sql.catalogs.names import parse_table_name, quote_name

            parts = parse_table_name(table)
            table = table if parts[0] == catalog else quote_name((catalog, *parts))
        return self.request(procedure, table, arguments, **facts)

    def full_name(self, table: str) -> str:
        """The full name of a table as jobs have it; nothing is opened. A name without a catalog stays as it is."""
        from iceberg_compact_sql.catalogs.names import parse_table_name, resolve_name, show_name
        from iceberg_compact_sql.catalogs.open_table import known_catalogs

        view = self.context().view
        try:
            resolved = resolve_name(view, parse_table_name(table), known_catalogs(view))
        except IcebergCompactError:
            return table
        return show_name((resolved.catalog, *resolved.identifier))

    def cancel(self, job_id: str, *, who: str, address: str | None = None) -> Status:
        """Cancel a job and tell it at once when it runs."""
        status = self.queue.cancel(job_id, who=who, address=address)
        if status is Status.CANCELLING:
            self.runner.cancel(job_id)
        return status

    def live(self, job: Job) -> Job:
        """The job with its progress of this moment."""
        progress = self.runner.progress(job.job_id) if job.status in ACTIVE else None
        if progress is None:
            return job
        return replace(job, progress=progress.as_json(), committed=progress.committed(), steps=progress.steps)

    def health(self) -> dict[str, Any]:
        """What /health says; `status` is `ok`, `starting`, `standby` or `failing`."""
        engine = "ok" if self.engine is None else self.engine.state
        try:
            counts = self.store.counts()
            state = "ok"
        except Exception:
            counts, state = {}, "failing"
        status = "ok"
        if state != "ok" or engine == "failing":
            status = "failing"
        elif not self.leader or engine == "starting":
            status = "starting"
        checks = {"state": state, "spark": engine, "scheduler": self.clock.state}
        if not self.leader:
            checks["lease"] = "standby"
        return {
            "status": status,
            "uptime_seconds": round(time.time() - self.started_at, 1),
            "checks": checks,
            "running": sum(counts.get(status.value, 0) for status in ACTIVE),
            "queued": counts.get(Status.QUEUED.value, 0),
        }

    def metrics_text(self) -> bytes:
        """The metrics as Prometheus reads them, with the gauges of this moment."""
        unfinished = [status for status, procedure, given in self.store.unfinished() if compacts(procedure, given)]
        waiting = sum(status is Status.QUEUED for status in unfinished)
        self.metrics.set_queue(pending=waiting, active=len(unfinished) - waiting)
        scored = ((table.match.shown, table.score) for table in self.scores.tables() if table.score is not None)
        self.metrics.set_scores(
            TableFigures(name, score.score, score.data_files, score.small_files, score.snapshots)
            for name, score in scored
        )
        return self.metrics.text()

    def _lead(self) -> None:
        """Begin to run jobs: this process has the lease."""
        self.leader = True
        self._interrupted = self.queue.recover()
        for job in self._interrupted:
            # When it ended is not known: only that another process found it.
            self._count(job, seconds=None)
        if self.engine is not None:
            self.engine.open()
        else:
            self._find_committed()
        for number in range(self.config.compaction.max_parallelism):
            self._threads.append(threading.Thread(target=self._run_jobs, name=f"runner-{number}", daemon=True))
            self._threads[-1].start()
        self._threads.append(threading.Thread(target=self._upkeep, name="upkeep", daemon=True))
        self._threads[-1].start()
        self.clock.open()

    def _keep_lease(self) -> None:
        failed_since: float | None = None
        while not self._stopping.wait(RENEW_SECONDS if self.leader else 1.0):
            try:
                if not self.leader:
                    if self.lease.take() is None:
                        self._lead()
                    continue
                if self.lease.renew():
                    failed_since = None
                    continue
                _log.error("another process has taken the lease")
            except Exception:
                _log.exception("the lease could not be renewed")
                failed_since = failed_since or time.monotonic()
                if time.monotonic() - failed_since < RENEW_SECONDS * 1.5:
                    continue
            # Another process may run the jobs now: stop at once, and write nothing more.
            self.runner.stop()
            self._on_lost_lease()
            return

    def _run_jobs(self) -> None:
        while not self._stopping.is_set():
            if self.engine is not None and self.engine.session is None:
                self._stopping.wait(0.2)
                continue
            try:
                job = self.queue.claim()
            except Exception:
                _log.exception("no job could be claimed")
                self._stopping.wait(2)
                continue
            if job is None:
                self._work.wait(1.0)
                self._work.clear()
            elif self._stopping.is_set():
                self.queue.put_back(job.job_id)
            else:
                self.runner.run(job)
                self._work.set()

    def _upkeep(self) -> None:
        cleaned = 0.0
        while not self._stopping.wait(_PROGRESS_SECONDS):
            try:
                self.runner.save_progress()
                if time.monotonic() - cleaned > _CLEAN_SECONDS or not cleaned:
                    cleaned = time.monotonic()
                    now_ms = self.queue.now_ms()
                    self.store.delete_old(now_ms - self.config.state.keep, now_ms - KEY_LIFE_MS)
                if self.engine is None or self.engine.session is not None:
                    self.scores.refresh()
            except Exception:
                _log.exception("upkeep failed")

    def _finished(self, job: Job) -> None:
        if job.status in FINAL:
            self._count(job, seconds=job.seconds)
        self.clock.finished(job)
        self.scores.forget(job.table)

    def _count(self, job: Job, *, seconds: float | None) -> None:
        """Count a job that is over, and a compaction as one."""
        self.metrics.service_jobs.labels(job.procedure, job.status.value).inc()
        if compacts(job.procedure, job.arguments):
            self.metrics.job_ended(job.status.value, seconds=seconds)

    def _make_engine(self) -> Engine:
        return Engine(self._start_spark, self._forget_spark, lives=self._spark_lives, on_ready=self._ready)

    def _spark_lives(self, session: Any) -> bool:
        url = self.config.spark.connect
        return (url is None or connect_listens(url)) and session_lives(session)

    def _start_spark(self) -> Any:
        conf = self._settings
        if self.config.spark.connect is not None:
            return register(connect_session(self.config.spark.connect, conf), warehouse=self.config.warehouse)
        session = start_session(self.config.spark.master or "local[*]", conf)
        return register(session, warehouse=self.config.warehouse)

    def _forget_spark(self) -> None:
        if self.config.spark.connect is None:
            forget_dead_session()

    def _ready(self, session: Any) -> None:
        """Read the names of the session once: every job then knows what a table name means."""
        view = session_view(session)
        self._view = replace(view, conf={**self._settings, **view.conf})
        self._find_committed()
        self._work.set()

    def _find_committed(self) -> None:
        """Look up what interrupted jobs had committed, by their run id."""
        for job in self._interrupted:
            if job.table is None or job.run_id is None or "*" in job.table:
                continue
            try:
                self.queue.set_committed(job.job_id, committed_by_run(self.context(), job.table, job.run_id))
            except IcebergCompactError as error:
                _log.warning("what job %s committed is not known: %s", job.job_id, error)
        self._interrupted = []

    def _last_seconds(self, request: JobRequest) -> float | None:
        """The duration of the last successful equal procedure on this table."""
        if request.table is None:
            return None
        done, _ = self.store.jobs(
            statuses=[Status.SUCCESS.value], table=request.table, procedure=request.procedure, limit=1
        )
        return done[0].seconds if done else None

    def scores_target(self) -> int | None:
        """The target by which tables are scored: the configured one, so that a compacted table looks compacted."""
        target = self.config.compaction.target_file_size
        return None if target is None else parse_size(target)

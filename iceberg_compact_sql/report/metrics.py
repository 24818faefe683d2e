"""Prometheus metrics of runs and of the service: listeners of events, and a file for the node exporter.

Needs the extra `metrics` or `service`. Counters are those of this process.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.report.action_outcome import ActionOutcome

SETTING = "spark.iceberg_compact_sql.metrics"
DEFAULT_TABLE_LABELS = 200
_DURATIONS = (1, 5, 15, 60, 300, 600, 1800, 3600, 14400)
_RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1, 1.1, 1.5, 2)
_MB = 1024**2
_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_STATUSES = ("success", "failed", "cancelled", "interrupted")
_FILE_SIZES = tuple(size * _MB for size in (1, 8, 32, 64, 128, 256, 512, 1024, 2048))

# A created-time series for each counter would double their number; there is no switch for one registry alone.
disable_created_metrics()  # type: ignore[no-untyped-call]


class TableFigures(NamedTuple):
    """The figures of a scored table that have gauges."""

    table: str
    score: float
    data_files: int
    small_files: int
    snapshots: int


class Metrics:
    """The metrics of this package on a registry of their own.

    `listener` takes the events of every run and counts each compaction as a job. A service has jobs of its own:
    it gives `work_listener` to their runs, and `job_ended`, `set_queue` and `set_scores` what only it knows.
    At most `table_labels` tables have labels of their own; the others are `table="other"`.
    """

    def __init__(self, *, table_labels: int = DEFAULT_TABLE_LABELS) -> None:
        self.registry = registry = CollectorRegistry()
        self._table_labels = table_labels
        self._labelled: set[str] = set()
        self._lock = threading.Lock()
        self.jobs = Counter("compaction_jobs_total", "Ended compactions", ["status"], registry=registry)
        for status in _STATUSES:
            self.jobs.labels(status)
        self.duration = Histogram(
            "compaction_duration_seconds", "Duration of compactions", buckets=_DURATIONS, registry=registry
        )
        self.files_compacted = Counter("files_compacted_total", "Data files rewritten", registry=registry)
        self.bytes_read = Counter("bytes_read_total", "Bytes of rewritten files", registry=registry)
        self.bytes_written = Counter("bytes_written_total", "Bytes of new files", registry=registry)
        self.compression = Histogram(
            "compression_ratio", "Bytes written for each byte read", buckets=_RATIOS, registry=registry
        )
        self.file_size = Histogram("file_size_bytes", "Sizes of new files", buckets=_FILE_SIZES, registry=registry)
        self.pending = Gauge("pending_compactions", "Compactions that wait", registry=registry)
        self.active = Gauge("active_compactions", "Compactions that run", registry=registry)
        self.last_compaction = Gauge(
            "last_compaction_timestamp", "End of the last compaction", ["table"], registry=registry
        )
        self.table_score = Gauge("table_score", "Score of the table", ["table"], registry=registry)
        self.table_data_files = Gauge("table_data_files", "Data files of the table", ["table"], registry=registry)
        self.table_small_files = Gauge("table_small_files", "Small files of the table", ["table"], registry=registry)
        self.table_snapshots = Gauge("table_snapshots", "Snapshots of the table", ["table"], registry=registry)
        self.files_expired = Counter("files_expired_total", "Files deleted by expiry", registry=registry)
        self.bytes_freed = Counter("bytes_freed_total", "Bytes of deleted files", registry=registry)
        self.orphans_removed = Counter("orphan_files_removed_total", "Orphan files deleted", registry=registry)
        self.cost = Counter("cost_dollars_total", "Cost of compactions in dollars", registry=registry)
        self.service_jobs = Counter(
            "service_jobs_total", "Ended jobs of the service", ["procedure", "status"], registry=registry
        )
        self.schedule_missed = Counter("schedule_missed_total", "Scheduled runs that were missed", registry=registry)
        self.http_duration = Histogram(
            "http_request_duration_seconds",
            "HTTP requests",
            ["route", "method", "status"],
            buckets=_LATENCIES,
            registry=registry,
        )

    def listener(self, event: str, facts: Mapping[str, Any]) -> None:
        """Count an event, and each compaction as a job; a listener of `events`."""
        if event == "action.start" and facts["procedure"] == "compact_table":
            self.active.inc()
        elif event == "action.done" and facts["outcome"]["procedure"] == "compact_table":
            self.active.dec()
            self.job_ended(facts["outcome"]["status"], seconds=facts["outcome"]["elapsed_ms"] / 1000)
        self.work_listener(event, facts)

    def work_listener(self, event: str, facts: Mapping[str, Any]) -> None:
        """Count what an event says was read, written, deleted and paid for; a listener of `events`."""
        if event == "action.done":
            self._count(ActionOutcome(**facts["outcome"]))
        elif event == "compact.committed":
            for size in facts["output_bytes"]:
                self.file_size.observe(size)

    def job_ended(self, status: str, *, seconds: float | None) -> None:
        """Count a job that is over; `seconds` is None when its duration is not known."""
        self.jobs.labels(status).inc()
        if seconds is not None:
            self.duration.observe(seconds)

    def set_queue(self, *, pending: int, active: int) -> None:
        """Set the gauges of the jobs that wait and run."""
        self.pending.set(pending)
        self.active.set(active)

    def set_scores(self, tables: Iterable[TableFigures]) -> None:
        """Replace the gauges of all tables. Those without a label share the worst score and the sums of the counts."""
        shown: dict[str, TableFigures] = {}
        for figures in tables:
            label = self.table_label(figures.table)
            known = shown.get(label, TableFigures(label, 0.0, 0, 0, 0))
            shown[label] = TableFigures(
                label,
                max(known.score, figures.score),
                known.data_files + figures.data_files,
                known.small_files + figures.small_files,
                known.snapshots + figures.snapshots,
            )
        gauges = (self.table_score, self.table_data_files, self.table_small_files, self.table_snapshots)
        with self._lock:
            for gauge in gauges:
                # A table that was dropped has no figures any more.
                gauge.clear()
            for label, *values in shown.values():
                for gauge, value in zip(gauges, values, strict=True):
                    gauge.labels(label).set(value)

    def table_label(self, table: str) -> str:
        """Return the table's name, or `other` when there are too many tables with labels."""
        with self._lock:
            if table in self._labelled or len(self._labelled) < self._table_labels:
                self._labelled.add(table)
                return table
        return "other"

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)

    def write_textfile(self, path: str | Path) -> None:
        """Replace the file at once, so that the node exporter never reads a part; raises OSError."""
        target = Path(path)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.text())
            # The node exporter runs as another user.
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _count(self, outcome: ActionOutcome) -> None:
        self.bytes_freed.inc(outcome.freed_bytes)
        if outcome.procedure == "expire_snapshots":
            self.files_expired.inc(outcome.deleted_files)
        elif outcome.procedure == "remove_orphans":
            self.orphans_removed.inc(outcome.deleted_files)
        elif outcome.procedure == "compact_table":
            self._count_compaction(outcome)

    def _count_compaction(self, outcome: ActionOutcome) -> None:
        # What a partly failed or cancelled run committed counts too.
        self.files_compacted.inc(outcome.removed_data_files)
        self.bytes_read.inc(outcome.removed_bytes)
        self.bytes_written.inc(outcome.added_bytes)
        self.cost.inc(outcome.cost or 0.0)
        if outcome.removed_bytes:
            self.compression.observe(outcome.added_bytes / outcome.removed_bytes)
        # A table that needed nothing is as well looked after as one that was rewritten.
        if outcome.snapshot_ids or outcome.status == "success":
            finished = (outcome.started_ms + outcome.elapsed_ms) / 1000
            self.last_compaction.labels(self.table_label(outcome.table)).set(finished)


_process_metrics: Metrics | None = None
_lock = threading.Lock()


def process_metrics() -> Metrics:
    """Return the metrics of this process, which all sessions in it share."""
    global _process_metrics
    with _lock:
        if _process_metrics is None:
            _process_metrics = Metrics()
        return _process_metrics


def require_textfile(path: str) -> None:
    """Raise when the metrics file cannot be written, before anything is done."""
    target = Path(path)
    fault = None
    if target.is_dir():
        fault = "it is a folder"
    elif not target.absolute().parent.is_dir():
        fault = f"the folder {str(target.parent)!r} does not exist"
    elif not os.access(target.absolute().parent, os.W_OK):
        fault = f"the folder {str(target.parent)!r} cannot be written to"
    elif target.suffix != ".prom":
        fault = "the node exporter reads only names that end in .prom"
    if fault is not None:
        raise InvalidArgumentError(
            f"setting {SETTING} is {path!r}, and {fault}",
            value=path,
            hint="Name a file such as /var/lib/node_exporter/iceberg_compact.prom.",
        )

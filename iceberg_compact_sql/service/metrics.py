"""The Prometheus metrics of the service; counters are of this process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from iceberg_compact_sql.events import Listener
from iceberg_compact_sql.service.jobs import FINAL, Job, Status

_SECONDS = (1, 5, 15, 60, 300, 600, 1800, 3600, 14400)
_RATIOS = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0)
_SIZES = tuple(1024**2 * 2**power for power in range(0, 12))
_LATENCIES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
OTHER = "other"

# Otherwise each counter has a second series with the time of its creation.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ServiceMetrics:
    """A registry of its own. At most `most_tables` tables have labels of their own; the rest are `other`."""

    def __init__(self, most_tables: int) -> None:
        self.registry = registry = CollectorRegistry()
        self._most_tables = most_tables
        self._labels: set[str] = set()
        self.jobs = Counter("compaction_jobs", "Finished jobs by status", ["status"], registry=registry)
        for status in FINAL:
            self.jobs.labels(status.value)
        self.duration = Histogram(
            "compaction_duration_seconds", "Seconds of a job", buckets=_SECONDS, registry=registry
        )
        self.files = Counter("files_compacted", "Data files that commits replaced", registry=registry)
        self.read = Counter("bytes_read", "Bytes of data files read", registry=registry)
        self.written = Counter("bytes_written", "Bytes of data files written", registry=registry)
        self.ratio = Histogram(
            "compression_ratio", "Bytes written for each byte read", buckets=_RATIOS, registry=registry
        )
        self.sizes = Histogram("file_size_bytes", "Bytes of each written file", buckets=_SIZES, registry=registry)
        self.pending = Gauge("pending_compactions", "Jobs that wait", registry=registry)
        self.active = Gauge("active_compactions", "Jobs that run", registry=registry)
        self.last = Gauge("last_compaction_timestamp", "End of the last successful job", ["table"], registry=registry)
        self.score = Gauge("table_score", "Score, 0 (healthy) to 1", ["table"], registry=registry)
        self.data_files = Gauge("table_data_files", "Data files", ["table"], registry=registry)
        self.small_files = Gauge("table_small_files", "Small data files", ["table"], registry=registry)
        self.snapshots = Gauge("table_snapshots", "Snapshots", ["table"], registry=registry)
        self.expired = Counter("files_expired", "Files deleted by expiry", registry=registry)
        self.freed = Counter("bytes_freed", "Bytes freed by expiry and orphans", registry=registry)
        self.orphans = Counter("orphan_files_removed", "Orphan files removed", registry=registry)
        self.cost = Counter("cost_dollars", "Estimated dollars of finished jobs", registry=registry)
        self.missed_runs = Counter("schedule_missed", "Runs of schedules that were missed", registry=registry)
        self.requests = Histogram(
            "http_request_duration_seconds",
            "Seconds of a request",
            ["route", "method", "status"],
            buckets=_LATENCIES,
            registry=registry,
        )

    def listener(self, job: Job) -> Listener:
        """A listener that counts what a run writes and commits, also when it fails later."""

        def listen(event: str, facts: Mapping[str, Any]) -> None:
            if event == "compact.group":
                self.read.inc(facts["input_bytes"])
                self.written.inc(facts["written_bytes"])
                if facts["input_bytes"]:
                    self.ratio.observe(facts["written_bytes"] / facts["input_bytes"])
                for _ in range(facts["outputs"]):
                    self.sizes.observe(facts["written_bytes"] / facts["outputs"])
            elif event == "compact.committed":
                self.files.inc(facts["files"])

        return listen

    def finished(self, job: Job) -> None:
        """Count a job that is over."""
        if job.status not in FINAL:
            return
        self.jobs.labels(job.status.value).inc()
        if job.started_ms is not None and job.finished_ms is not None and job.status is not Status.INTERRUPTED:
            self.duration.observe(max(0, job.finished_ms - job.started_ms) / 1000)
        if job.status is Status.SUCCESS and job.table is not None and job.finished_ms is not None:
            self.last.labels(self._label(job.table)).set(job.finished_ms / 1000)
        for row in job.result or ():
            if job.procedure == "expire_snapshots" and "freed_bytes" in row:
                self.expired.inc(sum(value or 0 for name, value in row.items() if _is_deleted_count(name)))
                self.freed.inc(row["freed_bytes"] or 0)
            elif job.procedure == "remove_orphans" and row.get("deleted"):
                self.orphans.inc()
                self.freed.inc(row.get("bytes") or 0)

    def missed(self, count: int) -> None:
        self.missed_runs.inc(count)

    def text(self, *, queued: int, running: int, tables: Iterable[Any]) -> bytes:
        """The metrics as Prometheus reads them, with the gauges of this moment."""
        self.pending.set(queued)
        self.active.set(running)
        gauges = (self.score, self.data_files, self.small_files, self.snapshots)
        for gauge in gauges:
            gauge.clear()
        sums: dict[str, list[float]] = {}
        for scored in tables:
            if scored.score is None:
                continue
            figures = (scored.score.score, scored.score.data_files, scored.score.small_files, scored.score.snapshots)
            label = self._label(scored.match.shown)
            known = sums.setdefault(label, [0.0] * 4)
            # Of the tables without a label: the worst score, and sums of the counts.
            sums[label] = [max(known[0], figures[0]), *(a + b for a, b in zip(known[1:], figures[1:], strict=True))]
        for label, values in sums.items():
            for gauge, value in zip(gauges, values, strict=True):
                gauge.labels(label).set(value)
        return generate_latest(self.registry)

    def _label(self, table: str) -> str:
        if table in self._labels or len(self._labels) < self._most_tables:
            self._labels.add(table)
            return table
        return OTHER


def _is_deleted_count(name: str) -> bool:
    return name.startswith("deleted_") and name.endswith("_count")

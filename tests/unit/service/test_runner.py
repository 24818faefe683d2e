"""The runner on real tables without Spark: results, progress, cancel, failures, what an interrupted run committed."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.service.checks import NotOverHttpError, checked_request, read_call
from iceberg_compact_sql.service.jobs import Job, Status
from iceberg_compact_sql.service.queue import JobQueue
from iceberg_compact_sql.service.runner import Runner, committed_by_run
from iceberg_compact_sql.service.store import Store
from iceberg_compact_sql.service.tracing import start_tracing
from tests.support.oracle import rows
from tests.support.plain import PlainLake
from tests.unit.actions.test_compact_faults import files_on_disk, fragmented


class Bench:
    def __init__(self, lake: PlainLake, store: Store) -> None:
        self.lake = lake
        self.queue = JobQueue(store, owner="me")

    def context(self, observer: Observer | None = None) -> Context:
        return Context(SessionView(conf=self.lake.conf), observer=observer)

    def submit(self, procedure: str, table: str | None = "db.t", **arguments: object) -> str:
        request = checked_request(self.context(), procedure, table, arguments)
        return self.queue.submit(request).job.job_id

    def run(self, runner: Runner) -> Job:
        claimed = self.queue.claim()
        assert claimed is not None
        runner.run(claimed)
        return self.queue.require(claimed.job_id)


@pytest.fixture
def bench(plain_lake: PlainLake, tmp_path: Path) -> Iterator[Bench]:
    store = Store(f"sqlite:///{tmp_path / 'state.db'}")
    yield Bench(plain_lake, store)
    store.close()


COMPACT = {"target": "1MB", "min_input_files": 2}


def test_a_job_has_rows_progress_and_what_it_committed(bench: Bench) -> None:
    table = fragmented(bench.lake)
    before = rows(table)
    bench.submit("compact_table", **COMPACT)
    job = bench.run(Runner(bench.queue, bench.context))
    assert job.status is Status.SUCCESS and job.outcome == "changed" and job.error is None
    assert job.result is not None and job.result[0]["commits_count"] == 1
    assert job.progress is not None and job.committed is not None
    assert job.progress["percent"] == 100 and job.progress["files_processed"] == job.progress["files_total"] > 0
    assert job.progress["partitions_completed"] == job.progress["partitions_total"] > 0
    assert job.committed["snapshots"] == [job.result[0]["snapshot_id"]]
    assert rows(bench.lake.load("db.t")) == before
    assert job.table == "plain.db.t" and job.run_id is not None
    found = committed_by_run(bench.context(), job.table, job.run_id)
    assert found["snapshots"] == job.committed["snapshots"]
    assert found["removed_data_files"] == job.committed["removed_data_files"]
    bench.submit("compact_table", **COMPACT)
    again = bench.run(Runner(bench.queue, bench.context))
    assert (again.status, again.outcome) == (Status.SUCCESS, "nothing_to_do")


def test_a_cancelled_job_leaves_rows_and_files_as_they_were(bench: Bench) -> None:
    table = fragmented(bench.lake)
    before, files = rows(table), files_on_disk(bench.lake)
    job_id = bench.submit("compact_table", **COMPACT)
    runner: Runner

    def cancel_from_outside(event: str, facts: Mapping[str, object]) -> None:
        if event == "rewrite.open":
            thread = threading.Thread(target=lambda: (bench.queue.cancel(job_id, who="api:x"), runner.cancel(job_id)))
            thread.start()
            thread.join()

    runner = Runner(bench.queue, bench.context, listeners=lambda job: (cancel_from_outside,))
    job = bench.run(runner)
    assert job.status is Status.CANCELLED
    assert job.committed is not None and job.committed["commits"] == 0
    assert job.error is not None and "was cancelled" in job.error["message"]
    assert rows(bench.lake.load("db.t")) == before
    assert files_on_disk(bench.lake) == files


def test_a_cancel_between_claim_and_start_is_kept(bench: Bench) -> None:
    fragmented(bench.lake)
    job_id = bench.submit("compact_table", **COMPACT)
    claimed = bench.queue.claim()
    assert claimed is not None
    bench.queue.cancel(job_id, who="api:x")
    Runner(bench.queue, bench.context).run(claimed)
    assert bench.queue.require(job_id).status is Status.CANCELLED


def test_a_stopping_service_reports_its_jobs_as_interrupted(bench: Bench) -> None:
    fragmented(bench.lake)
    bench.submit("compact_table", **COMPACT)
    runner = Runner(bench.queue, bench.context)
    runner.stop()
    assert bench.run(runner).status is Status.INTERRUPTED


def test_a_failed_job_has_the_procedures_own_sentence(bench: Bench) -> None:
    fragmented(bench.lake)
    bench.submit("compact_table", **COMPACT)
    bench.lake.catalog.drop_table("db.t")
    job = bench.run(Runner(bench.queue, bench.context))
    assert job.status is Status.FAILED and job.error is not None
    assert job.error["message"].startswith("compact_table: there is no table 'db.t' in catalog 'plain'")
    assert job.error["code"] == "ICEBERG_COMPACT_NOT_FOUND"


def test_a_job_runs_once_more_when_spark_ended_under_it(bench: Bench) -> None:
    fragmented(bench.lake)
    bench.submit("compact_table", **COMPACT)

    def broken(observer: Observer) -> Context:
        raise ConnectionRefusedError("Spark is gone")

    runner = Runner(bench.queue, broken, lost_engine=lambda: True)
    assert bench.run(runner).status is Status.QUEUED
    assert bench.run(runner).status is Status.FAILED


def test_read_only_procedures_and_manifests(bench: Bench) -> None:
    fragmented(bench.lake)
    bench.submit("score_partitions")
    job = bench.run(Runner(bench.queue, bench.context))
    assert job.status is Status.SUCCESS and job.outcome is None and job.result and "score" in job.result[0]
    bench.submit("compact_table", dry_run=True, **COMPACT)
    dry = bench.run(Runner(bench.queue, bench.context))
    assert dry.outcome is None and dry.result and dry.result[0]["action"] == "rewrite"
    bench.submit("rewrite_manifests")
    manifests = bench.run(Runner(bench.queue, bench.context))
    assert manifests.committed is not None and manifests.result is not None
    assert manifests.outcome == "changed" and manifests.committed["snapshots"] == [manifests.result[0]["snapshot_id"]]
    bench.submit("maintain_tables", None, pattern="db.*", steps=["compact"])
    fleet = bench.run(Runner(bench.queue, bench.context))
    assert fleet.status is Status.SUCCESS and fleet.table == "plain.db.*"


WRONG = [
    ("compact_table", "db.t", {"targt": "1MB"}, "compact_table: unknown argument 'targt'. Did you mean 'target'?"),
    ("compact_table", "db.none", {}, "compact_table: there is no table 'db.none' in catalog 'plain'"),
    ("compact_table", None, {}, "compact_table: argument 'table' is missing"),
    ("compact_table", "db.t", {"branch": "b"}, "b"),
    ("compact_table", "db.t", {"where": "nope = 1"}, "nope"),
    ("compact", "db.t", {}, "there is no procedure 'compact'. Did you mean"),
    ("help", None, {}, "there is no procedure 'help'"),
]


@pytest.mark.parametrize(("procedure", "table", "arguments", "sentence"), WRONG)
def test_wrong_requests_are_refused_with_the_sentence_of_the_call(
    bench: Bench, procedure: str, table: str | None, arguments: dict[str, object], sentence: str
) -> None:
    fragmented(bench.lake)
    with pytest.raises(IcebergCompactError) as raised:
        checked_request(bench.context(), procedure, table, arguments)
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("procedure", "arguments"),
    [
        ("remove_orphans", {"location": "/"}),
        ("remove_orphans", {"FORCE": True}),
        ("remove_orphans", {"equal_schemes": {"a": "b"}}),
        ("compact_table", {"options": {"write.data.path": "/etc"}}),
    ],
)
def test_arguments_that_reach_outside_the_table_are_not_taken(
    bench: Bench, procedure: str, arguments: dict[str, object]
) -> None:
    fragmented(bench.lake)
    with pytest.raises(NotOverHttpError, match="is not taken over HTTP"):
        checked_request(bench.context(), procedure, "db.t", arguments)


def test_a_call_as_text_gives_the_same_request(bench: Bench) -> None:
    fragmented(bench.lake)
    text = "CALL compact_table('db.t', target => '1MB', where => \"id > 3\", min_input_files => 2);"
    procedure, table, arguments, catalog = read_call(bench.context(), text)
    assert (procedure, table, catalog) == ("compact_table", "db.t", None)
    assert arguments == {"target": "1MB", "where": "id > 3", "min_input_files": 2}
    iceberg = "CALL plain.system.rewrite_data_files('db.t', 'binpack')"
    assert read_call(bench.context(), iceberg) == ("compact_table", "db.t", {"strategy": "binpack"}, "plain")
    time = "CALL expire_snapshots('db.t', older_than => TIMESTAMP '2026-01-01 00:00:00')"
    _, _, expiry, _ = read_call(bench.context(), time)
    assert checked_request(bench.context(), "expire_snapshots", "db.t", expiry).arguments == {
        "older_than": "2026-01-01T00:00:00.000Z"
    }
    for wrong in ("SELECT 1", "CALL compact_table('db.t'); DROP TABLE db.t", "", "CALL other.thing('x')"):
        with pytest.raises(IcebergCompactError):
            read_call(bench.context(), wrong)


def test_the_spans_of_a_job_have_its_id_and_the_parent_of_its_request(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragmented(bench.lake)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The provider of a process can be set only once, and other tests have their own.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    request = checked_request(bench.context(), "compact_table", "db.t", COMPACT, traceparent=parent)
    job_id = bench.queue.submit(request).job.job_id
    assert bench.run(Runner(bench.queue, bench.context)).status is Status.SUCCESS
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert set(spans) == {"compact_table", "planning", "execution", "group", "commit"}
    own = spans["compact_table"]
    assert own.attributes is not None and own.attributes["job_id"] == job_id
    assert own.parent is not None and f"{own.parent.trace_id:032x}-{own.parent.span_id:016x}" in parent
    assert {span.context.trace_id for span in spans.values() if span.context} == {own.parent.trace_id}


def test_tracing_without_an_exporter_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    start_tracing("http://127.0.0.1:4318")()
    assert "nothing is traced" in caplog.text and "pip install opentelemetry-sdk" in caplog.text

"""Spans of runs, taken by the SDK of OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import Observer
from iceberg_compact_sql.report.tracing import Tracing
from tests.support.calls import call
from tests.support.plain import PlainLake


class Spans:
    """A provider of spans, and those that have ended, by name."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def test_the_spans_of_a_compaction(plain_lake: PlainLake, spans: Spans) -> None:
    plain_lake.create("db.t", *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(6)))
    observer = Observer(Tracing(provider=spans.provider).listener, run_id="run-7")
    with spans.provider.get_tracer("app").start_as_current_span("nightly") as outer:
        (row,) = call(plain_lake, "CALL compact_table('db.t', target => '1MB')", observer=observer)
        nightly = outer.get_span_context().span_id
    (action,), (planning,), (execution,) = map(spans.named, ("compact_table", "planning", "execution"))
    (group,), (commit,) = map(spans.named, ("group", "commit"))
    assert parent_of(action) == nightly
    own = action.get_span_context().span_id
    assert {parent_of(span) for span in (planning, execution, commit)} == {own}
    assert parent_of(group) == execution.get_span_context().span_id
    assert action.attributes is not None and planning.attributes is not None and commit.attributes is not None
    assert {name: action.attributes[name] for name in ("table", "job_id", "strategy")} == {
        "table": "plain.db.t",
        "job_id": "run-7",
        "strategy": "binpack",
    }
    assert dict(planning.attributes) == {"files": 6, "groups": 1}
    assert dict(commit.attributes) == {"attempt": 1, "snapshot_id": row["snapshot_id"]}
    assert group.attributes is not None and group.attributes["files"] == 6


def test_a_failure_ends_every_span_with_its_error(plain_lake: PlainLake, spans: Spans) -> None:
    observer = Observer(Tracing(job_id="job-1", provider=spans.provider).listener)
    with pytest.raises(IcebergCompactError):
        call(plain_lake, "CALL compact_table('db.gone')", observer=observer)
    (action,), (planning,) = map(spans.named, ("compact_table", "planning"))
    assert action.status.status_code is trace.StatusCode.ERROR and "db.gone" in str(action.status.description)
    assert action.attributes is not None and action.attributes["job_id"] == "job-1"
    assert parent_of(planning) == action.get_span_context().span_id


def test_without_a_provider_nothing_happens(plain_lake: PlainLake) -> None:
    plain_lake.create("db.t", *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(6)))
    observer = Observer(Tracing(provider=trace.NoOpTracerProvider()).listener)
    (row,) = call(plain_lake, "CALL compact_table('db.t', target => '1MB')", observer=observer)
    assert row["rewritten_data_files_count"] == 6

"""Traces of jobs: sets up OpenTelemetry where it is asked for, and makes the spans of a job children of its request."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from importlib import import_module

from iceberg_compact_sql.redaction import masked_logger
from iceberg_compact_sql.service.jobs import Job

_log = masked_logger(__name__)
_SERVICE_NAME, _UNNAMED = "service.name", "unknown_service"
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


def start_tracing(endpoint: str | None) -> Callable[[], None]:
    """Send spans to an OTLP endpoint, from the configuration or from the variables `OTEL_*`; returns what ends it.

    Without an endpoint, and without the packages that it needs, nothing is traced.
    """
    if endpoint is None and not any(os.environ.get(name) for name in _ENDPOINTS):
        return lambda: None
    try:
        # Imported late: they are no part of the extra.
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        exporters = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    except ImportError as error:
        _log.warning(
            "nothing is traced: %s is not installed. Run: pip install opentelemetry-sdk"
            " opentelemetry-exporter-otlp-proto-http",
            error.name,
        )
        return lambda: None
    resource = Resource.create()
    if str(resource.attributes.get(_SERVICE_NAME, _UNNAMED)).startswith(_UNNAMED):
        # The variables name the service and further attributes; without them the SDK has a name of its own.
        resource = resource.merge(Resource({_SERVICE_NAME: "iceberg-compact-sql"}))
    provider = TracerProvider(resource=resource)
    # Without an endpoint of its own the exporter reads the variables.
    make = exporters.OTLPSpanExporter
    exporter = make() if endpoint is None else make(f"{endpoint.rstrip('/')}/v1/traces")
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider.shutdown


@contextlib.contextmanager
def job_context(job: Job) -> Iterator[None]:
    """Make the spans of the block those of a job: they have its id, and the `traceparent` of its request as parent."""
    # Without the SDK there are no spans.
    if "opentelemetry.sdk.trace" not in sys.modules:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    from iceberg_compact_sql.report.tracing import JOB_ID

    carrier = {} if job.traceparent is None else {"traceparent": job.traceparent}
    parent = TraceContextTextMapPropagator().extract(carrier)
    token = context.attach(context.set_value(JOB_ID, job.job_id, parent))
    try:
        yield
    finally:
        context.detach(token)

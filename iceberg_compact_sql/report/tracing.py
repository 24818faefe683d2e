"""Spans of a run for OpenTelemetry: a listener of events. Without an SDK in the process it does nothing.

Needs the extra `tracing`. `compact_table` has the children `planning`, `execution` with `group`, and `commit`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace import Span, StatusCode, Tracer, TracerProvider

from iceberg_compact_sql.report.action_outcome import ActionOutcome
from iceberg_compact_sql.version import VERSION

# The key of the job's id in the current context of OpenTelemetry.
JOB_ID = context.create_key("iceberg-compact-job-id")


class Tracing:
    """Spans of the actions of one run; `listener` takes its events.

    `job_id` is that of a service's job, given here or in the current context, else the id of the run. The span of an
    action is a child of the current span.
    """

    def __init__(self, *, job_id: str | None = None, provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = trace.get_tracer("iceberg_compact_sql", VERSION, provider)
        self._job_id = job_id
        self._action: Span | None = None
        self._open: dict[str, Span] = {}
        self._execution_started_ns = 0
        self._attempt = 0
        self._lock = threading.Lock()

    def listener(self, event: str, facts: Mapping[str, Any]) -> None:
        """Begin and end spans; a listener of `events`."""
        with self._lock:
            if event == "action.start":
                self._begin_action(facts)
            elif self._action is not None:
                self._inside(event, facts)

    def _begin_action(self, facts: Mapping[str, Any]) -> None:
        job_id = self._job_id or str(context.get_value(JOB_ID) or facts["run_id"] or "")
        attributes = {"table": facts["table"], "job_id": job_id}
        self._action = self._tracer.start_span(facts["procedure"], attributes=attributes)
        self._attempt = 0
        if facts["procedure"] == "compact_table":
            self._begin("planning")

    def _inside(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "plan.done":
            self._end("planning", files=facts["files"], groups=facts["groups"])
        elif event == "compact.start":
            self._end("execution")
            self._execution_started_ns = time.time_ns()
            self._begin("execution")
        elif event == "compact.group":
            self._group(facts)
        elif event == "compact.conflict":
            self._end("execution")
            self._begin("planning")
        elif event == "compact.committing":
            self._attempt += 1
            self._begin("commit", attempt=self._attempt)
        elif event == "compact.committed":
            self._end("commit", snapshot_id=facts["snapshot_id"])
        elif event == "compact.commit_failed":
            self._end("commit")
        elif event == "action.done":
            self._end_action(ActionOutcome(**facts["outcome"]))

    def _begin(self, name: str, **attributes: Any) -> None:
        parent = self._open.get("execution") if name == "group" else self._action
        assert parent is not None
        inside = trace.set_span_in_context(parent)
        self._open[name] = self._tracer.start_span(name, inside, attributes=attributes)

    def _end(self, name: str, **attributes: Any) -> None:
        span = self._open.pop(name, None)
        if span is not None:
            span.set_attributes(attributes)
            span.end()

    def _group(self, facts: Mapping[str, Any]) -> None:
        """A group that is rewritten: tasks of groups run side by side, so all begin with the execution."""
        parent = self._open.get("execution") or self._action
        assert parent is not None
        names = ("group_id", "partition", "files", "input_bytes", "outputs", "written_bytes")
        span = self._tracer.start_span(
            "group",
            trace.set_span_in_context(parent),
            attributes={name: facts[name] for name in names},
            start_time=self._execution_started_ns or None,
        )
        span.end()

    def _end_action(self, outcome: ActionOutcome) -> None:
        for name in reversed(tuple(self._open)):
            self._end(name)
        span, self._action = self._action, None
        assert span is not None
        if outcome.strategy is not None:
            span.set_attribute("strategy", outcome.strategy)
        span.set_attributes({"status": outcome.status, "snapshot_ids": [str(id) for id in outcome.snapshot_ids]})
        if outcome.error is not None:
            span.set_status(StatusCode.ERROR, outcome.error)
        span.end()

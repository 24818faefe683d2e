"""The Python process that the jar starts: it runs the CALLs of a JVM in the JVM's own sessions.

Requests come on stdin and answers go to a private channel. Each is one line of JSON:

    {"op": "ask", "id": "call-1", "sql": "CALL ..."}  ->  {"id": "call-1", "claimed": true, "columns": [["n", "int"]]}
    {"op": "run", "id": "call-2", "sql": "CALL ..."}  ->  {"id": "call-2", "rows": [[1]]}
    {"op": "cancel", "id": "call-2"}                  ->  {"id": "call-2", "error": "...", "condition": "...", ...}
    {"op": "ping", "id": "ping"}                      ->  {"id": "ping"}

Each call has its own thread, which Py4J pins to a JVM thread: job groups and sessions of callers do not mix. The
process ends when its stdin closes.
"""

from __future__ import annotations

import contextvars
import datetime as dt
import json
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.doors.results import Answer
from iceberg_compact_sql.doors.session import answer
from iceberg_compact_sql.errors import IcebergCompactError, IcebergKind, RunCancelledError
from iceberg_compact_sql.redaction import mask_remembered, masked_logger, redact

PROTOCOL = 1
_log = masked_logger(__name__)
# How long cancelled calls may clean up after the JVM has ended.
_CLEAN_UP_SECONDS = 5.0


class Jvm:
    """The JVM behind the Py4J gateway; gives its sessions as pyspark sessions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gateway: Any = None
        self._context: Any = None

    def session(self, call_id: str) -> Any:
        """Return the caller's session. Jobs of this thread then belong to the caller's job group."""
        from pyspark.sql import SparkSession

        with self._lock:
            if self._gateway is None:
                from pyspark.java_gateway import launch_gateway

                self._gateway = launch_gateway()  # type: ignore[no-untyped-call]
            # Sets job group, tags and active session on the JVM thread that serves this thread.
            java_session = self._gateway.jvm.icebergcompactsql.Bridge.enter(call_id)
            if self._context is None:
                self._context = self._wrap(java_session.sparkContext())
        return SparkSession(self._context, java_session)

    def _wrap(self, scala_context: Any) -> Any:
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        jvm = self._gateway.jvm
        java_context = jvm.JavaSparkContext.fromSparkContext(scala_context)
        conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
        context = SparkContext(gateway=self._gateway, jsc=java_context, conf=conf)
        # pyspark makes the first session that it wraps the JVM's default: wrap the present default first.
        default = jvm.icebergcompactsql.Bridge.defaultSession()
        if default is not None:
            SparkSession(context, default)
        return context


@dataclass(frozen=True)
class RunningCall:
    """The thread of a call, and the observer that cancels it."""

    thread: threading.Thread
    observer: events.Observer


class Calls:
    """The running calls, and the channel for their answers."""

    def __init__(self, channel: int, jvm: Jvm) -> None:
        self._channel = os.fdopen(channel, "w", encoding="utf-8", buffering=1)
        self._jvm = jvm
        self._answers = threading.Lock()
        self._lock = threading.Lock()
        self._running: dict[str, RunningCall] = {}

    def begin(self, request: dict[str, Any]) -> None:
        """Start a call in its own thread."""
        call_id, observer = request["id"], events.Observer()
        # A copied context: events of the call reach the listeners of the thread that starts it.
        run = partial(contextvars.copy_context().run, self._run_and_reply, request, observer)
        thread = threading.Thread(target=run, name=call_id, daemon=True)
        with self._lock:
            self._running[call_id] = RunningCall(thread, observer)
        thread.start()

    def cancel(self, call_id: str) -> None:
        """Cancel a running call: it stops at its next safe point. Do nothing when it has ended."""
        with self._lock:
            call = self._running.get(call_id)
        if call is not None:
            call.observer.cancel()

    def end_all(self) -> None:
        """Cancel every call and wait a few seconds until they have cleaned up."""
        with self._lock:
            calls = list(self._running.values())
        for call in calls:
            call.observer.cancel()
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        for call in calls:
            call.thread.join(max(0.0, deadline - time.monotonic()))

    def reply(self, call_id: str, **content: Any) -> None:
        """Write one answer line; safe to call from several threads."""
        line = json.dumps({"id": call_id, **content}) + "\n"
        with self._answers:
            self._channel.write(line)

    def _run_and_reply(self, request: dict[str, Any], observer: events.Observer) -> None:
        call_id = request["id"]
        content = self._outcome(call_id, request["op"], request["sql"], observer)
        with self._lock:
            del self._running[call_id]
        self.reply(call_id, **content)

    def _outcome(self, call_id: str, operation: str, sql: str, observer: events.Observer) -> dict[str, Any]:
        try:
            spark = self._jvm.session(call_id)
            if operation == "ask":
                claim = answer(spark, sql, bound_only=True)
                return {"claimed": False} if claim is None else {"claimed": True, "columns": _columns(claim)}
            with events.observed(observer):
                events.reach("bridge.run", sql=sql)
                result = answer(spark, sql, observer=observer)
            if result is None:
                raise IcebergCompactError(
                    "the session changed between reading and running this CALL", hint="Try again."
                )
            return {"rows": _rows(result)}
        except events.RunCancelled:
            error = RunCancelledError("cancelled before it began", hint="Nothing was changed.")
            return _error_content(error.with_procedure(_procedure_name(sql)))
        except IcebergCompactError as error:
            return _error_content(error, _parameter_hint(error, spark))
        except BaseException as error:
            _log.exception("unexpected error in a CALL")
            return _failed(sql, error)


def serve(channel: int) -> None:
    """Answer requests until stdin closes, then end the process."""
    # Ctrl-C in a shell reaches the whole process group. The jar sends a cancel request for the call that it meant.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _log_to_stderr()
    calls = Calls(channel, Jvm())
    for line in iter(sys.stdin.buffer.readline, b""):
        request = json.loads(line)
        if request["op"] == "ping":
            calls.reply(request["id"])
        elif request["op"] == "cancel":
            calls.cancel(request["id"])
        else:
            calls.begin(request)
    calls.end_all()
    os._exit(0)


def _log_to_stderr() -> None:
    """Log progress to stderr, which this process shares with the user's shell."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    package = logging.getLogger("iceberg_compact_sql")
    package.addHandler(handler)
    package.propagate = False
    if package.level == logging.NOTSET:
        package.setLevel(logging.INFO)


def _columns(claim: Answer) -> list[list[str]]:
    return [[column.name, column.type] for column in claim.columns]


def _rows(result: Answer) -> list[list[Any]]:
    """Rows as values of JSON; a timestamp becomes microseconds since the epoch."""
    types = [column.type for column in result.columns]
    return [[_json_value(value, kind) for value, kind in zip(row, types, strict=True)] for row in result.rows]


def _json_value(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        aware = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        return (aware - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(microseconds=1)
    if kind in ("int", "bigint"):
        return int(value)
    if kind == "double":
        return float(value)
    return bool(value) if kind == "boolean" else str(value)


def _procedure_name(sql: str) -> str:
    name = called_name(sql)
    return name.procedure if name else "CALL"


def _parameter_hint(error: IcebergCompactError, spark: Any) -> str:
    """Advice for Spark 4.0, which does not give the values of `:name` and `?` to an extension."""
    if error.detail.startswith("argument") and "marker" in error.detail and spark.version.startswith("4.0."):
        return "\nSpark 4.0 does not hand parameters to an extension: write the value into the text of the CALL."
    return ""


def _error_content(error: IcebergCompactError, advice: str = "") -> dict[str, Any]:
    text = f"{mask_remembered(str(error))}{advice}"
    content = {"error": text, "condition": error.condition, "sql_state": error.sql_state}
    if error.shown_as is not None:
        # CallFailed adds the condition to an AnalysisException; other exceptions of Java take the whole text.
        analysis = error.shown_as.kind is IcebergKind.ANALYSIS
        message = mask_remembered(error.shown_as.message if analysis else error.shown_as.text)
        content |= {"iceberg_kind": error.shown_as.kind.value, "iceberg_message": message}
    return content


def _failed(sql: str, error: BaseException) -> dict[str, Any]:
    # The text of a Java exception includes its stack trace; the first line is the message.
    first_line = (redact(error) or type(error).__name__).strip().splitlines()[0]
    text = f"{_procedure_name(sql)}: {type(error).__name__}: {first_line}"
    return {"error": text, "condition": IcebergCompactError.condition, "sql_state": IcebergCompactError.sql_state}

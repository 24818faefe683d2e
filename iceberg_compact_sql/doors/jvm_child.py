"""The Python child of the JVM door: runs CALLs that the jar hands over, in the JVM's own sessions.

Requests come on stdin and answers go out on a private channel, a line of JSON each:

    {"op": "ask", "id": "call-1", "sql": "CALL ..."}  ->  {"id": "call-1", "claimed": true, "columns": [["n", "int"]]}
    {"op": "run", "id": "call-2", "sql": "CALL ..."}  ->  {"id": "call-2", "rows": [[1]]}
    {"op": "cancel", "id": "call-2"}                  ->  {"id": "call-2", "error": "...", "condition": "...", ...}
    {"op": "ping", "id": "ping"}                      ->  {"id": "ping"}

Each call has a thread of its own, which Py4J pins to a JVM thread: job groups and sessions of callers do not mix. The
process ends when its stdin does.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from iceberg_compact_sql import events
from iceberg_compact_sql.call.detect import called_name
from iceberg_compact_sql.doors.results import Answer
from iceberg_compact_sql.doors.session import answer
from iceberg_compact_sql.errors import IcebergCompactError

PROTOCOL = 1
LOGGER = logging.getLogger("iceberg_compact_sql")
# What a call that is being cancelled gets to clean up, when the JVM has gone away.
_LAST_SECONDS = 5.0


class CallCancelled(KeyboardInterrupt):
    """The caller does not want the call any more; raised inside the call's own thread."""


class Jvm:
    """The JVM at the other end of the gateway, as sessions of pyspark."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._gateway: Any = None
        self._context: Any = None

    def session(self, call_id: str) -> Any:
        """The caller's session; this thread's jobs become the caller's jobs."""
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
        # pyspark makes the first session it meets the JVM's default: let that be the one that is it already.
        default = jvm.icebergcompactsql.Bridge.defaultSession()
        if default is not None:
            SparkSession(context, default)
        return context


class Calls:
    """The calls under way, and the channel for their answers."""

    def __init__(self, channel: int, jvm: Jvm) -> None:
        self._channel = os.fdopen(channel, "w", encoding="utf-8", buffering=1)
        self._jvm = jvm
        self._answers = threading.Lock()
        self._lock = threading.RLock()
        self._threads: dict[str, threading.Thread] = {}

    def begin(self, request: dict[str, Any]) -> None:
        """Start a call in a thread of its own."""
        call_id = request["id"]
        thread = threading.Thread(target=self._work, args=(request,), name=call_id, daemon=True)
        with self._lock:
            self._threads[call_id] = thread
        thread.start()

    def cancel(self, call_id: str) -> None:
        """Interrupt a call where it is, as Ctrl-C does; a call that has just ended is left alone."""
        with self._lock:
            thread = self._threads.get(call_id)
            if thread is not None and thread.ident is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident), ctypes.py_object(CallCancelled)
                )

    def end_all(self) -> None:
        """Interrupt every call and give them a moment to clean up."""
        threads = list(self._threads.items())
        for call_id, _ in threads:
            self.cancel(call_id)
        deadline = time.monotonic() + _LAST_SECONDS
        for _, thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def reply(self, call_id: str, **content: Any) -> None:
        line = json.dumps({"id": call_id, **content}) + "\n"
        with self._answers:
            self._channel.write(line)

    def _work(self, request: dict[str, Any]) -> None:
        call_id, sql = request["id"], request["sql"]
        try:
            content = self._outcome(call_id, request["op"], sql)
            with self._lock:
                # From here on there is nothing to cancel.
                del self._threads[call_id]
        except CallCancelled:
            # Came in between: the outcome of an interrupted call is not known to us.
            content = _cancelled(sql)
        self.reply(call_id, **content)

    def _outcome(self, call_id: str, operation: str, sql: str) -> dict[str, Any]:
        try:
            spark = self._jvm.session(call_id)
            if operation == "ask":
                claim = answer(spark, sql, bound_only=True)
                return {"claimed": False} if claim is None else {"claimed": True, "columns": _columns(claim)}
            events.reach("bridge.run", sql=sql)
            result = answer(spark, sql)
            if result is None:
                raise IcebergCompactError(
                    "the session changed between reading and running this CALL", hint="Try again."
                )
            return {"rows": _rows(result)}
        except IcebergCompactError as error:
            text = f"{error}{_parameter_hint(error, spark)}"
            return {"error": text, "condition": error.condition, "sql_state": error.sql_state}
        except KeyboardInterrupt:
            return _cancelled(sql)
        except BaseException as error:
            LOGGER.exception("a CALL failed in a way that it should not")
            return _failed(sql, error)


def serve(channel: int) -> None:
    """Answer requests until stdin ends, then end the process."""
    # Ctrl-C in a shell reaches the whole process group; the jar tells which call it was meant for.
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
    """Progress lines are for the person at the shell, whose stderr is ours."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    if LOGGER.level == logging.NOTSET:
        LOGGER.setLevel(logging.INFO)


def _columns(claim: Answer) -> list[list[str]]:
    return [[column.name, column.type] for column in claim.columns]


def _rows(result: Answer) -> list[list[Any]]:
    """Rows as JSON can carry them: timestamps as microseconds since the epoch."""
    types = [column.type for column in result.columns]
    return [[_plain(value, kind) for value, kind in zip(row, types, strict=True)] for row in result.rows]


def _plain(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "timestamp":
        moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)) // dt.timedelta(microseconds=1)
    if kind in ("int", "bigint"):
        return int(value)
    if kind == "double":
        return float(value)
    return bool(value) if kind == "boolean" else str(value)


def _procedure(sql: str) -> str:
    name = called_name(sql)
    return name.procedure if name else "CALL"


def _parameter_hint(error: IcebergCompactError, spark: Any) -> str:
    """Spark 4.0 keeps the values of `:name` and `?` to itself: then it is no use to pass them."""
    if error.detail.startswith("argument") and "marker" in error.detail and spark.version.startswith("4.0."):
        return "\nSpark 4.0 does not hand parameters to an extension: write the value into the text of the CALL."
    return ""


def _cancelled(sql: str) -> dict[str, Any]:
    text = f"{_procedure(sql)}: cancelled. What it had committed by then stays in the table; run it again for the rest."
    return {"error": text, "condition": "ICEBERG_COMPACT_CANCELLED", "sql_state": "HY008"}


def _failed(sql: str, error: BaseException) -> dict[str, Any]:
    # A Java exception brings its stack trace along as text: the first line is the message.
    first_line = (str(error) or type(error).__name__).strip().splitlines()[0]
    text = f"{_procedure(sql)}: {type(error).__name__}: {first_line}"
    return {"error": text, "condition": IcebergCompactError.condition, "sql_state": IcebergCompactError.sql_state}

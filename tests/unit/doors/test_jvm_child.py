"""The Python child of the JVM door by itself: what it says, and that it stays and goes when it should."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iceberg_compact_sql.call.declaration import columns
from iceberg_compact_sql.doors.jvm_child import PROTOCOL, _rows
from iceberg_compact_sql.doors.results import Answer

ROOT = Path(__file__).resolve().parents[3]
BOOTSTRAP = (ROOT / "iceberg_compact_sql/jvm/src/icebergcompactsql/bootstrap.py.txt").read_text()


def _child(*flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *flags, "-c", BOOTSTRAP],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _line(child: subprocess.Popen[str]) -> Any:
    assert child.stdout is not None
    return json.loads(child.stdout.readline())


def test_the_child_greets_answers_and_ends_with_its_input() -> None:
    with _child("-u") as child:
        assert child.stdin is not None and child.stderr is not None
        hello = _line(child)
        assert hello["protocol"] == PROTOCOL
        assert hello["python"] == sys.executable
        child.stdin.write('{"op": "ping", "id": "ping"}\n')
        child.stdin.flush()
        assert _line(child) == {"id": "ping"}
        # Ctrl-C in a shell reaches the child too, and is not for it.
        os.kill(child.pid, signal.SIGINT)
        child.stdin.write('{"op": "cancel", "id": "call-that-ended"}\n{"op": "ping", "id": "again"}\n')
        child.stdin.flush()
        assert _line(child) == {"id": "again"}
        child.stdin.close()
        assert child.wait(10) == 0
        assert child.stderr.read() == ""


def test_a_call_without_a_jvm_is_answered_with_an_error() -> None:
    with _child("-u") as child:
        assert child.stdin is not None
        _line(child)
        child.stdin.write('{"op": "ask", "id": "call-1", "sql": "CALL help()"}\n')
        child.stdin.flush()
        answer = _line(child)
        assert answer["id"] == "call-1"
        assert answer["error"].startswith("help: ")
        assert answer["condition"] == "ICEBERG_COMPACT_FAILED"
        child.stdin.close()
        child.wait(10)


def test_an_interpreter_without_the_package_says_what_is_missing() -> None:
    with _child("-I", "-S") as child:
        hello = _line(child)
        assert hello["missing"] in ("iceberg_compact_sql", "pyspark")
        assert child.wait(10) == 3


@pytest.mark.parametrize(
    ("kind", "value", "plain"),
    [
        ("int", 3, 3),
        ("bigint", 2**62, 2**62),
        ("double", 0.25, 0.25),
        ("boolean", True, True),
        ("string", "größe", "größe"),
        ("timestamp", dt.datetime(1970, 1, 1, 0, 0, 1, 5, tzinfo=dt.timezone.utc), 1_000_005),
        ("timestamp", dt.datetime(1969, 12, 31, 23, 59, 59), -1_000_000),
        ("timestamp", dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))), 0),
        ("timestamp", None, None),
    ],
)
def test_values_cross_as_json(kind: str, value: Any, plain: Any) -> None:
    rows = _rows(Answer("help", columns(f"v {kind}"), [(value,)]))
    assert json.loads(json.dumps(rows)) == [[plain]]

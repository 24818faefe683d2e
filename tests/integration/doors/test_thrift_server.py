"""The real Thrift server with the jar: beeline, two sessions at once, cancelling, and dbt."""

from __future__ import annotations

import contextlib
import re
import subprocess
import threading
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dbt import run_dbt
from tests.support.programs import BIN, Surroundings, server, surroundings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pyhive import hive  # type: ignore[import-not-found,import-untyped,unused-ignore]

# beeline repeats its prompt where standard input is not a terminal.
_PROMPT = re.compile(r"^(\d+: jdbc:\S+> )+")
_CLASS = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"


@pytest.mark.timeout(240)
def test_calls_through_the_thrift_server(tmp_path: Path) -> None:
    around = surroundings(tmp_path)
    for table in ("db.beeline", "one.events", "two.events", "db.models"):
        around.create(table)
    host = ["--conf", "spark.hive.server2.thrift.bind.host=127.0.0.1"]
    with server(around, _CLASS, "spark.hive.server2.thrift.port", *host, catalog="hive") as port:
        _beeline(around, port)
        _two_sessions_at_once(around, port)
        _cancelled(around, port)
        _dbt(around, port)


def _beeline(around: Surroundings, port: int) -> None:
    """Typed columns and errors through JDBC; the rewrite is a Spark job in the statement's own job group."""
    around.put("on-spark")
    url = f"jdbc:hive2://127.0.0.1:{port}/default"
    good = "CALL compact_table('local.db.beeline', target => '1MB')"
    bad = "CALL compact_table('local.db.beeline', targt => '1MB')"
    done = subprocess.run(
        [str(BIN / "beeline"), "-u", url, "--silent=true", "--outputformat=csv2", "-e", good, "-e", bad],
        cwd=around.folder,
        env=around.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    header, row = (_PROMPT.sub("", line).split(",") for line in done.stdout.strip().splitlines()[:2])
    assert header[:3] == ["rewritten_data_files_count", "added_data_files_count", "rewritten_bytes_count"], done
    assert row[:2] == ["6", "1"]
    assert around.state("db.beeline") == (1, list(range(12)), 7)
    assert "[ICEBERG_COMPACT_INVALID_ARGUMENT] compact_table: unknown argument 'targt'" in done.stderr
    around.take("on-spark")
    assert uuid.UUID((around.folder / "job-group").read_text())


def _two_sessions_at_once(around: Surroundings, port: int) -> None:
    """Each session keeps its own namespace and settings, and both calls are inside Python at the same time."""
    around.put("stall")
    results: dict[str, list[tuple[Any, ...]]] = {}

    def call(namespace: str, threshold: int) -> None:
        with _cursor(port) as cursor:
            cursor.execute("SET spark.iceberg_compact_sql.catalog=local")
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {namespace}")
            cursor.execute(f"USE {namespace}")
            cursor.execute(f"CALL compact_table('events', target => '1MB', min_input_files => {threshold})")
            results[namespace] = cursor.fetchall()

    threads = [threading.Thread(target=call, args=arguments) for arguments in (("one", 2), ("two", 100))]
    for thread in threads:
        thread.start()
        around.await_file("stalled")
    around.take("stall")
    for thread in threads:
        thread.join(60)
    assert results["one"][0][:2] == (6, 1)
    assert results["two"][0][:2] == (0, 0)
    assert around.state("one.events")[0] == 1
    assert around.state("two.events")[0] == 6


def _cancelled(around: Surroundings, port: int) -> None:
    around.put("stall")
    with _cursor(port) as cursor:
        cursor.execute("CALL help()", async_=True)
        around.await_file("stalled")
        cursor.cancel()
        around.await_file("interrupted")
        around.take("stall")
    with _cursor(port) as cursor:
        cursor.execute("CALL help()")
        assert cursor.fetchall()


def _dbt(around: Surroundings, port: int) -> None:
    around.environment.update(DBT_THRIFT_PORT=str(port))
    done = run_dbt(around, "thrift", "run", "--select", "upkeep", "--vars", "{events_table: local.db.models}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert around.state("db.models") == (1, list(range(12)), 7)


@contextlib.contextmanager
def _cursor(port: int) -> Iterator[Any]:
    with (
        contextlib.closing(hive.connect("127.0.0.1", port)) as connection,
        contextlib.closing(connection.cursor()) as cursor,
    ):
        yield cursor

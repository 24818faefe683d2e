"""The lock of the flat command and the history database, on a real PostgreSQL."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.flat_command.advisory_lock import TableLocks
from iceberg_compact_sql.report.history_store import read
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.postgres import PASSWORD, PostgresServer

KEY = "hashtextextended('db.t', 0)"


@pytest.fixture
def standby(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A database whose sessions are read-only, as on a standby."""
    with postgres.connect() as connection:
        connection.execute("CREATE DATABASE standby")
        connection.execute("ALTER DATABASE standby SET default_transaction_read_only = on")
        yield PostgresServer(postgres.port, "standby")
        connection.execute("DROP DATABASE standby WITH (FORCE)")


def make(lake: PlainLake) -> None:
    lake.create("db.t", *(pa.table({"id": pa.array([number], pa.int64())}) for number in range(6)))


def deploy(folder: Path, dsn: str) -> Path:
    """A file of the second shape; it can only describe a REST catalog, which is not used here."""
    path = folder / "deploy.yaml"
    path.write_text(
        f"postgres: {{dsn: '{dsn}'}}\n"
        "iceberg: {lakekeeper_endpoint: 'http://127.0.0.1:9', namespace: db}\n"
        "s3: {region: eu}\n"
    )
    return path


def command(path: Path) -> list[str]:
    program = [sys.executable, "-m", "iceberg_compact_sql.flat_command.command"]
    return [*program, "--config", str(path), "--table", "db.t", "--format", "json"]


def test_a_lock_is_held_by_one_and_freed_at_the_end(postgres: PostgresServer) -> None:
    locks = TableLocks(postgres.url())
    with postgres.connect() as other:

        def free() -> Any:
            row = other.execute(f"SELECT pg_try_advisory_lock({KEY})").fetchone()
            assert row is not None
            if row[0]:
                other.execute(f"SELECT pg_advisory_unlock({KEY})")
            return row[0]

        with locks.held("db.t"):
            assert free() is False
        assert free() is True
        with pytest.raises(ZeroDivisionError), locks.held("db.t"):
            raise ZeroDivisionError
        assert free() is True
        other.execute(f"SELECT pg_advisory_lock({KEY})")
        waited = threading.Event()

        def wait() -> None:
            with locks.held("db.t"):
                waited.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert not waited.wait(1)
        other.execute(f"SELECT pg_advisory_unlock({KEY})")
        thread.join(60)
        assert waited.is_set()


def test_a_lost_connection_stops_a_run_before_its_commit(plain_lake: PlainLake, postgres: PostgresServer) -> None:
    make(plain_lake)
    locks = TableLocks(postgres.url("postgresql+psycopg"))
    with postgres.connect() as other, locks.held("db.t"):
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(IcebergCompactError, match="is lost, because the connection"):
            call(plain_lake, "CALL compact_table('db.t', target => '1MB')")
    assert len(plain_lake.load("db.t").snapshots()) == 6


def test_the_command_holds_the_lock_across_its_commit_and_refuses_a_standby(
    plain_lake: PlainLake, postgres: PostgresServer, standby: PostgresServer, tmp_path: Path
) -> None:
    make(plain_lake)
    settings = tmp_path / "spark"
    settings.mkdir()
    # The catalog `plain` as the session's default: the file of this shape can only describe a REST catalog.
    conf = {**plain_lake.conf, "spark.sql.defaultCatalog": "plain"}
    (settings / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
    environment = os.environ | {"SPARK_CONF_DIR": str(settings)}
    refused = subprocess.run(
        command(deploy(tmp_path, standby.url())),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert refused.returncode == 1 and refused.stdout == ""
    assert "postgres.dsn names a read-only server (a standby)" in refused.stderr and PASSWORD not in refused.stderr
    run = command(deploy(tmp_path, postgres.url()))
    with postgres.connect() as writer:
        writer.execute(f"SELECT pg_advisory_lock({KEY})")
        dry = subprocess.run([*run, "--dry-run"], capture_output=True, text=True, env=environment, check=False)
        assert dry.returncode == 0 and json.loads(dry.stdout)["outcome"] == "planned", dry.stderr
        waiting = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        waiters = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while waiting.poll() is None and writer.execute(waiters).fetchone() == (0,):
            pass
        assert waiting.poll() is None, waiting.communicate()
        assert len(plain_lake.load("db.t").snapshots()) == 6
        writer.execute(f"SELECT pg_advisory_unlock({KEY})")
        output, errors = waiting.communicate(timeout=200)
    assert waiting.returncode == 0, errors
    assert json.loads(output)["outcome"] == "done"
    assert len(plain_lake.load("db.t").snapshots()) == 7


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("postgresql://ice:geheim-99@127.0.0.1:9/lake", "cannot be reached: .*Check postgres.dsn"),
        ("host=127.0.0.1 port=9 password=geheim-99", "cannot be reached"),
    ],
)
def test_a_server_that_is_down(dsn: str, message: str) -> None:
    with pytest.raises(IcebergCompactError, match=message) as raised:
        TableLocks(dsn)
    assert "geheim-99" not in str(raised.value)


def test_the_history_is_kept_in_postgresql(
    plain_lake: PlainLake, postgres: PostgresServer, standby: PostgresServer
) -> None:
    make(plain_lake)
    plain_lake.conf["spark.iceberg_compact_sql.history"] = url = postgres.url("postgresql+psycopg")
    call(plain_lake, "CALL compact_table('db.t', target => '1MB')")
    (row,) = call(plain_lake, "CALL history('db.t')")
    assert (row["procedure"], row["status"], row["removed_data_files"]) == ("compact_table", "success", 6)
    (entry,) = read(url, table="plain.db.t")
    assert entry.snapshot_ids == (row["snapshot_id"],)
    plain_lake.conf["spark.iceberg_compact_sql.history"] = standby.url("postgresql+psycopg")
    with pytest.raises(IcebergCompactError, match="in a read-only transaction") as raised:
        call(plain_lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert PASSWORD not in str(raised.value)
    plain_lake.conf["spark.iceberg_compact_sql.history"] = postgres.url("postgresql+psycopg") + "_missing"
    with pytest.raises(IcebergCompactError, match='database "postgres_missing" does not exist'):
        call(plain_lake, "CALL compact_table('db.t', rewrite_all => true)")
    assert len(plain_lake.load("db.t").snapshots()) == 7

"""The cases that every catalog and every store passes, on a real server.

A counterpart is the settings of a session and a foreign writer: Iceberg's Java where it can use the server, otherwise
pyiceberg. Each case is one function here, and one test in the module of the counterpart:

    every_procedure(counterpart)
    race(counterpart, rounds=8)
    lost_answer_of_a_commit(counterpart, proxy, b"UpdateTable")
    server_down(counterpart, proxy)
    server_silent(counterpart, proxy)
    server_restarted(counterpart, proxy.stop, proxy.start)
    wrong_credentials(counterpart, {"s3.secret-access-key": "wrong"}, "wrong")
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyspark.sql import SparkSession

from iceberg_compact_sql.errors import IcebergCompactError
from iceberg_compact_sql.events import listening
from tests.support.calls import call
from tests.support.handmade import SIMPLE_SCHEMA, add_position_deletes, append, data_paths, make_table
from tests.support.tcp_proxy import TcpProxy

EXPIRE = "CALL expire_snapshots('db.t', retain_last => 1, older_than => TIMESTAMP '2100-01-01 00:00:00')"
# A server that does not answer is an error within 30 s with the defaults; with these, within seconds.
QUICK = {"connect_timeout": "1s", "answer_timeout": "1s", "attempts": "2", "retry_time": "1s", "commit_timeout": "5s"}
MOST_SECONDS = 30.0
DAY_MS = 86_400_000


class Writer(Protocol):
    """Another writer of table `db.t`, with the columns `id` and `name`."""

    def create(self) -> None: ...

    def append(self, *ids: int) -> None: ...

    def delete_first_row(self) -> None:
        """Delete the first row of a data file with a position delete."""

    def ids(self) -> list[int]:
        """All ids in order, read from the current state."""


class Outages(Protocol):
    """A server, or a proxy before it, that can go away."""

    silent: bool

    def stop(self) -> None: ...

    def start(self) -> None: ...


@dataclass(frozen=True)
class PyicebergWriter:
    """pyiceberg, for servers that Iceberg's Java cannot use here."""

    catalog: Catalog

    def create(self) -> None:
        make_table(self.catalog, "db.t", SIMPLE_SCHEMA)

    def append(self, *ids: int) -> None:
        while True:
            try:
                append(self.catalog.load_table("db.t"), [{"id": value, "name": "n"} for value in ids])
                return
            except CommitFailedException:
                continue

    def delete_first_row(self) -> None:
        table = self.catalog.load_table("db.t")
        add_position_deletes(table, {data_paths(table)[0]: [0]})

    def ids(self) -> list[int]:
        rows: pa.Table = self.catalog.load_table("db.t").scan().to_arrow()
        return sorted(rows["id"].to_pylist())


@dataclass(frozen=True)
class JavaWriter:
    """Iceberg's Java in a Spark session."""

    spark: SparkSession
    catalog: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def create(self) -> None:
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.db")
        # A delete of a row is a position delete. Iceberg's own retries: enough for every race here.
        properties = {"write.delete.mode": "merge-on-read", "commit.retry.num-retries": "40", **self.properties}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self.spark.sql(
            f"CREATE TABLE {self.catalog}.db.t (id BIGINT, name STRING) USING iceberg TBLPROPERTIES ({listed})"
        )

    def append(self, *ids: int) -> None:
        rows = ", ".join(f"({value}, 'n')" for value in ids)
        self.spark.sql(f"INSERT INTO {self.catalog}.db.t SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")

    def delete_first_row(self) -> None:
        smallest = self.spark.sql(f"SELECT min(id) FROM {self.catalog}.db.t").collect()[0][0]
        self.spark.sql(f"DELETE FROM {self.catalog}.db.t WHERE id = {smallest}")

    def ids(self) -> list[int]:
        return [row[0] for row in self.spark.sql(f"SELECT id FROM {self.catalog}.db.t ORDER BY id").collect()]


@dataclass(frozen=True)
class Counterpart:
    """One catalog on one store: the settings of our session, and the foreign writer of the same table."""

    name: str
    conf: Mapping[str, str]
    writer: Writer

    def call(self, sql: str, *, now_ms: int | None = None) -> list[dict[str, Any]]:
        return call(self, sql, now_ms=now_ms)  # type: ignore[arg-type]

    def with_settings(self, settings: Mapping[str, str]) -> Counterpart:
        """The same with other settings of the catalog."""
        changed = {f"spark.sql.catalog.{self.name}.{key}": value for key, value in settings.items()}
        return replace(self, conf={**self.conf, **changed})

    def quick(self) -> Counterpart:
        """The same with short time limits."""
        limits = {f"spark.iceberg_compact_sql.{name}": value for name, value in QUICK.items()}
        return replace(self, conf={**self.conf, **limits})

    def fragment(self, files: int = 6) -> list[int]:
        """Create the table with that many small files of ten rows; gives the ids."""
        self.writer.create()
        for number in range(files):
            self.writer.append(*range(10 * number, 10 * number + 10))
        return list(range(10 * files))


def every_procedure(counterpart: Counterpart) -> None:
    """Every procedure on a table of a foreign writer, which reads the same rows after each of them."""
    before = counterpart.fragment()
    (score,) = counterpart.call("CALL score_partitions('db.t')")
    assert score["data_files"] == 6
    (group,) = counterpart.call("CALL compact_table('db.t', dry_run => true)")
    assert (group["action"], group["data_files"]) == ("rewrite", 6)
    (row,) = counterpart.call("CALL compact_table('db.t')")
    assert (row["rewritten_data_files_count"], row["added_data_files_count"]) == (6, 1)
    assert counterpart.writer.ids() == before
    for number in range(2):
        counterpart.writer.append(1000 + number)
    counterpart.writer.delete_first_row()
    counterpart.writer.append(2000)
    counterpart.writer.delete_first_row()
    rows = counterpart.writer.ids()
    assert len(rows) == len(before) + 1
    counterpart.call("CALL rewrite_position_deletes('db.t', options => map('rewrite-all', 'true'))")
    assert counterpart.writer.ids() == rows
    (row,) = counterpart.call("CALL rewrite_manifests('db.t')")
    assert row["rewritten_manifests_count"] > 0
    assert counterpart.writer.ids() == rows
    counterpart.call("CALL compact_table('db.t', rewrite_all => true)")
    assert counterpart.writer.ids() == rows
    (row,) = counterpart.call(EXPIRE)
    assert row["deleted_data_files_count"] >= 7 and row["failed_deletes_count"] == 0
    assert counterpart.writer.ids() == rows
    left = counterpart.call("CALL remove_orphans('db.t', dry_run => true)", now_ms=_in_ten_days())
    # What Java and pyiceberg leave: metadata files that left the log.
    assert not any(row["orphan_file_location"].endswith((".parquet", ".avro")) for row in left)
    counterpart.call("CALL remove_orphans('db.t')", now_ms=_in_ten_days())
    assert counterpart.writer.ids() == rows


def race(counterpart: Counterpart, rounds: int, *, files: int = 3) -> None:
    """Foreign appends while our compactions commit in a loop: no row is lost or doubled."""
    expected = counterpart.fragment(files)
    failures: list[BaseException] = []
    done = threading.Event()

    def write() -> None:
        try:
            for number in range(rounds):
                counterpart.writer.append(5000 + number)
        except BaseException as error:
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    commits = 0
    while not done.is_set():
        try:
            (row,) = counterpart.call("CALL compact_table('db.t', min_input_files => 2)")
            commits += row["commits_count"]
        except IcebergCompactError as error:
            # Too many appends in a row is a clear failure. Anything else is not.
            assert "commit" in str(error).lower(), error
    thread.join()
    assert not failures, failures[0]
    assert commits > 0
    assert counterpart.writer.ids() == sorted([*expected, *range(5000, 5000 + rounds)])


def lost_answer_of_a_commit(counterpart: Counterpart, proxy: TcpProxy, request: bytes) -> None:
    """The commit is carried out and its answer is lost: the snapshot counts once, and no file of it is deleted."""
    _commit_with_fault(counterpart, lambda: proxy.lose_answer(request))
    assert proxy.applied == ["lose answer"]


def refused_commit(counterpart: Counterpart, proxy: TcpProxy, request: bytes) -> None:
    """The connection breaks before the commit reaches the server."""
    _commit_with_fault(counterpart, lambda: proxy.refuse(request))
    assert proxy.applied == ["refuse"]


def server_error_on_commit(counterpart: Counterpart, proxy: TcpProxy, request: bytes, answer: bytes) -> None:
    """The server answers a commit with 503, and does nothing."""
    _commit_with_fault(counterpart, lambda: proxy.answer(request, answer))
    assert proxy.applied == ["answer"]


def repeated_commit(counterpart: Counterpart, proxy: TcpProxy, request: bytes) -> None:
    """A commit arrives twice, and we get the answer to the second: a conflict with its own first copy."""
    _commit_with_fault(counterpart, lambda: proxy.repeat(request))
    assert proxy.applied == ["repeat"]


def _commit_with_fault(counterpart: Counterpart, arm: Callable[[], None]) -> None:
    before = counterpart.fragment(5)
    armed: list[bool] = []

    def at_commit(point: str, facts: object) -> None:
        if point == "commit.send" and not armed:
            armed.append(True)
            arm()

    rewritten = 0
    try:
        with listening(at_commit):
            (row,) = counterpart.call("CALL compact_table('db.t')")
        rewritten = row["rewritten_data_files_count"]
    except (IcebergCompactError, CommitStateUnknownException) as error:
        assert "commit" in str(error).lower(), error
    assert armed
    assert counterpart.writer.ids() == before
    (score,) = counterpart.call("CALL score_partitions('db.t')")
    if rewritten:
        assert score["data_files"] == 1
    # Whatever the outcome was, the next run completes the work and finds every file.
    counterpart.call("CALL compact_table('db.t')")
    (score,) = counterpart.call("CALL score_partitions('db.t')")
    assert score["data_files"] == 1
    assert counterpart.writer.ids() == before


def server_down(counterpart: Counterpart, server: Outages, *, message: str = "") -> None:
    """Down before and during a run: a clear error in time. Afterwards everything works, and no row is missing."""
    before = counterpart.fragment(5)
    quick = counterpart.quick()
    server.stop()
    _fails_in_time(quick, "CALL compact_table('db.t')", message)
    server.start()
    (score,) = quick.call("CALL score_partitions('db.t')")
    assert score["data_files"] == 5
    for point in ("inventory.read", "commit.send"):
        with listening(_once(point, server.stop)):
            _fails_in_time(quick, "CALL compact_table('db.t')", message, may_succeed=point == "commit.send")
        server.start()
        assert counterpart.writer.ids() == before
    quick.call("CALL compact_table('db.t')")
    (score,) = quick.call("CALL score_partitions('db.t')")
    assert score["data_files"] == 1
    assert counterpart.writer.ids() == before


def server_silent(counterpart: Counterpart, server: Outages, *, message: str = "") -> None:
    """Connections are taken and nothing is answered: a clear error in time."""
    before = counterpart.fragment(5)
    quick = counterpart.quick()
    server.silent = True
    _fails_in_time(quick, "CALL compact_table('db.t')", message)
    server.silent = False
    (row,) = quick.call("CALL compact_table('db.t')")
    assert row["rewritten_data_files_count"] == 5
    assert counterpart.writer.ids() == before


def server_restarted(counterpart: Counterpart, stop: Callable[[], None], start: Callable[[], None]) -> None:
    """The server restarts between two calls: the second one does not see it."""
    before = counterpart.fragment(5)
    counterpart.call("CALL score_partitions('db.t')")
    stop()
    start()
    (row,) = counterpart.call("CALL compact_table('db.t')")
    assert row["rewritten_data_files_count"] == 5
    assert counterpart.writer.ids() == before


def wrong_credentials(counterpart: Counterpart, settings: Mapping[str, str], secret: str, message: str = "") -> None:
    """Wrong credentials are a clear error without the credentials."""
    counterpart.fragment(1)
    with pytest.raises(IcebergCompactError) as caught:
        counterpart.with_settings(settings).quick().call("CALL compact_table('db.t')")
    assert secret not in str(caught.value)
    assert message.lower() in str(caught.value).lower()


def _fails_in_time(counterpart: Counterpart, sql: str, message: str, *, may_succeed: bool = False) -> None:
    began = time.monotonic()
    try:
        counterpart.call(sql)
        assert may_succeed, f"{sql} succeeded although the server was down"
    except IcebergCompactError as error:
        assert message.lower() in str(error).lower(), error
    # The promise of the documents, far above the limits that are set here.
    assert time.monotonic() - began < MOST_SECONDS


def _once(point: str, action: Callable[[], None]) -> Callable[[str, object], None]:
    reached: list[bool] = []

    def observe(name: str, facts: object) -> None:
        if name == point and not reached:
            reached.append(True)
            action()

    return observe


def _in_ten_days() -> int:
    return int(time.time() * 1000) + 10 * DAY_MS

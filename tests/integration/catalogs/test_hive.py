"""A Hive metastore, with locks and without: Iceberg's Java is the other writer."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.hive import HiveCatalog
from pyspark.sql import SparkSession

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from tests.support import counterpart_cases as cases
from tests.support.counterpart_cases import Counterpart, JavaWriter
from tests.support.hive import HiveServer
from tests.support.tcp_proxy import TcpProxy

COMMIT = b"alter_table_with_environment_context"


@pytest.fixture
def proxy(hive_server: HiveServer) -> Iterator[TcpProxy]:
    with TcpProxy(hive_server.port) as running:
        yield running


@pytest.fixture
def hive(
    request: pytest.FixtureRequest, tmp_path: Path, java_spark: SparkSession, hive_server: HiveServer, proxy: TcpProxy
) -> Iterator[Counterpart]:
    """Our session reaches the metastore through the proxy, Java directly; the parameter is whether locks are taken."""
    name = f"hive_{secrets.token_hex(4)}"
    prefix = f"spark.sql.catalog.{name}"
    settings = {".type": "hive", ".warehouse": f"file://{tmp_path}/warehouse", ".cache-enabled": "false"}
    java = {prefix: "org.apache.iceberg.spark.SparkCatalog"}
    java |= {f"{prefix}{key}": value for key, value in {**settings, ".uri": hive_server.uri}.items()}
    for key, value in java.items():
        java_spark.conf.set(key, value)
    ours = {**java, f"{prefix}.uri": f"thrift://127.0.0.1:{proxy.port}"}
    locks = str(getattr(request, "param", "true"))
    yield Counterpart(name, ours, JavaWriter(java_spark, name, {"engine.hive.lock-enabled": locks}))
    java_spark.sql(f"DROP TABLE IF EXISTS {name}.db.t")
    close_catalogs()


def test_every_procedure(hive: Counterpart) -> None:
    cases.every_procedure(hive)


@pytest.mark.parametrize("hive", ["true", "false"], indirect=True)
def test_a_race_with_java(hive: Counterpart) -> None:
    cases.race(hive, 8)


@pytest.mark.parametrize("hive", ["false"], indirect=True)
def test_an_append_between_our_last_look_and_our_commit_is_kept(
    hive: Counterpart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without locks only the comparison of the metastore can refuse our commit: pyiceberg's own loses this append."""
    before = hive.fragment(5)
    write_metadata: Any = HiveCatalog._write_metadata
    appended: list[int] = []

    def append_first(*arguments: Any, **options: Any) -> None:
        if not appended:
            appended.append(7000)
            hive.writer.append(7000)
        write_metadata(*arguments, **options)

    # The metadata file is written after the table was read, and before the table is altered.
    monkeypatch.setattr(HiveCatalog, "_write_metadata", staticmethod(append_first))
    (row,) = hive.call("CALL compact_table('db.t')")
    assert appended and row["rewritten_data_files_count"] == 5
    assert hive.writer.ids() == [*before, 7000]


@pytest.mark.parametrize("hive", ["true", "false"], indirect=True)
def test_a_lost_answer(hive: Counterpart, proxy: TcpProxy) -> None:
    cases.lost_answer_of_a_commit(hive.quick(), proxy, COMMIT)


def test_a_metastore_that_is_down(hive: Counterpart, proxy: TcpProxy) -> None:
    cases.server_down(hive, proxy)


def test_a_metastore_that_is_silent(hive: Counterpart, proxy: TcpProxy) -> None:
    cases.server_silent(hive, proxy, message="read timeout")

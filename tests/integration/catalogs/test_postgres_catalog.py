"""A JDBC catalog in PostgreSQL, with the first and the second schema; pyiceberg is the other writer."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from tests.support import counterpart_cases as cases
from tests.support.counterpart_cases import Counterpart, PyicebergWriter
from tests.support.postgres import PASSWORD, USER, PostgresServer
from tests.support.tcp_proxy import TcpProxy


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[TcpProxy]:
    with TcpProxy(postgres.port) as running:
        yield running


@pytest.fixture(params=["V0", "V1"])
def sql(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer, proxy: TcpProxy
) -> Iterator[Counterpart]:
    """Our session reaches the database through the proxy, the other writer directly."""
    database = f"lake_{secrets.token_hex(4)}"
    with postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {database}")
    uri = f"postgresql+psycopg2://{USER}:{PASSWORD}@127.0.0.1:{postgres.port}/{database}"
    catalog = SqlCatalog("pg", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    if request.param == "V0":
        from sqlalchemy import text

        with catalog.engine.begin() as changes:
            changes.execute(text("ALTER TABLE iceberg_tables DROP COLUMN iceberg_type"))
        catalog._init_catalog()
    catalog.create_namespace("db")
    settings = {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://127.0.0.1:{proxy.port}/{database}",
        "jdbc.user": USER,
        "jdbc.password": PASSWORD,
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    conf = {f"spark.sql.catalog.pg.{key}": value for key, value in settings.items()}
    yield Counterpart("pg", conf, PyicebergWriter(catalog))
    catalog.close()
    close_catalogs()


def test_every_procedure(sql: Counterpart, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        cases.every_procedure(sql)
    assert "schema_version" not in caplog.text


def test_a_database_that_is_down(sql: Counterpart, proxy: TcpProxy) -> None:
    cases.server_down(sql, proxy)


def test_a_database_that_restarts(sql: Counterpart, proxy: TcpProxy) -> None:
    cases.server_restarted(sql, proxy.stop, proxy.start)


def test_a_lost_answer(sql: Counterpart, proxy: TcpProxy) -> None:
    cases.lost_answer_of_a_commit(sql, proxy, b"COMMIT")


def test_a_wrong_password(sql: Counterpart) -> None:
    cases.wrong_credentials(sql, {"jdbc.password": "wrong-4712"}, "wrong-4712", "password authentication failed")

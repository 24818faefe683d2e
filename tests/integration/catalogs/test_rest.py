"""Tables of Iceberg's own REST server, opened by name as Spark's settings describe it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from iceberg_compact_sql.catalogs.open_table import close_catalogs, open_table
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import NotFoundError, UnsupportedError
from iceberg_compact_sql.service.configuration.config import service_config
from iceberg_compact_sql.service.process import Service
from tests.support.counting_proxy import CountingProxy
from tests.support.rest import RestServer

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture(autouse=True)
def no_configuration_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield
    close_catalogs()


def test_a_table_is_opened_committed_to_and_reloaded(rest_server: RestServer) -> None:
    namespace = rest_server.new_namespace()
    table = rest_server.open().create_table(f"{namespace}.t", ROWS.schema)
    opened = open_table(SessionView(conf=rest_server.spark_conf("remote")), f"remote.{namespace}.t")
    assert opened.catalog_name == "remote"
    opened.table.append(ROWS)
    table.append(ROWS)
    assert opened.reload().table.scan().to_arrow().num_rows == 4


def test_a_trigger_of_the_service_costs_one_request_for_each_look(rest_server: RestServer, tmp_path: Path) -> None:
    namespace = rest_server.new_namespace()
    table = rest_server.open().create_table(f"{namespace}.t", ROWS.schema)
    table.append(ROWS)
    with CountingProxy(rest_server.uri) as proxy:
        conf = {**rest_server.spark_conf("remote"), "spark.sql.catalog.remote.uri": proxy.endpoint}
        document = {
            "spark": {"conf": conf},
            "state": {"folder": str(tmp_path / "state")},
            "scheduler": {"enabled": False},
            "tables": [{"name": f"remote.{namespace}.t", "when": {"small_files": 2, "every": "5m"}}],
        }
        service = Service(service_config(document), with_spark=False)
        try:
            service.clock.open()
            now_ms = service.queue.now_ms()
            service.clock.tick(now_ms)
            for look in range(1, 4):
                proxy.reset()
                service.clock.tick(now_ms + look * 300_000)
                # The table has not changed: it is loaded, and neither listed nor scored.
                assert proxy.counts() == {"GET other": 1}
            table.append(ROWS)
            service.clock.tick(now_ms + 4 * 300_000)
            [job], _ = service.store.jobs()
            assert job.note == "small_files 2 >= 2"
        finally:
            service.close()


def test_what_is_missing_is_explained(rest_server: RestServer) -> None:
    namespace = rest_server.new_namespace()
    rest_server.open().create_table(f"{namespace}.events", ROWS.schema)
    view = SessionView(conf=rest_server.spark_conf("remote"))
    with pytest.raises(NotFoundError, match=r"Did you mean '.*\.events'"):
        open_table(view, f"{namespace}.evnts")
    with pytest.raises(NotFoundError, match="no namespace 'nowhere_at_all'"):
        open_table(view, "nowhere_at_all.t")


def test_java_and_we_share_the_server(rest_server: RestServer, java_spark: SparkSession) -> None:
    name, namespace = f"remote_{secrets.token_hex(4)}", rest_server.new_namespace()
    conf = rest_server.spark_conf(name)
    for key, value in conf.items():
        java_spark.conf.set(key, value)
    java_spark.sql(f"CREATE TABLE {name}.{namespace}.t (id BIGINT) USING iceberg")
    java_spark.sql(f"CREATE VIEW {name}.{namespace}.v AS SELECT id FROM {name}.{namespace}.t")
    view = SessionView(conf=conf, current_catalog=name, current_namespace=(namespace,))
    opened = open_table(view, "t")
    opened.table.append(ROWS)
    assert java_spark.sql(f"SELECT id FROM {opened.spark_name} ORDER BY id").collect() == [(1,), (2,)]
    with pytest.raises(UnsupportedError, match="is a view, not a table"):
        open_table(view, "v")

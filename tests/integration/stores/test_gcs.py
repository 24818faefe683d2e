"""Google Cloud Storage, on an emulator; pyiceberg is the other writer, because Java has no settings for an emulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iceberg_compact_sql.catalogs.open_table import close_catalogs
from iceberg_compact_sql.pyiceberg_internals.session_trust import load_trusted_catalog
from tests.support import counterpart_cases as cases
from tests.support.counterpart_cases import Counterpart, PyicebergWriter
from tests.support.gcs import BUCKET, GcsServer


@pytest.fixture
def gcs(tmp_path: Path, gcs_server: GcsServer) -> Iterator[Counterpart]:
    database, warehouse = tmp_path / "catalog.db", f"gs://{BUCKET}/{tmp_path.name}"
    properties = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": warehouse, **gcs_server.properties}
    catalog = load_trusted_catalog("gcs", properties, frozenset())
    catalog.create_namespace("db")
    settings = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{database}",
        "warehouse": warehouse,
        **gcs_server.properties,
    }
    conf = {f"spark.sql.catalog.gcs.{key}": value for key, value in settings.items()}
    yield Counterpart("gcs", conf, PyicebergWriter(catalog))
    catalog.close()
    close_catalogs()


def test_every_procedure(gcs: Counterpart) -> None:
    cases.every_procedure(gcs)


def test_a_race_with_appends(gcs: Counterpart) -> None:
    cases.race(gcs, 5)


def test_a_store_that_is_down(gcs: Counterpart, gcs_server: GcsServer) -> None:
    cases.server_down(gcs, gcs_server)


def test_a_store_that_is_silent(gcs: Counterpart, gcs_server: GcsServer) -> None:
    cases.server_silent(gcs, gcs_server, message="did not answer")


def test_a_store_that_restarts(gcs: Counterpart, gcs_server: GcsServer) -> None:
    cases.server_restarted(gcs, gcs_server.stop, gcs_server.start)

"""Listing a catalog: a connection that breaks once is no error, one that stays broken is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.typedef import Identifier
from pyiceberg.types import LongType, NestedField
from thrift.transport.TTransport import TTransportException

from iceberg_compact_sql.catalogs.entries import list_entries
from iceberg_compact_sql.catalogs.hadoop import HadoopCatalog
from iceberg_compact_sql.errors import UnsupportedError


class Breaking(HadoopCatalog):
    """A catalog whose listings fail a number of times."""

    error: Exception = TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes")
    failures = 0

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        if self.failures:
            self.failures -= 1
            raise self.error
        return super().list_tables(namespace)


@pytest.fixture
def catalog(tmp_path: Path) -> Breaking:
    made = Breaking("h", warehouse=str(tmp_path))
    made.create_namespace("db")
    made.create_table("db.t", Schema(NestedField(1, "id", LongType())))
    return made


@pytest.mark.parametrize("error", [Breaking.error, ConnectionResetError("reset by peer")])
def test_a_connection_that_breaks_once_is_opened_again(catalog: Breaking, error: Any) -> None:
    catalog.failures, catalog.error = 1, error
    assert [entry.shown for entry in list_entries(catalog)] == ["db.t"]


@pytest.mark.parametrize(("failures", "error"), [(2, Breaking.error), (1, PermissionError("may not list"))])
def test_a_listing_that_fails_stops_the_call(catalog: Breaking, failures: int, error: Any) -> None:
    catalog.failures, catalog.error = failures, error
    with pytest.raises(UnsupportedError, match=r"namespace db of catalog 'h' cannot be listed.*nothing was deleted"):
        list_entries(catalog)
    assert catalog.failures == 0

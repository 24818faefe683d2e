"""A relative location of a table: nothing is written or deleted, since every process has another working folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from iceberg_compact_sql.errors import UnsupportedError
from tests.support.calls import call
from tests.support.plain import PlainLake
from tests.support.reclaim import SCHEMA, append_ids

CALLS = (
    "CALL compact_table('db.t', rewrite_all => true)",
    "CALL expire_snapshots('db.t', TIMESTAMP '2099-01-01', 1)",
    "CALL expire_snapshots('db.t', TIMESTAMP '2099-01-01', 1, quarantine => '3d')",
    "CALL remove_orphans('db.t', force => true)",
    "CALL rewrite_manifests('db.t')",
    "CALL rewrite_position_deletes('db.t')",
)


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("statement", CALLS)
def test_a_table_with_a_relative_location_is_refused_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path / 'catalog.db'}"
    catalog = SqlCatalog("plain", uri=uri, warehouse="lake")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", SCHEMA)
    for number in range(3):
        append_ids(table, number)
    conf = {
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "jdbc",
        "spark.sql.catalog.plain.uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        "spark.sql.catalog.plain.jdbc.schema-version": "V1",
        "spark.sql.catalog.plain.warehouse": "lake",
    }
    lake = PlainLake("plain", catalog, tmp_path, conf)
    before, location = files_in(tmp_path), catalog.load_table("db.t").metadata_location
    with pytest.raises(UnsupportedError, match="not a full location"):
        call(lake, statement)
    assert files_in(tmp_path) == before
    assert catalog.load_table("db.t").metadata_location == location
    catalog.close()

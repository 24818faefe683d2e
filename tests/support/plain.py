"""Tables without a JVM: a pyiceberg SqlCatalog on SQLite in the test's own folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import text


@dataclass(frozen=True)
class PlainLake:
    """One pyiceberg catalog with namespace `db`; `conf` describes it as Spark's settings would."""

    name: str
    catalog: SqlCatalog
    folder: Path
    conf: dict[str, str] = field(repr=False)

    def load(self, table: str) -> Table:
        return self.catalog.load_table(table)

    def create(self, table: str, *batches: pa.Table, properties: dict[str, str] | None = None) -> Table:
        """A table with the schema of the first batch; each batch becomes one append (one file)."""
        created = self.catalog.create_table(table, batches[0].schema, properties=properties or {})
        for batch in batches:
            created.append(batch)
        return created

    def add_view(self, name: str) -> None:
        """A view in namespace `db`, as a row of the catalog's database: pyiceberg cannot create one."""
        row = {"catalog": self.name, "name": name, "metadata": "file:///nowhere"}
        with self.catalog.engine.begin() as connection:
            connection.execute(
                text(
                    "INSERT INTO iceberg_tables"
                    " (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)"
                    " VALUES (:catalog, 'db', :name, :metadata, 'VIEW')"
                ),
                row,
            )


@contextlib.contextmanager
def open_plain(
    folder: Path, io_settings: Mapping[str, str] | None = None, *, warehouse: str | None = None
) -> Iterator[PlainLake]:
    """A pyiceberg catalog `plain` with namespace `db` in a folder of its own, no JVM; `io_settings` reach a store."""
    io_settings = io_settings or {}
    folder.mkdir(exist_ok=True)
    warehouse = warehouse or (folder / "warehouse").as_uri()
    conf = {
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "jdbc",
        "spark.sql.catalog.plain.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "spark.sql.catalog.plain.jdbc.schema-version": "V1",
        "spark.sql.catalog.plain.warehouse": warehouse,
        **{f"spark.sql.catalog.plain.{name}": value for name, value in io_settings.items()},
    }
    catalog = SqlCatalog("plain", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=warehouse, **io_settings)
    catalog.create_namespace("db")
    yield PlainLake("plain", catalog, folder, conf)
    catalog.close()


@pytest.fixture
def plain_lake(tmp_path: Path) -> Iterator[PlainLake]:
    """A fresh pyiceberg catalog for each test."""
    with open_plain(tmp_path / "plain") as lake:
        yield lake

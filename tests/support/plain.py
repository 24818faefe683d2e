"""Tables without a JVM: a pyiceberg SqlCatalog on SQLite in the test's own folder."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table


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


@contextlib.contextmanager
def open_plain(folder: Path) -> Iterator[PlainLake]:
    """A pyiceberg catalog `plain` with namespace `db` in a folder of its own, no JVM."""
    folder.mkdir(exist_ok=True)
    warehouse = (folder / "warehouse").as_uri()
    conf = {
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "jdbc",
        "spark.sql.catalog.plain.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "spark.sql.catalog.plain.jdbc.schema-version": "V1",
        "spark.sql.catalog.plain.warehouse": warehouse,
    }
    catalog = SqlCatalog("plain", uri=f"sqlite:///{folder / 'catalog.db'}", warehouse=warehouse)
    catalog.create_namespace("db")
    yield PlainLake("plain", catalog, folder, conf)
    catalog.close()


@pytest.fixture
def plain_lake(tmp_path: Path) -> Iterator[PlainLake]:
    """A fresh pyiceberg catalog for each test."""
    with open_plain(tmp_path / "plain") as lake:
        yield lake

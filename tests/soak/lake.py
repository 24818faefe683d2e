"""The table of the soak, and what a reader that is not ours finds in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from tests.support import oracle
from tests.support.handmade import make_catalog, make_table
from tests.support.plain import PlainLake

NAME = "db.t"
KEYS_OF_A_WRITER = 1_000_000
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "part", IntegerType()), NestedField(3, "value", StringType())
)
SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="part"))
_READ_TRIES = 60


def open_soak(folder: Path, *, create: bool = False) -> PlainLake:
    """The catalog in `folder`; with `create` its table is made."""
    catalog = make_catalog(folder, "plain")
    if create:
        make_table(catalog, NAME, SCHEMA, SPEC, properties={"commit.retry.num-retries": "10"})
    conf = {
        "spark.sql.catalog.plain": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.plain.type": "jdbc",
        "spark.sql.catalog.plain.uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "spark.sql.catalog.plain.jdbc.schema-version": "V1",
        "spark.sql.catalog.plain.warehouse": f"file://{folder / 'warehouse'}",
    }
    return PlainLake("plain", catalog, folder, conf)


def rows_of(table: Table, writer: int) -> list[tuple[int, str]]:
    """The live rows of one writer, in order, with doubles."""
    found = [(row["id"], row["value"]) for row in read(table)]
    return sorted(row for row in found if row[0] // KEYS_OF_A_WRITER == writer)


def read(table: Table) -> list[dict[str, Any]]:
    """All live rows; tried again when the snapshot was expired under the reader."""
    for turn in range(_READ_TRIES):
        try:
            return oracle.rows(table)
        except FileNotFoundError:
            if turn == _READ_TRIES - 1:
                raise
            time.sleep(0.05)
    raise AssertionError("unreachable")

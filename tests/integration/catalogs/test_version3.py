"""Tables of format version 3 in REST and hadoop catalogs: the same rows and row ids to Java after every procedure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import iceberg_compact_sql
from iceberg_compact_sql.catalogs.open_table import close_catalogs
from tests.integration.catalogs.test_java_catalogs import add_catalog
from tests.support.rest import RestServer


@pytest.fixture(params=["hadoop", "rest"])
def table(
    request: pytest.FixtureRequest, java_spark: SparkSession, rest_server: RestServer, tmp_path: Path
) -> Iterator[str]:
    if request.param == "rest":
        name, _ = add_catalog(java_spark, type="rest", uri=rest_server.uri, cache_enabled="false")
        namespace = rest_server.new_namespace()
    else:
        name, _ = add_catalog(java_spark, type="hadoop", warehouse=str(tmp_path / "wh"), cache_enabled="false")
        namespace = "db"
    full = f"{name}.{namespace}.t"
    java_spark.sql(
        f"CREATE TABLE {full} (id BIGINT, k STRING) USING iceberg TBLPROPERTIES ('format-version'='3', "
        "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
    )
    iceberg_compact_sql.register(java_spark)
    yield full
    iceberg_compact_sql.unregister(java_spark)
    close_catalogs()


def lineage(spark: SparkSession, table: str) -> list[tuple[Any, ...]]:
    found = spark.sql(f"SELECT id, k, _row_id, _last_updated_sequence_number FROM {table} ORDER BY id").collect()
    return [tuple(row) for row in found]


def test_every_procedure_keeps_rows_and_row_ids(java_spark: SparkSession, table: str) -> None:
    for number in range(4):
        java_spark.sql(f"INSERT INTO {table} SELECT id, 'k' FROM range({number * 10}, {number * 10 + 10})")
    java_spark.sql(f"DELETE FROM {table} WHERE id IN (3, 14)")
    java_spark.sql(f"UPDATE {table} SET k = 'changed' WHERE id % 10 = 1")
    before = lineage(java_spark, table)
    for procedure in (
        f"rewrite_position_deletes('{table}', rewrite_all => true)",
        f"rewrite_manifests('{table}')",
        f"compact_table('{table}', rewrite_all => true)",
        f"expire_snapshots('{table}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
    ):
        java_spark.sql(f"CALL {procedure}")
        assert lineage(java_spark, table) == before, procedure
    assert java_spark.sql(f"SELECT * FROM {table}.delete_files").count() == 0
    java_spark.sql(f"INSERT INTO {table} VALUES (100, 'new')")
    assert lineage(java_spark, table)[:-1] == before
    assert len({row[2] for row in lineage(java_spark, table)}) == len(before) + 1

"""`where` selects the files that Iceberg selects: the same text is given to Iceberg's own converter and to ours."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException

import iceberg_compact_sql
from iceberg_compact_sql.plan.filters.parse import parse_where
from iceberg_compact_sql.storage.same_file import same_file_key
from iceberg_compact_sql.table.inventory import read_inventory
from tests.support.java import Lake

FILTERS = [
    "1=1",
    "0=1",
    "true",
    "not true",
    "c1 > 0 AND 1=1",
    "c1 > 0 OR 1=1",
    "c1 > 0 AND 0=1",
    "c1 > 2 OR 0=1",
    "1 = null",
    "c1 in (1, null)",
    "c1 not in (1, null)",
    "1 in (1, 2)",
    "(c1 > 2) = true",
    "c1 not in (1, 2)",
    "c1 not in (1, 2, 3)",
    "c1 <> 1",
    "s <> 'abc1'",
    "s not like 'abc1%'",
    "{lake}.system.bucket(2, c1) = 0",
    "{lake}.system.bucket(2, c1) <> 0",
    "{lake}.system.bucket(2, c1) in (1, 7)",
    "{lake}.SYSTEM.BUCKET(2, c1) >= 5",
    "{lake}.system.bucket(4, c1) = 0",
    "{lake}.system.bucket(2, c1) = 0.5",
    "{lake}.system.bucket(2, c1) = '1'",
    "{lake}.system.truncate(2, c1) = 2",
    "{lake}.system.truncate(2, c1) = 3",
    "{lake}.system.truncate(4, s) > 'abc1'",
    "{lake}.system.truncate(3, s) > 'abc1'",
    "{lake}.system.truncate(100, p) = 1.00",
    "{lake}.system.years(ts) = 56",
    "{lake}.system.years(ts) = '2026'",
    "{lake}.system.months(d) > 672",
    "{lake}.system.months(n) in (672, 673)",
    "{lake}.system.days(ts) = date '2026-01-01'",
    "{lake}.system.days(ts) >= date('2026-02-01')",
    "{lake}.system.days(ts) = timestamp '2026-01-01 10:00:00'",
    "{lake}.system.hours(n) = 490906",
]


@pytest.fixture
def mixed(lake: Lake) -> Lake:
    """Three files with one row each, in two buckets."""
    lake.sql(
        "CREATE TABLE {lake}.db.t (c1 INT, s STRING, ts TIMESTAMP, n TIMESTAMP_NTZ, d DATE, p DECIMAL(9, 2)) "
        "USING iceberg PARTITIONED BY (bucket(2, c1))"
    )
    for i in (1, 2, 3):
        day = f"2026-0{i}-01"
        lake.sql(
            f"INSERT INTO {{lake}}.db.t VALUES ({i}, 'abc{i}', TIMESTAMP '{day} 10:00:00', "
            f"TIMESTAMP_NTZ '{day} 10:00:00', DATE '{day}', {i}.25)"
        )
    return lake


def java_files(lake: Lake, where: str) -> set[str]:
    """The files that Iceberg's rewrite_data_files would plan for a filter."""
    spark: Any = lake.spark
    converter = spark._jvm.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
    resolved = converter.collectResolvedSparkExpression(spark._jsparkSession, lake.full("db.t"), where)
    condition = converter.convertToIcebergExpression(resolved)
    tasks = lake.java_table("db.t").newScan().filter(condition).planFiles().iterator()
    found = set()
    while tasks.hasNext():
        found.add(same_file_key(tasks.next().file().location()))
    return found


def test_filters_select_the_files_that_iceberg_selects(mixed: Lake) -> None:
    table = mixed.load("db.t")
    for text in (text.replace("{lake}", mixed.name) for text in FILTERS):
        inventory = read_inventory(table, "main", parse_where(text, table.schema(), time_zone="UTC"))
        assert {same_file_key(file.path) for file in inventory.files} == java_files(mixed, text), text


def test_names_follow_the_case_rule_of_the_session(mixed: Lake) -> None:
    iceberg_compact_sql.register(mixed.spark)
    call = f"CALL compact_table('{mixed.full('db.t')}', where => 'C1 > 0', dry_run => true)"
    try:
        assert mixed.spark.sql(call).count() > 0
        mixed.spark.conf.set("spark.sql.caseSensitive", "true")
        with pytest.raises(IllegalArgumentException, match="Cannot parse predicates in where option: C1 > 0"):
            mixed.sql("CALL {lake}.system.rewrite_data_files(table => 'db.t', where => 'C1 > 0')")
        with pytest.raises(AnalysisException, match="there is no column 'C1'"):
            mixed.spark.sql(call)
        assert mixed.spark.sql(call.replace("C1", "c1")).count() > 0
    finally:
        mixed.spark.conf.unset("spark.sql.caseSensitive")
        iceberg_compact_sql.unregister(mixed.spark)

"""advise on tables that Spark wrote: its actions are pasted into spark.sql, and the finding is gone afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import iceberg_compact_sql
from tests.support.java import Lake


@pytest.fixture(autouse=True)
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


def advice(lake: Lake, table: str = "db.t") -> dict[str, Any]:
    rows = lake.spark.sql(f"CALL advise('{lake.full(table)}')").collect()
    assert rows == iceberg_compact_sql.advise(lake.spark, lake.full(table)).collect()
    return {row["topic"]: row for row in rows}


def test_actions_can_be_pasted_and_end_their_finding(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, at TIMESTAMP, note STRING) USING iceberg PARTITIONED BY (days(at))"
        " TBLPROPERTIES ('write.distribution-mode'='none', 'write.delete.mode'='merge-on-read',"
        " 'write.target-file-size-bytes'='4194304', 'commit.manifest-merge.enabled'='false',"
        " 'write.metadata.metrics.column.note'='none')"
    )
    for second in range(18):
        lake.sql(f"INSERT INTO {name} VALUES ({second}, timestamp_seconds({1700000000 + second}), 'x')")
    moment = "timestamp_seconds(1700000000 + id % 60 * 86400)"
    # Each of four tasks writes into each of 60 partitions.
    for _ in range(2):
        lake.sql(f"INSERT INTO {name} SELECT id, {moment}, CAST(id AS STRING) FROM range(0, 1200, 1, 4)")
    for half in range(2):
        lake.sql(f"DELETE FROM {name} WHERE id % 5 = {half}")
    before = sorted(lake.rows("db.t"))
    found = advice(lake)
    assert {"files", "partitions", "deletes", "manifests", "bounds", "distribution"} <= set(found)
    assert found["partitions"]["action"] == f"ALTER TABLE `{lake.name}`.`db`.`t` DROP PARTITION FIELD `at_day`" or (
        "REPLACE PARTITION FIELD `at_day` WITH years(`at`)" in found["partitions"]["action"]
    )
    # The spec last: afterwards the table is another one.
    for topic in sorted(found, key=lambda topic: topic == "partitions"):
        lake.spark.sql(found[topic]["action"]).collect()
    after = advice(lake)
    assert not {"partitions", "deletes", "manifests", "distribution"} & set(after)
    properties = lake.load("db.t").metadata.properties
    assert properties["write.distribution-mode"] == "hash"
    assert properties["write.metadata.metrics.column.note"] == "truncate(16)"
    assert sorted(lake.rows("db.t")) == before


def test_odd_names_are_quoted_in_actions(lake: Lake) -> None:
    name = f"{lake.name}.db.`it's ``odd``.t`"
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('write.metadata.metrics.default'='none')")
    for number in range(6):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    rows = iceberg_compact_sql.advise(lake.spark, name).collect()
    assert {row["topic"] for row in rows} == {"files", "bounds"}
    # The settings first: what is compacted afterwards has bounds.
    for row in sorted(rows, key=lambda row: row["action"]):
        lake.spark.sql(row["action"]).collect()
    assert [row["topic"] for row in iceberg_compact_sql.advise(lake.spark, name).collect()] == []

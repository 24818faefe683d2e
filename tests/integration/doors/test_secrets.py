"""Secrets in Spark: plans, errors and event logs of a session whose catalogs have credentials show none of them."""

from __future__ import annotations

import pytest

import iceberg_compact_sql
from tests.support.java import Lake

HUSH = "hunter2-do-not-show"


def test_plans_and_errors_of_table_functions_show_no_secret(lake: Lake) -> None:
    lake.sql("CREATE TABLE {lake}.db.t (id BIGINT) USING iceberg")
    for number in range(3):
        lake.sql(f"INSERT INTO {{lake}}.db.t VALUES ({number})")
    secret = f"spark.sql.catalog.{lake.name}.s3.secret-access-key"
    lake.spark.conf.set(secret, HUSH)
    iceberg_compact_sql.register(lake.spark)
    try:
        text = f"SELECT * FROM compact_table('{lake.full('db.t')}')"
        for mode in ("EXTENDED", "FORMATTED", "CODEGEN", "COST"):
            [row] = lake.sql(f"EXPLAIN {mode} {text}").collect()
            assert "compact_table" in row[0].lower() or mode == "CODEGEN"
            assert HUSH not in row[0]
        assert HUSH not in repr(lake.sql(text).collect())
        for wrong in ("db.missing", "nowhere.db.t"):
            with pytest.raises(Exception, match=r"missing|nowhere") as caught:
                lake.sql(f"SELECT * FROM compact_table('{lake.name}.{wrong}')").collect()
            assert HUSH not in f"{caught.value!r} {caught.value}"
    finally:
        iceberg_compact_sql.unregister(lake.spark)
        lake.spark.conf.unset(secret)

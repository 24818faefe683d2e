"""Files of Iceberg's Java writer, spliced by us, and read by Iceberg's and Spark's readers, vectorised and by row."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import iceberg_compact_sql
from tests.integration.java.test_row_groups import COLUMNS, FILTERS, VALUES
from tests.support.java import Lake

FILES, ROWS = 5, 12_000
# Those that the statistics and page indexes of spliced columns answer.
CHOSEN = ("true", "l = 1117 * 1000000007L", "d18 > 9000000", "s IS NULL")


@pytest.fixture
def table(lake: Lake) -> Iterator[Lake]:
    iceberg_compact_sql.register(lake.spark)
    lake.sql(f"CREATE TABLE {{lake}}.db.t ({COLUMNS}) USING iceberg")
    for number in range(FILES):
        rows = f"range({number * ROWS}, {(number + 1) * ROWS})"
        lake.sql(f"INSERT INTO {{lake}}.db.t SELECT /*+ COALESCE(1) */ {VALUES} FROM {rows}")
    yield lake
    iceberg_compact_sql.unregister(lake.spark)


def digests(lake: Lake, *, vectorised: bool) -> list[tuple[object, ...]]:
    """Count and digest of the rows of each filter, as Iceberg's and Spark's readers find them."""
    text = str(vectorised).lower()
    lake.sql(f"ALTER TABLE {{lake}}.db.t SET TBLPROPERTIES ('read.parquet.vectorization.enabled'='{text}')")
    lake.spark.conf.set("spark.sql.parquet.enableVectorizedReader", text)
    try:
        lake.spark.read.parquet(*lake.data_paths("db.t")).createOrReplaceTempView("by_spark")
        columns = ", ".join(column for column in lake.spark.table("by_spark").columns if column != "m")
        digest = f"count(*), sum(xxhash64({columns}) % 1000003), sum(m['k'])"
        return [
            tuple(lake.sql(f"SELECT {digest} FROM {name} WHERE {where}").collect()[0])
            for name in (lake.full("db.t"), "by_spark")
            for where in CHOSEN
        ]
    finally:
        lake.spark.conf.unset("spark.sql.parquet.enableVectorizedReader")


def test_java_reads_what_was_spliced(table: Lake) -> None:
    assert set(CHOSEN[1:]) <= set(FILTERS)
    before = digests(table, vectorised=True)
    [planned] = table.sql(f"CALL compact_table('{table.full('db.t')}', dry_run => true)").collect()
    assert planned.reason.endswith("; 5 row groups spliced")
    [done] = table.sql(f"CALL compact_table('{table.full('db.t')}')").collect()
    assert (done.added_data_files_count, done.copied_row_groups_count) == (1, 0)
    # All flat columns and the struct; the pages of lists and maps are too small.
    assert done.spliced_columns_count == 15
    assert digests(table, vectorised=True) == before
    assert digests(table, vectorised=False) == before


def test_a_delete_by_java_after_a_splice_keeps_rows_with_nan(lake: Lake) -> None:
    """Java deletes a whole file by its bounds if its manifest states no NaN: bounds need a known NaN count."""
    iceberg_compact_sql.register(lake.spark)
    try:
        lake.sql("CREATE TABLE {lake}.db.n (id BIGINT, d DOUBLE, e DOUBLE) USING iceberg")
        # `d` has NaN in one row of 100, `e` in none.
        values = "id, IF(id % 100 = 0, double('NaN'), id + 0.5), id / 7"
        lake.sql(f"INSERT INTO {{lake}}.db.n SELECT /*+ COALESCE(1) */ {values} FROM range(30000)")
        call = f"CALL compact_table('{lake.full('db.n')}', rewrite_all => true"
        # Java's own pages, then those that we encoded, whose statistics leave NaN out.
        [first] = lake.sql(f"{call})").collect()
        assert first.spliced_columns_count == 3
        bounds = "readable_metrics.e.lower_bound, readable_metrics.e.nan_value_count"
        assert [tuple(row) for row in lake.sql(f"SELECT {bounds} FROM {{lake}}.db.n.files").collect()] == [(0.0, 0)]
        lake.sql(f"{call}, copy => 'never')").collect()
        [last] = lake.sql(f"{call})").collect()
        assert last.spliced_columns_count + last.copied_row_groups_count > 0
        # The count of the input's manifest entry came along, and so did the bounds.
        bounds = "readable_metrics.d.lower_bound, readable_metrics.d.nan_value_count"
        assert [tuple(row) for row in lake.sql(f"SELECT {bounds} FROM {{lake}}.db.n.files").collect()] == [(1.5, 300)]
        lake.sql("DELETE FROM {lake}.db.n WHERE d < 1e9")
        [found] = lake.sql("SELECT count(*), count_if(isnan(d)) FROM {lake}.db.n").collect()
        assert tuple(found) == (300, 300)
    finally:
        iceberg_compact_sql.unregister(lake.spark)

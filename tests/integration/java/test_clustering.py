"""Clustering judged by Java: every type, row by row, rows in files in order, files that share one value at most."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from pyspark.sql import Row

import iceberg_compact_sql
from tests.support.java import Lake

COLUMNS = {
    "i": "CAST(id % 41 - 20 AS INT)",
    "b": "id * 7919 % 1000 - 500",
    "f": "CASE id % 9 WHEN 0 THEN float('NaN') WHEN 1 THEN float('-0.0') WHEN 2 THEN float('0.0') "
    "WHEN 3 THEN float('-Infinity') ELSE CAST(id % 17 - 8 AS FLOAT) END",
    "d": "CASE id % 13 WHEN 0 THEN double('NaN') WHEN 1 THEN double('-0.0') WHEN 2 THEN double('Infinity') "
    "ELSE id % 101 / 3 END",
    "m": "CAST(id % 37 - 18 AS DECIMAL(9, 2))",
    "n": "CAST(id * 104729 % 99991 - 50000 AS DECIMAL(38, 10)) * 1000000000",
    "s": "concat('a-prefix-of-16-chr', repeat('é', CAST(id % 5 AS INT)), char(CAST(id % 90 AS INT) + 33))",
    "y": "CAST(substr('\\u0000zAÿ漢字', CAST(id % 4 AS INT) + 1, 2) AS BINARY)",
    "t": "DATE '1969-12-01' + CAST(id % 60 AS INT)",
    "z": "TIMESTAMP '1969-12-31 23:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id * 37 % 200 AS INT))",
    "w": "TIMESTAMP_NTZ '1969-12-31 23:00:00' + make_interval(0, 0, 0, 0, 0, CAST(id * 41 % 200 AS INT))",
    "o": "id % 3 = 0",
}
KINDS = {
    "i": "INT",
    "b": "BIGINT",
    "f": "FLOAT",
    "d": "DOUBLE",
    "m": "DECIMAL(9, 2)",
    "n": "DECIMAL(38, 10)",
    "s": "STRING",
    "y": "BINARY",
    "t": "DATE",
    "z": "TIMESTAMP",
    "w": "TIMESTAMP_NTZ",
    "o": "BOOLEAN",
}
ROWS = 600


@pytest.fixture
def door(lake: Lake) -> Iterator[Lake]:
    iceberg_compact_sql.register(lake.spark)
    lake.sql(
        f"CREATE TABLE {{lake}}.db.t (id BIGINT, {', '.join(f'{name} {kind}' for name, kind in KINDS.items())}, "
        "st STRUCT<a: INT, l: ARRAY<STRING>>) USING iceberg TBLPROPERTIES ('format-version' = '2')"
    )
    for number in range(3):
        nulls = ", ".join(
            f"IF(id % 11 = {5 + position % 5}, NULL, {text})" for position, text in enumerate(COLUMNS.values())
        )
        lake.sql(
            f"INSERT INTO {{lake}}.db.t SELECT id, {nulls}, IF(id % 7 = 0, NULL, "
            "named_struct('a', CAST(id % 5 AS INT), 'l', array('x', NULL))) "
            f"FROM range({number * ROWS}, {(number + 1) * ROWS})"
        )
    yield lake
    iceberg_compact_sql.unregister(lake.spark)


def multiset(lake: Lake) -> list[str]:
    return sorted(map(repr, lake.rows("db.t")))


def in_files(lake: Lake, order: str) -> list[list[tuple[Row, int]]]:
    """Rows of each file by position, each with the number that Java's own sort gives its key."""
    found = lake.sql(
        f"SELECT *, dense_rank() OVER (ORDER BY {order}) AS rank, _file, _pos FROM {{lake}}.db.t ORDER BY _file, _pos"
    ).collect()
    return [list(rows) for _, rows in itertools.groupby([(row, row["rank"]) for row in found], lambda e: e[0]["_file"])]


ORDERS = [
    "i, b DESC",
    "f DESC NULLS FIRST, id",
    "d NULLS LAST, id DESC",
    "m DESC, n",
    "n NULLS LAST, s",
    "s DESC, y",
    "y, t DESC NULLS FIRST",
    "t, z DESC",
    "w DESC, o",
    "o NULLS LAST, z, st.a DESC",
]


IN_PROCESS: dict[str, str] = {"driver_bytes": "1g"}
ON_TASKS = {"driver_bytes": "0", "shuffle_bytes": "1g"}
ON_SHUFFLE = {"driver_bytes": "0", "shuffle_bytes": "0"}


@contextlib.contextmanager
def sizes(lake: Lake, settings: dict[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        lake.spark.conf.set(f"spark.iceberg_compact_sql.{name}", value)
    try:
        yield
    finally:
        for name in settings:
            lake.spark.conf.unset(f"spark.iceberg_compact_sql.{name}")


@pytest.mark.parametrize(
    ("settings", "orders"),
    [(IN_PROCESS, ORDERS), (ON_TASKS, ORDERS[1::4]), (ON_SHUFFLE, ORDERS[::3])],
    ids=["in process", "on Spark tasks", "on the shuffle"],
)
def test_every_type_is_sorted_as_java_sorts_it(door: Lake, settings: dict[str, str], orders: list[str]) -> None:
    before = multiset(door)
    with sizes(door, settings):
        for order in orders:
            sorted_by(door, order)
            assert multiset(door) == before, order


def sorted_by(door: Lake, order: str) -> None:
    """Sort the table; rows inside files are in Java's order, and files share one value at most."""
    inputs = door.files("db.t")
    size = sum(file["file_size_in_bytes"] for file in inputs)
    arguments = f"sort_order => '{order}', target => {size // 4}, rewrite_all => true"
    [result] = door.spark.sql(f"CALL compact_table('{door.full('db.t')}', {arguments})").collect()
    assert (result["rewritten_data_files_count"], result["rows_count"]) == (len(inputs), 3 * ROWS)
    files = in_files(door, order)
    assert len(files) == result["added_data_files_count"] > 1
    for file in files:
        ranks = [rank for _, rank in file]
        assert ranks == sorted(ranks), order
    ends = sorted((file[0][1], file[-1][1]) for file in files)
    assert all(left <= right for (_, left), (right, _) in itertools.pairwise(ends)), (order, ends)


@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("order", ["zorder(i, s)", "hilbert(d, z, n)", "days(z), bucket(4, b) DESC, truncate(2, s)"])
def test_deletes_partitions_specs_and_schema_changes(door: Lake, order: str, version: str) -> None:
    table = door.full("db.t")
    door.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read')"
    )
    door.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    door.sql(f"ALTER TABLE {table} ADD COLUMN extra STRING")
    door.sql(f"ALTER TABLE {table} ALTER COLUMN i TYPE BIGINT")
    door.sql(f"ALTER TABLE {table} RENAME COLUMN b TO big")
    door.sql(f"ALTER TABLE {table} ADD PARTITION FIELD o")
    door.sql(
        f"INSERT INTO {table} SELECT id + 5000, i, big, f, d, m, n, s, y, t, z, w, o, st, 'new' "
        f"FROM {table} WHERE id < 200"
    )
    if version == "2":
        door.equality_delete("db.t", ["id"], [(7,), (5009,)], partition="o=false")
    lineage = ", _row_id, _last_updated_sequence_number" if version == "3" else ""
    query = f"SELECT *{lineage} FROM {table}"
    before = sorted(map(repr, door.sql(query).collect()))
    wanted = order.replace("b)", "big)")
    with sizes(door, IN_PROCESS if order.startswith("zorder") else ON_SHUFFLE):
        call = f"CALL compact_table('{table}', sort_order => '{wanted}', rewrite_all => true)"
        [result] = door.spark.sql(call).collect()
    assert result["commits_count"] == 1
    assert sorted(map(repr, door.sql(query).collect())) == before
    assert all(file["content"] == 0 and file["spec_id"] == 1 for file in door.files("db.t"))
    [again] = door.spark.sql(f"CALL compact_table('{table}', sort_order => '{wanted}')").collect()
    assert again["commits_count"] == 0


def test_icebergs_own_call_and_a_branch(door: Lake) -> None:
    table = door.full("db.t")
    door.sql(f"ALTER TABLE {table} WRITE ORDERED BY i DESC NULLS LAST, s")
    door.sql(f"ALTER TABLE {table} CREATE BRANCH side")
    before, files = multiset(door), len(door.files("db.t"))
    [result] = door.spark.sql(
        f"CALL compact_table('{table}', strategy => 'sort', branch => 'side', min_input_files => 2)"
    ).collect()
    assert result["rewritten_data_files_count"] == files
    assert len(door.files("db.t")) == files
    assert sorted(map(repr, door.rows("db.t", branch="side"))) == before
    door.spark.conf.set("spark.iceberg_compact_sql.takeover", "true")
    try:
        arguments = "'db.t', 'sort', 'i DESC NULLS LAST, s', map('min-input-files', '2')"
        call = f"CALL {door.name}.system.rewrite_data_files({arguments})"
        [row] = door.spark.sql(call).collect()
    finally:
        door.spark.conf.unset("spark.iceberg_compact_sql.takeover")
    assert len(row) == 5
    assert row["rewritten_data_files_count"] == files
    assert {entry["sort_order_id"] for entry in door.sql(f"SELECT sort_order_id FROM {table}.files").collect()} == {1}
    assert multiset(door) == before

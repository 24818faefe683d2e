"""compact_table through `spark.sql`, judged by Iceberg's Java reader: no row is ever changed, lost or doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import iceberg_compact_sql
from iceberg_compact_sql import events
from iceberg_compact_sql.errors import IcebergCompactError
from tests.support.java import Lake

MOR = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read', 'write.merge.mode'='merge-on-read'"


@pytest.fixture(autouse=True)
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


def compact(lake: Lake, table: str = "db.t", extra: str = "") -> dict[str, Any]:
    [row] = lake.spark.sql(f"CALL compact_table('{lake.full(table)}'{', ' + extra if extra else ''})").collect()
    return row.asDict()


def insert_range(lake: Lake, number: int, rows: int, columns: str, table: str = "db.t") -> None:
    """Append rows number * rows .. as one file; `columns` is a select list over `id`."""
    span = f"range({number * rows}, {number * rows + rows})"
    lake.sql(f"INSERT INTO {lake.full(table)} SELECT /*+ COALESCE(1) */ {columns} FROM {span}")


def contents(lake: Lake, table: str = "db.t", branch: str | None = None) -> Counter[str]:
    """Rows as Java reads them, each rendered by Java itself: NaN, nulls inside structs and bytes compare as text."""
    version = f" VERSION AS OF '{branch}'" if branch else ""
    frame = lake.sql(f"SELECT * FROM {lake.full(table)}{version}")
    typed = ", ".join(f"`{name}`" for name in frame.columns)
    rendered = lake.sql(
        f"SELECT to_json(struct({typed}), map('ignoreNullFields', 'false')) FROM {lake.full(table)}{version}"
    )
    return Counter(row[0] for row in rendered.collect())


def unchanged_and_settled(lake: Lake, before: Counter[str], done: dict[str, Any], table: str = "db.t") -> None:
    assert contents(lake, table) == before
    assert done["rewritten_data_files_count"] > 0
    assert done["snapshot_id"] == lake.load(table).current_snapshot().snapshot_id
    again = compact(lake, table, "min_input_files => 2")
    if again["snapshot_id"] is not None:
        raise AssertionError(f"a second run found something to do: {again}")


TYPES = {
    "b": ("BOOLEAN", ["true", "false"]),
    "i": ("INT", ["-2147483648", "0", "2147483647"]),
    "l": ("BIGINT", ["-9223372036854775808", "7", "9223372036854775807"]),
    "f": ("FLOAT", ["float('NaN')", "float('-0.0')", "float('0.0')", "float('Infinity')", "float('-1.5')"]),
    "d": ("DOUBLE", ["double('NaN')", "double('-0.0')", "double('-Infinity')", "1e300"]),
    "n": ("DECIMAL(9,2)", ["-1234567.89", "0", "9999999.99"]),
    "n18": ("DECIMAL(18,4)", ["-12345678901234.5678", "1"]),
    "n38": ("DECIMAL(38,10)", ["-1234567890123456789012345678.0123456789", "1"]),
    "dt": ("DATE", ["DATE '1969-12-31'", "DATE '0001-01-01'", "DATE '9999-12-31'"]),
    "ts": ("TIMESTAMP", ["TIMESTAMP '1969-12-31 23:59:59.999999'", "TIMESTAMP '2026-01-01 00:00:00.000001'"]),
    "tn": ("TIMESTAMP_NTZ", ["TIMESTAMP_NTZ '1900-01-01 00:00:00.5'", "TIMESTAMP_NTZ '2026-01-01 00:00:00'"]),
    "s": ("STRING", ["''", "'ü'", "repeat('x', 5000)", "'abcdefghijklmnopqrstuvwxyz'", "repeat('\\uD7FF', 20)"]),
    "bin": ("BINARY", ["X''", "X'00FF'", "cast(repeat('y', 100) as binary)"]),
    "li": ("ARRAY<STRUCT<x: INT, y: STRING>>", ["array()", "array(struct(1, null), null)", "array(struct(null, 'q'))"]),
    "mp": ("MAP<STRING, STRUCT<x: INT>>", ["map()", "map('k', null)", "map('k', struct(2))"]),
    "st": ("STRUCT<x: INT, y: ARRAY<INT>>", ["struct(null, null)", "struct(1, array())", "struct(2, array(1, null))"]),
}


def make_typed(lake: Lake, table: str = "db.t", properties: str = "") -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    lake.sql(f"CREATE TABLE {lake.full(table)} (id INT, {columns}) USING iceberg TBLPROPERTIES ({MOR}{properties})")
    for number in range(6):
        values = []
        for name, (kind, samples) in TYPES.items():
            sample = "NULL" if (number + len(name)) % 6 == 0 else samples[number % len(samples)]
            values.append(f"CAST({sample} AS {kind})")
        lake.sql(f"INSERT INTO {lake.full(table)} VALUES ({number}, {', '.join(values)})")


def test_every_type_keeps_its_values_and_filters_find_every_row(lake: Lake) -> None:
    make_typed(lake)
    before = contents(lake)
    done = compact(lake)
    assert (done["rewritten_data_files_count"], done["added_data_files_count"], done["rows_count"]) == (6, 1, 6)
    unchanged_and_settled(lake, before, done)
    for name, (kind, samples) in TYPES.items():
        if "<" in kind:
            continue
        for sample in samples:
            value = f"CAST({sample} AS {kind})"
            plain = lake.sql(f"SELECT count_if({name} = {value}) FROM {lake.full('db.t')}").first()[0]
            pruned = lake.sql(f"SELECT count(*) FROM {lake.full('db.t')} WHERE {name} = {value}").first()[0]
            assert pruned == plain, (name, sample)
        nulls = lake.sql(f"SELECT count_if({name} IS NULL) FROM {lake.full('db.t')}").first()[0]
        assert lake.sql(f"SELECT count(*) FROM {lake.full('db.t')} WHERE {name} IS NULL").first()[0] == nulls


def test_schema_evolution_is_resolved_by_field_id(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id INT, a INT, b STRING, f FLOAT, n DECIMAL(5,2), st STRUCT<x: INT, y: STRING>, "
        f"li ARRAY<STRUCT<p: INT>>) USING iceberg TBLPROPERTIES ({MOR})"
    )
    row = "1.5, 3.25, struct(1, 'y'), array(struct(1), null)"
    lake.sql(f"INSERT INTO {name} VALUES (1, 10, 'one', {row}), (2, NULL, NULL, NULL, NULL, NULL, NULL)")
    for change in (
        "RENAME COLUMN b TO c",
        "ALTER COLUMN a TYPE BIGINT",
        "ALTER COLUMN f TYPE DOUBLE",
        "ALTER COLUMN n TYPE DECIMAL(9,2)",
        "ADD COLUMN st.z DOUBLE",
        "ADD COLUMN li.element.q STRING",
        "RENAME COLUMN st.x TO xx",
        "ADD COLUMN b STRING AFTER id",
        "ALTER COLUMN c FIRST",
    ):
        lake.sql(f"ALTER TABLE {name} {change}")
        lake.sql(f"INSERT INTO {name} (id) VALUES ({len(change) * 1000})")
    lake.sql(f"ALTER TABLE {name} DROP COLUMN a")
    lake.sql(f"ALTER TABLE {name} ADD COLUMN a STRING")
    lake.sql(f"INSERT INTO {name} (id, a, b, c) VALUES (77, 'new a', 'new b', 'new c')")
    before = contents(lake)
    done = compact(lake)
    unchanged_and_settled(lake, before, done)
    assert len(lake.data_paths("db.t")) == 1


def test_all_kinds_of_deletes(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT, k STRING, v INT) USING iceberg TBLPROPERTIES ({MOR})")
    for number in range(6):
        insert_range(lake, number, 10, "id, IF(id % 4 = 0, NULL, concat('k', id % 4)), id")
    lake.sql(f"DELETE FROM {name} WHERE id % 7 = 0")
    lake.equality_delete("db.t", ["id"], [(11,), (12,)])
    lake.equality_delete("db.t", ["k", "v"], [(None, 20), ("k1", 21)])
    lake.sql(f"INSERT INTO {name} VALUES (11, 'back', 1), (20, NULL, 20)")
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN k TO kk")
    lake.equality_delete("db.t", ["kk"], [("k3",)])
    before = contents(lake)
    done = compact(lake)
    unchanged_and_settled(lake, before, done)
    assert done["removed_delete_files_count"] > 0
    assert {file["content"] for file in lake.files("db.t")} == {0}


def test_all_rows_deleted_leaves_no_file(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ({MOR})")
    for number in range(5):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    lake.equality_delete("db.t", ["id"], [(number,) for number in range(5)])
    done = compact(lake)
    assert (done["rewritten_data_files_count"], done["added_data_files_count"]) == (5, 0)
    assert lake.rows("db.t") == [] and lake.files("db.t") == []


PARTITIONED = {
    "identity": "s",
    "bucket": "bucket(3, id)",
    "truncate": "truncate(2, s)",
    "days": "days(ts)",
    "hours": "hours(ts)",
    "months and identity": "months(ts), d",
    "decimals of one type": "n, truncate(10, n)",
}


@pytest.mark.parametrize("layout", PARTITIONED)
def test_partitions(lake: Lake, layout: str) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, ts TIMESTAMP, d DATE, n DECIMAL(9,2)) USING iceberg "
        f"PARTITIONED BY ({PARTITIONED[layout]}) TBLPROPERTIES ({MOR}, 'write.distribution-mode'='hash')"
    )
    values = ["'a/b c'", "'ü=%25'", "NULL", "''"]
    for number in range(5):
        rows = ", ".join(
            f"({number * 10 + i}, {value}, TIMESTAMP '1969-12-31 23:00:00' + INTERVAL {i} HOURS, "
            f"DATE '2026-01-0{i + 1}', {i}.50)"
            for i, value in enumerate(values)
        )
        lake.sql(f"INSERT INTO {name} VALUES {rows}")
    lake.sql(f"DELETE FROM {name} WHERE id IN (11, 32)")
    before = contents(lake)
    partitions = lake.sql(f"SELECT partition, count(*) FROM {name}.files GROUP BY partition").count()
    done = compact(lake, extra="min_input_files => 2")
    unchanged_and_settled(lake, before, done)
    assert len(lake.data_paths("db.t")) == partitions
    for value in values:
        test = f"s = {value}" if value != "NULL" else "s IS NULL"
        assert lake.sql(f"SELECT count(*) FROM {name} WHERE {test}").first()[0] == sum(
            count
            for row, count in before.items()
            if f'"s":{value.replace(chr(39), chr(34)).replace("NULL", "null")}' in row
        )


def test_partition_values_of_every_type_keep_their_bits(lake: Lake) -> None:
    """Java takes identity columns from the partition values, so that these must come through every manifest of ours."""
    samples = {name: TYPES[name] for name in ("b", "l", "f", "n38", "dt", "tn", "bin")}
    samples["d"] = ("DOUBLE", ["0.1D", "1e300", "double('NaN')", "double('-Infinity')"])
    samples["s"] = ("STRING", ["''", "'ü'", "'a/b=%20 +c#?'", "repeat('x', 60)"])
    for column, (kind, values) in samples.items():
        name = lake.full(f"db.by_{column}")
        lake.sql(f"CREATE TABLE {name} (id INT, v {kind}) USING iceberg PARTITIONED BY (v) TBLPROPERTIES ({MOR})")
        rows = [f"({i}, CAST({value} AS {kind}))" for value in [*values, "NULL"] for i in range(2)]
        for _ in range(2):
            lake.sql(f"INSERT INTO {name} VALUES {', '.join(rows)}")
        lake.sql(f"DELETE FROM {name} WHERE id = 0")
        before = contents(lake, f"db.by_{column}")
        lake.spark.sql(f"CALL rewrite_manifests('{name}')").collect()
        assert contents(lake, f"db.by_{column}") == before, column
        done = compact(lake, f"db.by_{column}", "min_input_files => 2")
        assert (done["groups_count"], done["removed_delete_files_count"] > 0) == (len(rows) // 2, True), column
        assert contents(lake, f"db.by_{column}") == before, column
        assert compact(lake, f"db.by_{column}", "min_input_files => 2")["snapshot_id"] is None


def test_files_of_old_specs_go_to_the_current_one(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, d DATE) USING iceberg PARTITIONED BY (s) TBLPROPERTIES ({MOR})"
    )
    for number in range(4):
        insert_range(lake, number, 10, "id, IF(id % 2 = 0, 'a', NULL), DATE '2026-01-01' + INT(id % 3)")
    lake.sql(f"ALTER TABLE {name} DROP PARTITION FIELD s")
    lake.sql(f"ALTER TABLE {name} ADD PARTITION FIELD days(d)")
    for number in range(4, 6):
        insert_range(lake, number, 10, "id, 'b', DATE '2026-01-01' + INT(id % 3)")
    lake.sql(f"DELETE FROM {name} WHERE id IN (3, 44)")
    before = contents(lake)
    done = compact(lake, extra="min_input_files => 2")
    unchanged_and_settled(lake, before, done)
    current = lake.load("db.t").spec().spec_id
    assert {file["spec_id"] for file in lake.files("db.t") if file["content"] == 0} == {current}
    for day in range(3):
        counted = lake.sql(f"SELECT count(*) FROM {name} WHERE d = DATE '2026-01-0{day + 1}'").first()[0]
        assert counted == sum(count for row, count in before.items() if f"2026-01-0{day + 1}" in row)
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE s IS NULL").first()[0] == 20 - 1


def test_format_version_1(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING) USING iceberg PARTITIONED BY (s) "
        "TBLPROPERTIES ('format-version'='1')"
    )
    for number in range(5):
        insert_range(lake, number, 4, "id, concat('p', id % 2)")
    before = contents(lake)
    done = compact(lake)
    assert (done["rewritten_data_files_count"], done["added_data_files_count"]) == (10, 2)
    unchanged_and_settled(lake, before, done)


def test_a_side_branch_leaves_main_as_it_was(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ({MOR})")
    for number in range(5):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    lake.sql(f"ALTER TABLE {name} CREATE BRANCH dev RETAIN 10 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    lake.sql(f"INSERT INTO {name}.branch_dev VALUES (100)")
    main, dev = contents(lake), contents(lake, branch="dev")
    head = lake.load("db.t").current_snapshot().snapshot_id
    done = compact(lake, extra="branch => 'dev'")
    assert done["rewritten_data_files_count"] == 6
    table = lake.load("db.t")
    assert table.current_snapshot().snapshot_id == head
    assert table.metadata.refs["dev"].snapshot_id == done["snapshot_id"]
    assert table.metadata.refs["dev"].min_snapshots_to_keep == 3
    assert (contents(lake), contents(lake, branch="dev")) == (main, dev)


def test_where_chooses_files_and_loses_no_row(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT, day DATE) USING iceberg PARTITIONED BY (day) TBLPROPERTIES ({MOR})")
    for number in range(5):
        lake.sql(f"INSERT INTO {name} VALUES ({number}, DATE '2026-01-01'), ({number}, DATE '2026-01-02')")
    before = contents(lake)
    done = compact(lake, extra="where => \"day = DATE '2026-01-02' AND id >= 0\"")
    assert (done["rewritten_data_files_count"], done["added_data_files_count"]) == (5, 1)
    assert contents(lake) == before
    with pytest.raises(IcebergCompactError, match=r"compact_table: .*where.*nope"):
        compact(lake, extra="where => 'nope = 1'")


def test_other_file_formats_are_left_alone_and_said(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('write.format.default'='orc')")
    for number in range(6):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    before = contents(lake)
    assert compact(lake)["snapshot_id"] is None
    [row] = lake.spark.sql(f"CALL compact_table('{name}', dry_run => true)").collect()
    assert row.action == "skip" and "ORC" in row.reason.upper()
    assert contents(lake) == before


def test_imported_files_without_field_ids(lake: Lake, tmp_path: Any) -> None:
    name = lake.full("db.t")
    folder = tmp_path / "imported"
    for number in range(5):
        frame = lake.spark.range(number * 5, number * 5 + 5).selectExpr("id", "cast(id as string) s", "array(id) li")
        frame.coalesce(1).write.mode("append").parquet(str(folder / f"p={number % 2}"))
    lake.sql(f"CREATE TABLE {name} (id BIGINT, s STRING, li ARRAY<BIGINT>, p INT) USING iceberg PARTITIONED BY (p)")
    lake.spark.sql(f"CALL {lake.name}.system.add_files('db.t', '`parquet`.`{folder}`')").collect()
    before = contents(lake)
    assert sum(before.values()) == 25
    done = compact(lake, extra="min_input_files => 2")
    unchanged_and_settled(lake, before, done)


def test_row_groups_are_copied_with_page_indexes_and_bloom_filters(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id BIGINT, s STRING, v DOUBLE) USING iceberg TBLPROPERTIES ({MOR}, "
        "'write.parquet.bloom-filter-enabled.column.s'='true', 'write.parquet.row-group-size-bytes'='400000', "
        "'write.parquet.page-row-limit'='2000')"
    )
    for number in range(5):
        insert_range(lake, number, 20_000, "id, sha2(cast(id as string), 256), rand(1)")
    lake.sql(f"DELETE FROM {name} WHERE id = 50001")
    before = lake.sql(f"SELECT count(*), sum(id), sum(hash(*)), count(DISTINCT s) FROM {name}").first()
    done = compact(lake, extra="copy_min_row_group_size => '10KB'")
    assert done["copied_row_groups_count"] > 0
    assert lake.sql(f"SELECT count(*), sum(id), sum(hash(*)), count(DISTINCT s) FROM {name}").first() == before
    for probe in (0, 19_999, 20_000, 50_000, 99_999):
        assert lake.sql(f"SELECT id FROM {name} WHERE s = sha2('{probe}', 256)").collect()[0][0] == probe
        assert lake.sql(f"SELECT count(*) FROM {name} WHERE id = {probe}").first()[0] == 1
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE id = 50001").first()[0] == 0


def racing(lake: Lake, point: str, act: Any) -> Any:
    """Run `act` once, when the compaction first comes to `point`."""
    fired: list[str] = []

    def listener(reached: str, facts: object) -> None:
        if reached == point and not fired:
            fired.append(reached)
            act()

    return events.listening(listener), fired


@pytest.mark.parametrize("point", ["plan.done", "commit.validate", "commit.send"])
@pytest.mark.parametrize("race", ["append", "position delete", "equality delete", "overwrite", "two commits", "schema"])
def test_concurrent_changes_win_no_row_back(lake: Lake, point: str, race: str) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT, v INT) USING iceberg TBLPROPERTIES ({MOR})")
    for number in range(5):
        insert_range(lake, number, 10, "id, id")
    acts = {
        "append": [f"INSERT INTO {name} VALUES (1000, 1)"],
        "position delete": [f"DELETE FROM {name} WHERE id = 13"],
        "equality delete": [],
        "overwrite": [f"INSERT OVERWRITE {name} VALUES (1, 1)"],
        "two commits": [f"DELETE FROM {name} WHERE id = 13", f"INSERT INTO {name} VALUES (1000, 1)"],
        "schema": [f"ALTER TABLE {name} ADD COLUMN w STRING", f"ALTER TABLE {name} RENAME COLUMN v TO vv"],
    }

    def act() -> None:
        if race == "equality delete":
            lake.equality_delete("db.t", ["id"], [(13,)])
        for statement in acts[race]:
            lake.sql(statement)

    expected = {
        "append": 51, "position delete": 49, "equality delete": 49, "overwrite": 1, "two commits": 50, "schema": 50,
    }[race]  # fmt: skip
    listening, fired = racing(lake, point, act)
    with listening:
        compact(lake)
    assert fired
    assert lake.sql(f"SELECT count(*), count(DISTINCT id) FROM {name}").first() == (expected, expected)
    if "delete" in race or race == "two commits":
        assert lake.sql(f"SELECT count(*) FROM {name} WHERE id = 13").first()[0] == 0
    lake.sql(f"INSERT INTO {name} (id) VALUES (2000)")
    assert lake.sql(f"SELECT count(*) FROM {name}").first()[0] == expected + 1


def test_the_session_reads_the_new_state_and_icebergs_calls_stay_icebergs(lake: Lake) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id BIGINT) USING iceberg")
    for number in range(5):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    theirs = lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.t')")
    assert theirs.columns[-1] == "removed_delete_files_count"
    for number in range(5):
        lake.sql(f"INSERT INTO {name} VALUES ({number})")
    lake.spark.conf.set("spark.iceberg_compact_sql.takeover", "true")
    ours = lake.spark.sql(f"CALL {lake.name}.system.rewrite_data_files(table => 'db.t')")
    lake.spark.conf.unset("spark.iceberg_compact_sql.takeover")
    assert ours.columns == theirs.columns
    assert lake.sql(f"SELECT count(*) FROM {name}").first()[0] == 10

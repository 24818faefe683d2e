"""Files whose column differs from their identity partition value: Java reads the partition value, and so do we.

Java's rows before compaction are Java's rows after it, and also after the partition field was dropped.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import iceberg_compact_sql
from tests.integration.java.test_compact_table import compact, contents
from tests.support.java import Lake

COPY = "min_input_files => 2, copy_min_row_group_size => '1B'"
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


@pytest.fixture(autouse=True)
def registered(lake: Lake) -> Iterator[None]:
    iceberg_compact_sql.register(lake.spark)
    yield
    iceberg_compact_sql.unregister(lake.spark)


def with_ids(table: pa.Table, ids: Sequence[int]) -> pa.Table:
    fields = [field.with_metadata({"PARQUET:field_id": str(i)}) for field, i in zip(table.schema, ids, strict=True)]
    return table.cast(pa.schema(fields))


def append_file(lake: Lake, table: str, path: Path, partition: str, spec_id: int = 0) -> None:
    """Append an existing Parquet file with a partition value of our choice, by Java, with its footer's metrics."""
    java: Any = lake.spark._jvm
    target = lake.java_table(table)
    spec = target.specs()[spec_id]
    input_file = target.io().newInputFile(str(path))
    metrics = java.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(
        input_file, java.org.apache.iceberg.MetricsConfig.forTable(target)
    )
    builder = java.org.apache.iceberg.DataFiles.builder(spec).withInputFile(input_file).withMetrics(metrics)
    builder = builder.withFormat("parquet").withPartitionPath(partition)
    target.newAppend().appendFile(builder.build()).commit()


def write(folder: Path, name: str, table: pa.Table, ids: Sequence[int]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(with_ids(table, ids), folder / f"{name}.parquet", compression="zstd")
    return folder / f"{name}.parquet"


# Types that Java reads from a partition path: SQL type, Arrow type, a partition value as text and as a value, and
# another value.
TYPES: dict[str, tuple[str, pa.DataType, str, Any, Any]] = {
    "boolean": ("BOOLEAN", pa.bool_(), "true", True, False),
    "int": ("INT", pa.int32(), "7", 7, -5),
    "long": ("BIGINT", pa.int64(), "7000000000", 7_000_000_000, 5),
    "float": ("FLOAT", pa.float32(), "1.5", 1.5, float("nan")),
    "double": ("DOUBLE", pa.float64(), "0.0", 0.0, -0.0),
    "decimal": ("DECIMAL(9,2)", pa.decimal128(9, 2), "-1.25", Decimal("-1.25"), Decimal("3.00")),
    "date": ("DATE", pa.date32(), "2026-01-31", dt.date(2026, 1, 31), dt.date(1969, 12, 31)),
    "string": ("STRING", pa.string(), "ab", "ab", "abcdefghijklmnopqrstuvwxyz"),
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", sorted(TYPES))
def test_every_identity_type_reads_as_the_partition_says(lake: Lake, tmp_path: Path, kind: str, version: int) -> None:
    sql_type, arrow, text, value, other = TYPES[kind]
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id INT, p {sql_type}) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='{version}')"
    )

    def rows(first: int, values: list[Any]) -> pa.Table:
        ids = pa.array(range(first, first + len(values)), pa.int32())
        return pa.table({"id": ids, "p": pa.array(values, arrow)})

    stored = [[value] * 3, [other] * 3, [value, other, None], [None] * 3, [value, other, value]]
    for partition in (text, NULL_PARTITION):
        for number, values in enumerate(stored):
            path = write(tmp_path / "in", f"{number}_{partition[:2]}", rows(10 * number, values), [1, 2])
            append_file(lake, "db.t", path, f"p={partition}")
        absent = pa.table({"id": pa.array([90, 91], pa.int32())})
        append_file(lake, "db.t", write(tmp_path / "in", f"absent_{partition[:2]}", absent, [1]), f"p={partition}")
    before = contents(lake)
    assert len({row.split('"p"')[1] for row in before}) == 2, "Java takes the partition values"
    done = compact(lake, extra=COPY)
    assert done["rewritten_data_files_count"] == 12
    assert contents(lake) == before
    # A file that holds its partition value throughout is copied, the others are decoded.
    assert done["copied_row_groups_count"] <= 4
    literal = f"CAST('{text}' AS {sql_type})"
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE p = {literal}").first()[0] == 17
    lake.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    assert contents(lake) == before
    compact(lake, extra=f"{COPY}, rewrite_all => true")
    assert contents(lake) == before
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE p = {literal}").first()[0] == 17


@pytest.mark.parametrize("version", [1, 2])
def test_after_the_partition_field_was_dropped(lake: Lake, tmp_path: Path, version: int) -> None:
    """The rewrite moves the rows out of the spec that holds their values; renamed and promoted on the way."""
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id INT, p INT) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='{version}')"
    )
    for number, stored in enumerate(([7] * 4, [5] * 4, [5, 6, 7, None], None)):
        columns: dict[str, pa.Array] = {"id": pa.array(range(number * 4, number * 4 + 4), pa.int32())}
        if stored is not None:
            columns["p"] = pa.array(stored, pa.int32())
        path = write(tmp_path / "in", str(number), pa.table(columns), [1, 2][: len(columns)])
        append_file(lake, "db.t", path, "p=7")
        append_file(
            lake, "db.t", write(tmp_path / "null", str(number), pa.table(columns), [1, 2][: len(columns)]),
            f"p={NULL_PARTITION}",
        )  # fmt: skip
    lake.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    lake.sql(f"ALTER TABLE {name} RENAME COLUMN p TO q")
    lake.sql(f"ALTER TABLE {name} ALTER COLUMN q TYPE BIGINT")
    before = contents(lake)
    assert sum(count for row, count in before.items() if '"q":7' in row) == 16
    done = compact(lake, extra=COPY)
    assert done["rewritten_data_files_count"] == 8
    assert contents(lake) == before
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE q = 7").first()[0] == 16
    assert lake.sql(f"SELECT count(*) FROM {name} WHERE q IS NULL").first()[0] == 16


def test_icebergs_add_files_and_its_own_rewrite(lake: Lake, tmp_path: Path) -> None:
    """Imported by CALL system.add_files, without field ids; Java's own rewrite gives the same rows."""
    folder = tmp_path / "imported"
    for number in range(4):
        place = folder / f"p={number % 2}"
        place.mkdir(parents=True, exist_ok=True)
        ids = pa.array(range(number * 5, number * 5 + 5), pa.int64())
        pq.write_table(pa.table({"id": ids, "p": pa.array([number + 40] * 5, pa.int32())}), place / f"{number}.parquet")
    for table in ("db.ours", "db.javas"):
        name = lake.full(table)
        lake.sql(f"CREATE TABLE {name} (id BIGINT, p INT) USING iceberg PARTITIONED BY (p)")
        lake.spark.sql(f"CALL {lake.name}.system.add_files('{table}', '`parquet`.`{folder}`')").collect()
        lake.sql(f"ALTER TABLE {name} DROP PARTITION FIELD p")
    before = contents(lake, "db.ours")
    assert {row.rpartition(":")[2] for row in before} == {"0}", "1}"}
    compact(lake, "db.ours", COPY)
    lake.spark.sql(
        f"CALL {lake.name}.system.rewrite_data_files(table => 'db.javas', options => map('rewrite-all', 'true'))"
    )
    assert contents(lake, "db.ours") == before == contents(lake, "db.javas")


def test_nested_identity_columns(lake: Lake, tmp_path: Path) -> None:
    name = lake.full("db.t")
    lake.sql(f"CREATE TABLE {name} (id INT, st STRUCT<x: INT, y: STRING>) USING iceberg PARTITIONED BY (st.x)")
    schema = lake.load("db.t").schema()
    ids = {path: str(schema.find_field(path).field_id).encode() for path in ("id", "st", "st.x", "st.y")}

    def field(path: str, kind: pa.DataType) -> pa.Field:
        return pa.field(path.rpartition(".")[2], kind, metadata={b"PARQUET:field_id": ids[path]})

    struct = pa.struct([field("st.x", pa.int32()), field("st.y", pa.string())])
    arrow = pa.schema([field("id", pa.int32()), field("st", struct)])
    values: list[Any] = [{"x": 7, "y": "a"}, {"x": 5, "y": None}, None, {"x": None, "y": "b"}]
    for number, row in enumerate(values):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(
            pa.table([pa.array([number, number], pa.int32()), pa.array([row, row], struct)], schema=arrow), path
        )
        append_file(lake, "db.t", path, "st.x=7")
    before = contents(lake)
    compact(lake, extra=COPY)
    assert contents(lake) == before
    lake.sql(f"ALTER TABLE {name} DROP PARTITION FIELD st.x")
    compact(lake, extra=f"{COPY}, rewrite_all => true")
    assert contents(lake) == before


@pytest.mark.parametrize("key", [5, 6, 7, None])
def test_deletes_on_such_a_column(lake: Lake, tmp_path: Path, key: int | None) -> None:
    """An equality delete meets the partition value; position deletes count rows as ever."""
    name = lake.full("db.t")
    lake.sql(
        f"CREATE TABLE {name} (id INT, p INT) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ('format-version'='2')"
    )
    stored: list[list[int | None]] = [[7] * 3, [5] * 3, [5, 6, 9], [9, 5, None], [None] * 3]
    for number, values in enumerate(stored):
        ids = pa.array(range(number * 3, number * 3 + 3), pa.int32())
        path = write(tmp_path, str(number), pa.table({"id": ids, "p": pa.array(values, pa.int32())}), [1, 2])
        append_file(lake, "db.t", path, "p=7")
    first = next(path for path in lake.data_paths("db.t") if path.endswith("0.parquet"))
    lake.position_delete("db.t", [(first, 1)])
    lake.equality_delete("db.t", ["p"], [(key,)], partition="p=7")
    before = contents(lake)
    done = compact(lake, extra=f"{COPY}, rewrite_all => true")
    assert done["rewritten_data_files_count"] == 5
    assert contents(lake) == before

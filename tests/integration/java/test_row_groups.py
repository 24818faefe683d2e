"""Row groups that Iceberg's Java library wrote, joined by us, and read by Java again with every filter pushed down."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from iceberg_compact_sql.parquet.footer import ParquetFooter, read_footer
from iceberg_compact_sql.parquet.joiner import RowGroupJoiner
from iceberg_compact_sql.parquet.thrift import write_struct
from iceberg_compact_sql.rewrite.write.metrics import file_metrics
from tests.support.java import Lake
from tests.support.parquet_bytes import footer_bytes

COLUMNS = """b BOOLEAN, i INT, l BIGINT NOT NULL, f FLOAT, d DOUBLE, d9 DECIMAL(9,2), d18 DECIMAL(18,4),
d38 DECIMAL(38,10), day DATE, ts TIMESTAMP, tn TIMESTAMP_NTZ, s STRING, bin BINARY, st STRUCT<x: INT, y: STRING>,
li ARRAY<STRING>, ls ARRAY<STRUCT<p: BIGINT, q: DATE>>, m MAP<STRING, INT>"""
PROPERTIES = """'write.parquet.bloom-filter-enabled.column.s'='true', 'write.parquet.row-group-size-bytes'='20000',
'write.parquet.bloom-filter-enabled.column.l'='true', 'write.parquet.row-group-check-min-record-count'='50',
'write.parquet.page-row-limit'='60', 'write.parquet.bloom-filter-max-bytes'='2048'"""
# Each column is null somewhere but `l`: otherwise Spark would mark it as required in the file.
VALUES = """IF(id % 10 = 0, NULL, id % 3 = 0), IF(id % 5 = 0, NULL, int(id - 200)), id * 1000000007,
IF(id % 7 = 1, NULL, float(id) / 3 - 20), IF(id % 7 = 0, NULL, double(id) - 100),
IF(id % 8 = 0, NULL, CAST(id - 150 AS DECIMAL(9,2))), IF(id % 8 = 1, NULL, CAST(id * 12345 - 999999 AS DECIMAL(18,4))),
IF(id % 8 = 2, NULL, CAST(id AS DECIMAL(38,10)) * -1), IF(id % 8 = 3, NULL, date_add(DATE'1969-06-01', int(id))),
IF(id % 8 = 4, NULL, timestamp_micros(id * 1000003 - 5000000)),
IF(id % 8 = 5, NULL, timestamp_ntz'1965-01-01 00:00:00' + make_dt_interval(int(id))),
IF(id % 9 = 0, NULL, concat('this is a rather long prefix ', id)),
IF(id % 9 = 1, NULL, encode(concat(repeat(char(255 - id % 3), 30), id), 'ISO-8859-1')),
IF(id % 4 = 0, NULL, named_struct('x', int(id), 'y', concat('é', id))),
IF(id % 6 = 0, NULL, IF(id % 6 = 1, array(), array('a', NULL, concat('z', id)))),
IF(id % 5 = 1, NULL, array(named_struct('p', id, 'q', DATE'2020-01-01'), NULL)),
IF(id % 4 = 1, NULL, map('k', int(id), concat('j', id), NULL))"""
FILTERS = [
    "b",
    "i = 37",
    "i BETWEEN 700 AND 720",
    "l = 1117 * 1000000007L",
    "l = 5",
    "f > 250",
    "d < -95",
    "d9 = 12",
    "d18 > 9000000",
    "d38 < -1400",
    "day = DATE'1969-07-01'",
    "day < DATE'1970-01-01'",
    "ts < TIMESTAMP'1970-01-01 00:00:00'",
    "tn >= TIMESTAMP_NTZ'1968-12-01 00:00:00'",
    "s = 'this is a rather long prefix 1001'",
    "s = 'this is a rather long prefix x'",
    "s >= 'this is a rather long prefix 99'",
    "s IS NULL",
    "bin > X'FF'",
    "st.x = 1099",
    "st.y = 'é1099'",
    "get(li, 2) = 'z500'",
    "m['k'] = 1402",
    "get(ls, 0).p = 900",
]


def local(path: str) -> Path:
    return Path(unquote(urlparse(path).path))


def make_inputs(lake: Lake, files: int = 3, rows: int = 500) -> Table:
    for name in ("inputs", "joined"):
        lake.sql(f"CREATE TABLE {{lake}}.db.{name} ({COLUMNS}) USING iceberg TBLPROPERTIES ({PROPERTIES})")
    for number in range(files):
        lake.sql(
            f"INSERT INTO {{lake}}.db.inputs SELECT /*+ COALESCE(1) */ {VALUES} "
            f"FROM range({number * rows}, {(number + 1) * rows})"
        )
    return lake.load("db.inputs")


def data_files(table: Table) -> list[DataFile]:
    return sorted((task.file for task in table.scan().plan_files()), key=lambda file: file.lower_bounds[3])


def append(table: Table, path: Path, footer: ParquetFooter) -> None:
    metrics = file_metrics(footer, table.schema(), table.properties)
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path.as_uri(),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=footer.rows,
        file_size_in_bytes=path.stat().st_size,
        column_sizes=dict(metrics.column_sizes),
        value_counts=dict(metrics.value_counts),
        null_value_counts=dict(metrics.null_value_counts),
        nan_value_counts=dict(metrics.nan_value_counts),
        lower_bounds=dict(metrics.lower_bounds),
        upper_bounds=dict(metrics.upper_bounds),
        split_offsets=list(metrics.split_offsets),
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as appended:
        appended.append_data_file(file)


def check_reads(lake: Lake, filters: list[str]) -> None:
    rows = [lake.sql(f"SELECT * FROM {{lake}}.db.{name}").collect() for name in ("inputs", "joined")]
    by_key = [sorted(found, key=lambda row: row["l"]) for found in rows]
    assert by_key[0] == by_key[1]
    assert len(rows[1]) == 1500
    # One scan without a filter says what each filter must find.
    measures = ", ".join(f"count_if({condition}), sum(IF({condition}, l, 0))" for condition in filters)
    expected = list(lake.sql(f"SELECT {measures} FROM {{lake}}.db.inputs").collect()[0])
    # The JVM's plain Parquet reader goes through page indexes and bloom filters of its own.
    plain = lake.spark.read.parquet(lake.data_paths("db.joined")[0])
    plain.createOrReplaceTempView("plain_joined")
    for number, condition in enumerate(filters):
        for name in (lake.full("db.joined"), "plain_joined"):
            query = f"SELECT count(*), coalesce(sum(l), 0) FROM {name} WHERE {condition}"
            assert list(lake.sql(query).collect()[0]) == expected[2 * number : 2 * number + 2], query


def test_files_of_java_joined_and_read_by_java(lake: Lake, tmp_path: Path) -> None:
    table = make_inputs(lake)
    target = lake.load("db.joined")
    path = tmp_path / "joined.parquet"
    with pa.OSFile(str(path), "wb") as sink:
        joiner: Any = None
        for file in data_files(table):
            with pa.OSFile(str(local(file.file_path))) as source:
                footer = read_footer(source)
                # Nothing of a footer of parquet-mr gets lost on the way through our tree.
                assert write_struct(footer.tree) == footer_bytes(local(file.file_path).read_bytes())
                joiner = joiner or RowGroupJoiner(sink, footer)
                joiner.copy(source, footer, range(len(footer.row_groups)))
        footer = joiner.finish()
    assert len(footer.row_groups) > 3
    assert {14, 15, 16} & set(footer.column_trees(0)[2][1].fields)
    append(target, path, footer)
    check_reads(lake, FILTERS)


def test_row_groups_of_pyarrow_join_those_of_java(lake: Lake, tmp_path: Path) -> None:
    table = make_inputs(lake)
    target = lake.load("db.joined")
    path = tmp_path / "mixed.parquet"
    files = data_files(table)
    with pa.OSFile(str(path), "wb") as sink:
        joiner: Any = None
        for number, file in enumerate(files):
            raw = local(file.file_path).read_bytes()
            if number == 1:
                rows = pq.read_table(io.BytesIO(raw)).cast(schema_to_pyarrow(table.schema()))
                encoded = io.BytesIO()
                pq.write_table(rows, encoded, compression="zstd", store_decimal_as_integer=True, write_page_index=True)
                raw = encoded.getvalue()
            source = pa.BufferReader(raw)
            footer = read_footer(source)
            joiner = joiner or RowGroupJoiner(sink, footer)
            joiner.copy(source, footer, range(len(footer.row_groups)))
        footer = joiner.finish()
    append(target, path, footer)
    check_reads(lake, FILTERS[::5])


def test_metrics_are_those_that_java_wrote(lake: Lake) -> None:
    table = make_inputs(lake, files=2)
    inside_collections = {"li.element", "ls.element.p", "ls.element.q", "m.key", "m.value"}
    for file in data_files(table):
        with pa.OSFile(str(local(file.file_path))) as source:
            footer = read_footer(source)
        ours = file_metrics(footer, table.schema(), table.properties)
        # Java keeps no counts of list elements and map entries; we do, as pyiceberg does.
        nested = {i for i in ours.column_sizes if table.schema().find_column_name(i) in inside_collections}
        assert len(nested) == 5
        assert dict(ours.column_sizes) == dict(file.column_sizes)
        for name in ("value_counts", "null_value_counts", "lower_bounds", "upper_bounds"):
            mine = {key: value for key, value in getattr(ours, name).items() if key not in nested}
            assert mine == dict(getattr(file, name)), name
        assert not nested & ours.lower_bounds.keys()
        assert ours.split_offsets == tuple(file.split_offsets or ())

"""The guided tour: a fragmented demo lake, scored, planned, compacted and expired by CALL."""

from __future__ import annotations

import datetime as dt
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DoubleType, LongType, NestedField, StringType
from rich.console import Console

from iceberg_compact_sql.errors import InvalidArgumentError
from iceberg_compact_sql.report.render import print_histogram, print_table
from iceberg_compact_sql.sql.session import session_view
from iceberg_compact_sql.table.catalogs import open_catalog

TABLE = "demo.events"
_MARKER = ".iceberg-compact-sql-demo"
_DAYS = 4
_APPENDS_PER_DAY = 60
_ROWS_PER_APPEND = 2_000
_SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "day", DateType()),
    NestedField(3, "kind", StringType()),
    NestedField(4, "url", StringType()),
    NestedField(5, "amount", DoubleType()),
)
_SPEC = PartitionSpec(PartitionField(source_id=2, field_id=1000, transform=IdentityTransform(), name="day"))


def take_tour(spark: Any, warehouse: Path) -> None:
    """Make the demo lake in `warehouse` and show every step with its SQL, before and after.

    Only a folder that is empty, missing or an earlier demo is used; an earlier demo is made anew.
    """
    console = Console()
    _prepare_folder(warehouse)
    console.print(
        f"[bold]1.[/bold] A table that rots: {TABLE} in {warehouse}, written in {_DAYS * _APPENDS_PER_DAY} commits"
    )
    table = _make_table(open_catalog(session_view(spark), "local"))
    rows_before = table.scan().count()
    print_histogram("before", _file_sizes(table))
    _show(console, spark, 2, "How bad is it?", f"CALL score_partitions('{TABLE}', target => '16MB')", _SCORE_COLUMNS)
    dry_run = f"CALL compact_table('{TABLE}', target => '16MB', dry_run => true)"
    _show(console, spark, 3, "What would be done, and why?", dry_run, _PLAN_COLUMNS)
    _show(console, spark, 4, "Compact it", f"CALL compact_table('{TABLE}', target => '16MB')")
    table = table.refresh()
    print_histogram("after", _file_sizes(table))
    expire = f"CALL expire_snapshots('{TABLE}', older_than => current_timestamp(), retain_last => 1)"
    _show(console, spark, 5, "Free what no snapshot needs", expire)
    rows_after = table.refresh().scan().count()
    same = "the same rows" if rows_before == rows_after else "DIFFERENT ROWS"
    console.print(f"[bold]{rows_before:,} rows before, {rows_after:,} rows after: {same}.[/bold]", highlight=False)
    console.print(f'Go on: iceberg-compact-sql run --warehouse {warehouse} "CALL help()"', highlight=False)


_SCORE_COLUMNS = ("partition", "data_files", "average_file_bytes", "score", "health", "files_saved", "recommendation")
_PLAN_COLUMNS = ("partition", "action", "data_files", "input_bytes", "expected_files", "reason")


def _show(console: Console, spark: Any, number: int, title: str, sql: str, only: tuple[str, ...] = ()) -> None:
    console.print(f"\n[bold]{number}. {title}[/bold]\n   [green]{sql}[/green]", highlight=False)
    dataframe = spark.sql(sql)
    if only:
        dataframe = dataframe.select(*only)
    print_table(dataframe.columns, [tuple(row) for row in dataframe.collect()])


def _prepare_folder(warehouse: Path) -> None:
    marker = warehouse / _MARKER
    if marker.exists():
        # Safe: the marker says that this folder was made by this tour.
        shutil.rmtree(warehouse)
    elif warehouse.exists() and any(warehouse.iterdir()):
        raise InvalidArgumentError(
            f"folder {warehouse} is not empty and is no demo lake",
            procedure="quickstart",
            argument="--warehouse",
            value=str(warehouse),
            hint="Give an empty or a new folder.",
        )
    warehouse.mkdir(parents=True, exist_ok=True)
    marker.write_text("made by iceberg-compact-sql quickstart; may be deleted as a whole\n")


def _make_table(catalog: Catalog) -> Table:
    catalog.create_namespace_if_not_exists("demo")
    table = catalog.create_table(TABLE, _SCHEMA, partition_spec=_SPEC, properties={"format-version": "2"})
    random.seed(7)
    first = dt.date(2026, 1, 1)
    for number in range(_DAYS * _APPENDS_PER_DAY):
        table.append(_rows(first + dt.timedelta(days=number % _DAYS), number * _ROWS_PER_APPEND))
    table.delete(EqualTo("id", 5 * _ROWS_PER_APPEND + 1))
    return table


def _rows(day: dt.date, first_id: int) -> pa.Table:
    ids = range(first_id, first_id + _ROWS_PER_APPEND)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "day": pa.array([day] * _ROWS_PER_APPEND, pa.date32()),
            "kind": [("click", "view", "order")[n % 3] for n in ids],
            "url": [f"https://example.com/{random.randrange(10**6)}" for _ in ids],
            "amount": [random.random() for _ in ids],
        }
    )


def _file_sizes(table: Table) -> list[int]:
    return list(table.inspect.files()["file_size_in_bytes"].to_pylist())

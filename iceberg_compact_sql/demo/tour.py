"""The guided tour: a fragmented demo lake, scored, planned, compacted and expired by CALL."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from rich.console import Console
from rich.markup import escape

from iceberg_compact_sql.catalogs.open_table import make_folder, open_catalog
from iceberg_compact_sql.demo.lake import COMMITS, DAYS, DELETES, TABLE, make_demo_table
from iceberg_compact_sql.doors.session import session_view
from iceberg_compact_sql.errors import IcebergCompactError, InvalidArgumentError
from iceberg_compact_sql.report.render import console_for_people, print_histogram, print_table

_MARKER = ".iceberg-compact-sql-demo"
_TARGET = "2MB"
# Few enough columns for a terminal of 80 characters.
_SCORE_COLUMNS = ("partition", "data_files", "score", "recommendation")
_PLAN_COLUMNS = ("partition", "data_files", "expected_files", "reason")


def take_tour(spark: Any, warehouse: Path) -> None:
    """Make the demo lake in a folder that `prepare_folder` made ready, and show every step, before and after."""
    console = console_for_people()
    console.print(f"\n[bold]1. A fragmented table[/bold]: {TABLE} in {escape(str(warehouse))}", highlight=False)
    summary = f"   {COMMITS} commits, each with a small file for each of {DAYS} days, and {DELETES} deletes"
    console.print(summary, highlight=False)
    with console.status("writing it"):
        table = make_demo_table(open_catalog(session_view(spark), "local"))
    rows_before = table.scan().count()
    print_histogram("   before", _file_sizes(table))
    score = f"CALL score_partitions('{TABLE}', target => '{_TARGET}')"
    _show(console, spark, "2. How bad is it?", score, _SCORE_COLUMNS)
    compact = f"CALL compact_table('{TABLE}', target => '{_TARGET}'"
    _show(console, spark, "3. What would be done, and why?", f"{compact}, dry_run => true)", _PLAN_COLUMNS)
    _show(console, spark, "4. Compact it", f"{compact})")
    table = table.refresh()
    print_histogram("   after", _file_sizes(table))
    expire = f"CALL expire_snapshots('{TABLE}', older_than => current_timestamp(), retain_last => 1)"
    _show(console, spark, "5. Free what no snapshot needs any more", expire)
    rows_after = table.refresh().scan().count()
    same = "[green]the same rows[/green]" if rows_before == rows_after else "[red]DIFFERENT ROWS[/red]"
    console.print(f"\n{rows_before:,} rows before, {rows_after:,} rows after: {same}.", highlight=False)
    console.print("Go on with:", highlight=False)
    for statement in ("CALL help()", "CALL help('compact_table')", f"CALL maintain_table('{TABLE}', dry_run => true)"):
        command = f'   iceberg-compact-sql run --warehouse {shlex.quote(str(warehouse))} "{statement}"'
        console.print(command, highlight=False, markup=False)


def prepare_folder(warehouse: Path) -> None:
    """Make a folder ready for the demo: it must be empty, missing or an earlier demo, which is deleted."""
    marker = warehouse / _MARKER
    if marker.exists():
        # Safe: the marker file shows that this tour created the folder.
        shutil.rmtree(warehouse)
    elif warehouse.exists() and (not warehouse.is_dir() or any(warehouse.iterdir())):
        raise InvalidArgumentError(
            f"{warehouse} is not empty and is not a demo lake",
            procedure="quickstart",
            argument="--warehouse",
            value=str(warehouse),
            hint="Give an empty or a new folder: --warehouse DIR.",
        )
    try:
        make_folder(warehouse.absolute())
    except IcebergCompactError as error:
        raise error.with_procedure("quickstart")  # noqa: B904 - the same error, named
    marker.write_text("made by iceberg-compact-sql quickstart; may be deleted as a whole\n")


def _show(console: Console, spark: Any, title: str, sql: str, only: tuple[str, ...] = ()) -> None:
    console.print(f"\n[bold]{title}[/bold]\n   [cyan]{sql}[/cyan]", highlight=False)
    dataframe = spark.sql(sql)
    if only:
        dataframe = dataframe.select(*only)
    print_table(dataframe.columns, [tuple(row) for row in dataframe.collect()])


def _file_sizes(table: Table) -> list[int]:
    return list(table.inspect.data_files()["file_size_in_bytes"].to_pylist())

"""Results for people and for programs: tables, JSON, CSV, and file sizes as bars."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.sql.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = ("table", "json", "csv")
_BYTES = ("_bytes", "bytes_count")
_BAR_WIDTH = 36
_FILE_WIDTH = 160


def render(dataframe: Any, style: str) -> None:
    """Write a DataFrame's rows to standard output; a statement without a result writes nothing."""
    names = list(dataframe.columns)
    if not names:
        # USE, CREATE and the like have no result.
        return
    rows = [tuple(row) for row in dataframe.collect()]
    if style == "json":
        json.dump([dict(zip(names, row, strict=True)) for row in rows], sys.stdout, default=str, indent=2)
        sys.stdout.write("\n")
    elif style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([str(v).lower() if isinstance(v, bool) else v for v in row] for row in rows)
    else:
        print_table(names, rows)


def console_for_people() -> Console:
    """Standard output as wide as the terminal; wide enough for whole lines in a file or a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table in the terminal; one row is shown upright, a name and a value a line."""
    from rich.table import Table
    from rich.text import Text

    console = console_for_people()
    table = Table(title=title, title_justify="left", header_style="bold")
    if len(rows) == 1 and len(names) > 3:
        table.add_column("result")
        table.add_column("value", justify="right")
        for name, value in zip(names, rows[0], strict=True):
            table.add_row(name, Text(_shown(name, value)))
    else:
        for index, name in enumerate(names):
            numeric = any(isinstance(row[index], (int, float)) and not isinstance(row[index], bool) for row in rows)
            table.add_column(name, justify="right" if numeric else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(_shown(name, value)) for name, value in zip(names, row, strict=True)))
    console.print(table)
    if not rows:
        console.print("no rows")


def size_histogram(sizes: Sequence[int]) -> list[tuple[str, int, str]]:
    """File sizes in powers of four: label, count and a bar.

    >>> size_histogram([10, 20, 5000])
    [('64 B', 2, '####################################'), ('16 KB', 1, '##################')]
    """
    counts: dict[int, int] = {}
    for size in sizes:
        limit = 64
        while size >= limit:
            limit *= 4
        counts[limit] = counts.get(limit, 0) + 1
    most = max(counts.values(), default=1)
    return [
        (format_bytes(limit), count, "#" * max(1, round(_BAR_WIDTH * count / most)))
        for limit, count in sorted(counts.items())
    ]


def print_histogram(title: str, sizes: Sequence[int]) -> None:
    """How many files there are of each size, as bars."""
    console = console_for_people()
    console.print(f"[bold]{title}[/bold]: {len(sizes)} files, {format_bytes(sum(sizes))}", highlight=False)
    for label, count, bar in size_histogram(sizes):
        console.print(f"  below {label:>7}  {count:>5}  [cyan]{bar.replace('#', '█')}[/cyan]", highlight=False)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and name.endswith(_BYTES):
        return format_bytes(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)

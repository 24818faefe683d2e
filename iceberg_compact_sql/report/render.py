"""Prints results as tables, JSON or CSV, and file sizes as bars."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from iceberg_compact_sql.units import format_bytes

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

FORMATS = ("table", "json", "csv")
_BYTES = ("_bytes", "bytes_count")
_BAR_WIDTH = 36
_FOLDED_WIDTH = 24


def render(dataframe: Any, style: str) -> None:
    """Write a DataFrame's rows to standard output; a statement without a result writes nothing."""
    names = list(dataframe.columns)
    if not names:
        # USE, CREATE and the like have no result.
        return
    render_rows(names, [tuple(row) for row in _in_session_time_zone(dataframe).collect()], style)


def render_rows(names: Sequence[str], rows: Sequence[tuple[Any, ...]], style: str) -> None:
    """Write rows to standard output as a table, JSON or CSV."""
    if style == "json":
        json.dump([_as_json(dict(zip(names, row, strict=True))) for row in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([None if value is None else _as_text(value) for value in row] for row in rows)
    else:
        print_table(names, rows)


def _in_session_time_zone(dataframe: Any) -> Any:
    """Return the same rows with timestamps as text: Python values would be in the time zone of this machine."""
    fields = getattr(dataframe, "schema", ())
    if not any(field.dataType.typeName() == "timestamp" for field in fields):
        return dataframe
    quoted = ["`" + field.name.replace("`", "``") + "`" for field in fields]
    if len(set(quoted)) < len(quoted):
        return dataframe
    return dataframe.selectExpr(
        *(
            f"CAST({name} AS STRING) AS {name}" if field.dataType.typeName() == "timestamp" else name
            for name, field in zip(quoted, fields, strict=True)
        )
    )


def _as_text(value: Any) -> str:
    """Format a value for a table or CSV: numbers in full, nested values as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict") or isinstance(value, (dict, list, tuple)):
        return json.dumps(_as_json(value), ensure_ascii=False)
    return str(value)


def _as_json(value: Any) -> Any:
    """Convert a value of a row for JSON: NaN and infinity become null, bytes hexadecimal."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict"):
        return _as_json(value.asDict())
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return str(value)


def console_for_people() -> Console:
    """Return a console for standard output, as wide as the terminal; 80 columns, or COLUMNS, in a file or pipe.

    It writes colours on a terminal only, and none if NO_COLOR is set.
    """
    from rich.console import Console

    return Console()


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """Print a table; a single row, or rows that are too wide, are printed vertically: one line for each column."""
    shown = [[_shown(name, value) for name, value in zip(names, row, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    natural = sum(widths) + 3 * len(widths) + 1
    console = console_for_people()
    # The widest column may be wrapped; a narrower table is not readable.
    folded = natural - max(0, max(widths) - _FOLDED_WIDTH)
    if (len(rows) == 1 and len(names) > 3) or (rows and folded > console.width):
        for number, row in enumerate(shown, 1):
            console.print(_vertical_table(names, row, title if len(rows) == 1 else f"row {number} of {len(rows)}"))
        return
    console.print(_horizontal_table(names, rows, shown, title))
    if not rows:
        console.print("no rows")


def _vertical_table(names: Sequence[str], row: Sequence[str], title: str | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("result")
    table.add_column("value", overflow="fold")
    for name, value in zip(names, row, strict=True):
        table.add_row(name, Text(value))
    return table


def _horizontal_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], shown: Sequence[Sequence[str]], title: str | None
) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    for index, name in enumerate(names):
        numeric = any(isinstance(row[index], (int, float)) and not isinstance(row[index], bool) for row in rows)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in shown:
        table.add_row(*(Text(value) for value in row))
    return table


def size_histogram(sizes: Sequence[int]) -> list[tuple[str, int, str]]:
    """Count file sizes in powers of four: label, count and a bar for each.

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
    """Print how many files there are of each size, as bars."""
    console = console_for_people()
    console.print(f"[bold]{title}[/bold]: {len(sizes)} files, {format_bytes(sum(sizes))}", highlight=False)
    for label, count, bar in size_histogram(sizes):
        console.print(f"  below {label:>7}  {count:>5}  [cyan]{bar.replace('#', '█')}[/cyan]", highlight=False)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith(_BYTES):
        return format_bytes(value)
    return f"{value:.6g}" if isinstance(value, float) else _as_text(value)

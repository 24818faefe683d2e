"""Results for people and for programs: tables, JSON, CSV, and file sizes as bars."""

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
_FILE_WIDTH = 120
_FOLDED_WIDTH = 24


def render(dataframe: Any, style: str) -> None:
    """Write a DataFrame's rows to standard output; a statement without a result writes nothing."""
    names = list(dataframe.columns)
    if not names:
        # USE, CREATE and the like have no result.
        return
    rows = [tuple(row) for row in _on_the_sessions_clock(dataframe).collect()]
    if style == "json":
        json.dump([_as_json(dict(zip(names, row, strict=True))) for row in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")
    elif style == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([None if value is None else _as_text(value) for value in row] for row in rows)
    else:
        print_table(names, rows)


def _on_the_sessions_clock(dataframe: Any) -> Any:
    """The same rows with timestamps as text: as Python values they would be on the clock of this machine."""
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
    """A value for people and CSV: numbers in full, what is nested as JSON."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "asDict") or isinstance(value, (dict, list, tuple)):
        return json.dumps(_as_json(value), ensure_ascii=False)
    return str(value)


def _as_json(value: Any) -> Any:
    """A value of a row as JSON can hold it: what JSON has no number for is null, bytes are hexadecimal."""
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


def console_for_people(least_width: int = _FILE_WIDTH) -> Console:
    """Standard output as wide as the terminal; in a file or a pipe wide enough for whole lines."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else max(_FILE_WIDTH, least_width))


def print_table(names: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """A table in the terminal; one row, or rows that are too wide for it, stand upright: a name and a value a line."""
    shown = [[_shown(name, value) for name, value in zip(names, row, strict=True)] for row in rows]
    widths = [max(map(len, column)) for column in zip(names, *shown, strict=True)]
    natural = sum(widths) + 3 * len(widths) + 1
    console = console_for_people(natural)
    # The widest column may be folded; with less room than that a table cannot be read.
    folded = natural - max(0, max(widths) - _FOLDED_WIDTH)
    if (len(rows) == 1 and len(names) > 3) or (rows and folded > console.width):
        for number, row in enumerate(shown, 1):
            console.print(_upright(names, row, title if len(rows) == 1 else f"row {number} of {len(rows)}"))
        return
    console.print(_flat(names, rows, shown, title))
    if not rows:
        console.print("no rows")


def _upright(names: Sequence[str], row: Sequence[str], title: str | None) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("result")
    table.add_column("value", justify="right", overflow="fold")
    for name, value in zip(names, row, strict=True):
        table.add_row(name, Text(value))
    return table


def _flat(
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
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith(_BYTES):
        return format_bytes(value)
    return f"{value:.6g}" if isinstance(value, float) else _as_text(value)

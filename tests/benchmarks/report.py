"""Measurements for people: tables in the terminal, and one JSON document."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measuring import SLOWER, Measurement
from tests.benchmarks.query_cases import QueryTime
from tests.support.java import ICEBERG_VERSION


def machine() -> dict[str, Any]:
    """What the figures depend on; the load says how quiet the machine was."""
    return {
        "cores": os.cpu_count(),
        "load_at_start": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "spark": version("pyspark"),
        "pyarrow": version("pyarrow"),
        "iceberg": ICEBERG_VERSION,
    }


def show(console: Console, measurements: Sequence[Measurement], queries: Sequence[QueryTime]) -> None:
    """All figures; ratios are Iceberg's divided by ours (above one is ours ahead), or one executor's by two's."""
    table = Table(title="Cost, all in: Python, JVM and workers")
    for column in ("case", "side"):
        table.add_column(column)
    for column in (
        "wall s",
        "CPU s",
        "peak MB",
        "grown MB",
        "read MB",
        "written MB",
        "out MB",
        "files",
        "wall x",
        "CPU x",
    ):
        table.add_column(column, justify="right")
    for one in measurements:
        wall_x, cpu_x, _ = ratios(one, measurements)
        table.add_row(
            one.case,
            one.side,
            f"{one.wall_s:.2f}",
            f"{one.cpu_s:.2f}",
            f"{one.peak_mb:.0f}",
            f"{one.grown_mb:.0f}",
            "" if one.read_mb is None else f"{one.read_mb:.0f}",
            "" if one.written_mb is None else f"{one.written_mb:.0f}",
            "" if one.output_mb is None else f"{one.output_mb:.1f}",
            "" if one.files is None else str(one.files),
            "" if wall_x is None else f"{wall_x:.1f}",
            "" if cpu_x is None else f"{cpu_x:.1f}",
            style="bold" if one.side in SLOWER else "",
        )
    console.print(table)
    if not queries:
        return
    table = Table(title="Queries on the same table: before, after ours, after Iceberg's")
    for column in ("case", "engine", "query", "state"):
        table.add_column(column)
    for column in ("seconds", "files", "MB"):
        table.add_column(column, justify="right")
    for one_query in queries:
        cells = (one_query.case, one_query.engine, one_query.query, one_query.state)
        figures = (f"{one_query.seconds:.3f}", str(one_query.files), f"{one_query.size_mb:.1f}")
        table.add_row(*cells, *figures, style="bold" if one_query.state == "ours" else "")
    console.print(table)


def ratios(one: Measurement, measurements: Sequence[Measurement]) -> tuple[float | None, float | None, float | None]:
    """The other side's wall and CPU divided by this one's, and this output's size divided by the other's.

    Only for sides that are compared with another one: ours with Iceberg's, two executors with one.
    """
    other = next((m for m in measurements if m.case == one.case and m.side == SLOWER.get(one.side)), None)
    if other is None:
        return None, None, None
    size = one.output_mb / other.output_mb if one.output_mb and other.output_mb else None
    wall_x = other.wall_s / one.wall_s if one.wall_s else None
    return wall_x, other.cpu_s / one.cpu_s if one.cpu_s else None, size


def as_document(
    facts: dict[str, Any], scale: float, measurements: Sequence[Measurement], queries: Sequence[QueryTime]
) -> dict[str, Any]:
    """Everything as one document."""
    rows = []
    for one in measurements:
        wall_x, cpu_x, size = ratios(one, measurements)
        named = {"wall_times_less": wall_x, "cpu_times_less": cpu_x}
        if one.side == "ours":
            named["size_to_iceberg"] = size
        found = {key: round(value, 3) for key, value in named.items() if value is not None}
        rows.append({**asdict(one), **found, "scale": scale})
    query_rows = [{**asdict(query), "scale": scale} for query in queries]
    return {"machine": facts, "measurements": rows, "queries": query_rows}


def joined(earlier: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    """This run's figures, and those of an earlier one for cases that this run has not."""
    if earlier is None:
        return now
    document = dict(now)
    for part in ("measurements", "queries"):
        cases = {row["case"] for row in now[part]}
        document[part] = [row for row in earlier[part] if row["case"] not in cases] + now[part]
    return document


def measurements_in(document: dict[str, Any]) -> list[Measurement]:
    """The measurements of a document again."""
    names = [field.name for field in fields(Measurement)]
    return [Measurement(**{name: row[name] for name in names}) for row in document["measurements"]]

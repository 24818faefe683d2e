"""What results look like: tables, JSON, CSV and bars."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import Row

from iceberg_compact_sql.report.render import print_histogram, print_table, render, size_histogram


@dataclass(frozen=True)
class Frame:
    """What rendering needs of a DataFrame."""

    columns: list[str]
    rows: list[tuple[Any, ...]]

    def collect(self) -> list[tuple[Any, ...]]:
        return self.rows


FRAME = Frame(
    ["path", "bytes", "at", "deleted"],
    [("a,b [bold]", 5_000_000, dt.datetime(2026, 1, 2, 3), True), (None, 0, None, False)],
)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    render(FRAME, "json")
    assert json.loads(capsys.readouterr().out) == [
        {"path": "a,b [bold]", "bytes": 5_000_000, "at": "2026-01-02 03:00:00", "deleted": True},
        {"path": None, "bytes": 0, "at": None, "deleted": False},
    ]


def test_json_of_any_query_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    row = (math.nan, -math.inf, bytearray(b"A\x00"), Row(x=1, y=[math.nan, Row(z=b"B")]), {dt.date(2026, 1, 2): True})
    render(Frame(["nan", "inf", "binary", "struct", "map"], [row]), "json")

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is not JSON")

    assert json.loads(capsys.readouterr().out, parse_constant=refuse) == [
        {
            "nan": None,
            "inf": None,
            "binary": "4100",
            "struct": {"x": 1, "y": [None, {"z": "42"}]},
            "map": {"2026-01-02": True},
        }
    ]


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    render(FRAME, "csv")
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["path", "bytes", "at", "deleted"],
        ["a,b [bold]", "5000000", "2026-01-02 03:00:00", "true"],
        ["", "0", "", "false"],
    ]


def test_table_shows_values_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    render(FRAME, "table")
    shown = capsys.readouterr().out
    assert "a,b [bold]" in shown and "NULL" in shown and "true" in shown


def test_one_row_stands_upright_with_sizes_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["a", "freed_bytes", "rewritten_bytes_count", "score"], [(1, 1024, 3 * 1024**2, 0.123456789)])
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines() if "│" in line]
    assert lines == [
        ["a", "1"],
        ["freed_bytes", "1", "KB"],
        ["rewritten_bytes_count", "3", "MB"],
        ["score", "0.123457"],
    ]


def test_rows_that_are_too_wide_for_a_terminal_stand_upright(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"column_{number:02}" for number in range(20)]
    rows = [tuple(range(20)), tuple(range(20, 40))]
    monkeypatch.setenv("COLUMNS", "400")
    print_table(names, rows)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and "column_19" in lines[1]
    # A pipe or a file is as wide as a plain terminal.
    monkeypatch.delenv("COLUMNS")
    print_table(names, rows)
    upright = capsys.readouterr().out
    assert "row 2 of 2" in upright and "column_19" in upright and max(map(len, upright.splitlines())) <= 80
    print_table(["path", "reason"], [("a", "word " * 40), ("b", "")])
    assert "row 1" not in capsys.readouterr().out


def test_no_rows_and_no_columns(capsys: pytest.CaptureFixture[str]) -> None:
    render(Frame(["a", "b"], []), "table")
    assert "no rows" in capsys.readouterr().out
    for style in ("table", "json", "csv"):
        render(Frame([], []), style)
    assert capsys.readouterr().out == ""


def test_histogram(capsys: pytest.CaptureFixture[str]) -> None:
    assert size_histogram([]) == []
    bars = size_histogram([10] * 99 + [70 * 1024**2])
    assert [(label, count) for label, count, _ in bars] == [("64 B", 99), ("256 MB", 1)]
    assert bars[1][2] == "#"
    print_histogram("before", [10, 20])
    assert capsys.readouterr().out.startswith("before: 2 files, 30 B\n")

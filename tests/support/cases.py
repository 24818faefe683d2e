"""Statements with their rows or errors, kept as data in tests/cases/*.sql."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "cases"
_ROW, _ERROR = "--> ", "--! "


@dataclass
class Case:
    """One statement: the rows that it gives (the columns to compare), or the text of its error."""

    sql: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None


def read_cases(name: str) -> list[Case]:
    """Return the cases of a file in their order; lines that begin with `-- ` outside a statement are comments."""
    cases: list[Case] = []
    statement: list[str] = []
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if line.startswith(_ROW):
            cases[-1].rows.append(json.loads(line.removeprefix(_ROW)))
        elif line.startswith(_ERROR):
            cases[-1].error = line.removeprefix(_ERROR)
        elif statement or (line.strip() and not line.startswith("-- ")):
            statement.append(line)
            if line.rstrip().endswith(";"):
                cases.append(Case("\n".join(statement)))
                statement = []
    return cases

"""The house rules that a tool can check: formatting, types, import directions, sizes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "ruff": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy", "--strict", "-p", "iceberg_compact_sql"],
    "imports": ["lint-imports"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_lint(name: str) -> None:
    command, *arguments = COMMANDS[name]
    executable = Path(sys.executable).parent / command
    done = subprocess.run([executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_stay_small() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in (ROOT / "iceberg_compact_sql").rglob("*.py")}
    assert {str(path): lines for path, lines in sizes.items() if lines > 450} == {}
    assert sorted(sizes.values())[len(sizes) // 2] < 200


def test_top_level_is_what_the_user_fixed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split(
        "\n"
    )
    names = {line.split("/")[0] for line in listed if line} - {""}
    allowed = {"pyproject.toml", "README.md", "LICENSE", "iceberg_compact_sql", "tests", "sql_examples", "conftest.py"}
    assert {name for name in names if not name.startswith(".")} <= allowed

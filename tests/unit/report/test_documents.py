"""Documents on a terminal and as rows."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from iceberg_compact_sql.actions.context import Context
from iceberg_compact_sql.call.declaration import Arguments
from iceberg_compact_sql.catalogs.session_view import SessionView
from iceberg_compact_sql.errors import NotFoundError
from iceberg_compact_sql.procedures.help import run
from iceberg_compact_sql.procedures.registry import names
from iceberg_compact_sql.report.documents import TOPICS, read_topic

ROOT = Path(__file__).parents[3]
VIEW = SessionView(conf={}, current_catalog="spark_catalog", current_namespace=(), time_zone="UTC")


def test_a_terminal_gets_formatted_text() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "iceberg_compact_sql.cli", "docs", "scores"], stdout=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    with os.fdopen(ours, "rb", closefd=True) as terminal:
        try:
            while piece := os.read(terminal.fileno(), 65536):
                shown += piece
        except OSError:
            # Linux reports the end of the other side as an error.
            pass
    assert process.wait() == 0
    text = shown.decode()
    assert "Scores: how bad a partition or a table is" in text and "\x1b[" in text
    assert "# Scores" not in text and "|---|" not in text


def test_sections_of_a_document_are_rows_of_help() -> None:
    rows = run(Context(VIEW), Arguments({"procedure": "Limits"}))
    headings = [row[1] for row in rows]
    assert headings[0] == "" and "Deleting files" in headings
    assert all(row[0] == "limits" and row[4] for row in rows)
    assert len(rows) == read_topic("limits").text.count("\n## ") + 1


def test_a_topic_never_hides_a_procedure() -> None:
    assert set(TOPICS).isdisjoint(names())


@pytest.mark.parametrize(("wanted", "message"), [("limitz", "Did you mean 'limits'?"), ("zzz", "procedures, calls,")])
def test_help_about_an_unknown_name(wanted: str, message: str) -> None:
    with pytest.raises(NotFoundError) as raised:
        run(Context(VIEW), Arguments({"procedure": wanted}))
    assert f"there is no procedure '{wanted}'" in str(raised.value) and message in str(raised.value)

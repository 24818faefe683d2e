"""Progress in its three places: a terminal, a notebook, a log; and switched off."""

from __future__ import annotations

import io
import logging
import sys
import types
from typing import Any

import pytest

from iceberg_compact_sql.report import progress as module
from iceberg_compact_sql.report.progress import LogLines, NotebookLine, Silent, TerminalBar, progress_for


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def work(setting: str | None = None, *, fail: bool = False) -> type[Any]:
    with progress_for("compact_table db.t", setting) as progress:
        progress.step("planning")
        progress.step("rewriting", 4)
        for _ in range(3):
            progress.advance()
        if fail:
            raise ValueError("stop")
        progress.advance(1)
    return type(progress)


def test_log_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    monkeypatch.setattr(module, "_LOG_INTERVAL_SECONDS", 0.0)
    assert work() is LogLines
    assert [record.message for record in caplog.records] == [
        "compact_table db.t: planning",
        "compact_table db.t: rewriting",
        "compact_table db.t: rewriting 25%",
        "compact_table db.t: rewriting 50%",
        "compact_table db.t: rewriting 75%",
        "compact_table db.t: rewriting 100%",
    ]
    assert {record.name for record in caplog.records} == {"iceberg_compact_sql"}


def test_a_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    work()
    assert len(caplog.records) == 2


@pytest.mark.parametrize("setting", ["false", "FALSE", "off", "no"])
def test_switched_off(caplog: pytest.LogCaptureFixture, setting: str) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    assert work(setting) is Silent
    assert caplog.records == []


def test_terminal_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    assert work() is TerminalBar
    assert "compact_table db.t: rewriting" in terminal.getvalue()
    # The cursor is back, also after an error.
    assert terminal.getvalue().rstrip().endswith("\x1b[2K") or "\x1b[?25h" in terminal.getvalue()
    with pytest.raises(ValueError, match="stop"):
        work(fail=True)
    assert terminal.getvalue().count("\x1b[?25h") == 2


class ZMQInteractiveShell:
    """The shell that notebooks have, by name."""


class DisplayHandle:
    """Keeps what a notebook would show."""

    shown: list[tuple[str, str]] = []

    def display(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(("display", content["text/plain"]))

    def update(self, content: dict[str, str], raw: bool) -> None:
        self.shown.append(("update", content["text/plain"]))


def test_notebook_line(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    display.DisplayHandle = DisplayHandle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    DisplayHandle.shown = []
    assert work() is NotebookLine
    assert DisplayHandle.shown[0] == ("display", "compact_table db.t: planning")
    assert {how for how, _ in DisplayHandle.shown[1:]} == {"update"}
    assert ("update", "compact_table db.t: rewriting 75%") in DisplayHandle.shown
    assert DisplayHandle.shown[-1] == ("update", "compact_table db.t: done")

"""Progress in its three places: a terminal, a notebook, a log; and switched off."""

from __future__ import annotations

import io
import logging
import sys
import types

import pytest

from iceberg_compact_sql.events import reach
from iceberg_compact_sql.report import progress as module
from iceberg_compact_sql.report.progress import shown_progress


class Terminal(io.StringIO):
    """A standard error that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def start(attempt: int, input_bytes: int) -> None:
    reach("compact.start", table="db.t", groups=1, files=1, input_bytes=input_bytes, attempt=attempt)


def work(setting: str | None = None, *, fail: bool = False) -> None:
    """The events of a compaction of four tasks and two commits, in the middle and at the end."""
    with shown_progress(lambda: setting):
        start(1, 4)
        for number in range(4):
            reach("compact.progress", input_bytes=1)
            if fail and number == 2:
                raise ValueError("stop")
            if number % 2:
                reach("compact.committing", table="db.t", groups=1)
                reach("compact.committed", table="db.t", snapshot_id=1, groups=1, files=1, outputs=1, output_bytes=(9,))


def test_log_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    monkeypatch.setattr(module, "_LOG_INTERVAL_SECONDS", 0.0)
    work()
    assert [record.message for record in caplog.records] == [
        "compact_table db.t: rewriting",
        "compact_table db.t: rewriting 25%",
        "compact_table db.t: rewriting 50%",
        "compact_table db.t: committing",
        "compact_table db.t: rewriting",
        "compact_table db.t: rewriting 75%",
        "compact_table db.t: rewriting 100%",
        "compact_table db.t: committing",
        "compact_table db.t: rewriting",
    ]
    assert {record.name for record in caplog.records} == {"iceberg_compact_sql.report.progress"}


def test_a_commit_does_not_move_the_bar_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """With partial_progress commits come in the middle of the work."""
    notebook(monkeypatch)
    work()
    percents = [int(text.rsplit(" ", 1)[1][:-1]) for _, text in DisplayHandle.shown if text.endswith("%")]
    assert percents == sorted(percents) and percents[-1] == 100
    assert ("update", "compact_table db.t: committing 50%") in DisplayHandle.shown


def test_a_new_plan_after_a_conflict_is_a_step_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    with shown_progress(lambda: None):
        start(1, 4)
        start(2, 2)
    assert [record.message for record in caplog.records] == [
        "compact_table db.t: rewriting",
        "compact_table db.t: rewriting again after a concurrent change",
    ]


def test_a_log_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    work()
    assert "%" not in caplog.text


@pytest.mark.parametrize("setting", ["false", "FALSE", "off", "no"])
def test_switched_off(caplog: pytest.LogCaptureFixture, setting: str) -> None:
    caplog.set_level(logging.INFO, "iceberg_compact_sql")
    work(setting)
    assert caplog.records == []


def test_terminal_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    work()
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


def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython = ZMQInteractiveShell  # type: ignore[attr-defined]
    display.DisplayHandle = DisplayHandle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    DisplayHandle.shown = []


def test_notebook_line(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook(monkeypatch)
    work()
    assert DisplayHandle.shown[0] == ("display", "compact_table db.t: rewriting 0%")
    assert {how for how, _ in DisplayHandle.shown[1:]} == {"update"}
    assert ("update", "compact_table db.t: rewriting 75%") in DisplayHandle.shown
    assert DisplayHandle.shown[-1] == ("update", "compact_table db.t: done")

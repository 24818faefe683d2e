"""Shows the progress of a run: a bar on a terminal, a line in a notebook, plain log lines otherwise."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from iceberg_compact_sql.events import listening
from iceberg_compact_sql.redaction import masked_logger

_log = masked_logger(__name__)
# The shortest time between two log lines of one step.
_LOG_INTERVAL_SECONDS = 10.0


class Progress(Protocol):
    """A display of the progress of a run."""

    def step(self, label: str, total: float = 0) -> None:
        """Begin a step; `total` is the sum of all `advance` calls, 0 if unknown."""

    def advance(self, amount: float = 1) -> None:
        """Add to the finished amount of the step."""

    def note(self, label: str) -> None:
        """Change the label; the progress of the step is kept."""

    def finish(self) -> None:
        """End the last step; called once, also after an error."""


class Silent:
    """For `spark.iceberg_compact_sql.progress=false`, and for table functions."""

    def step(self, label: str, total: float = 0) -> None:
        pass

    def advance(self, amount: float = 1) -> None:
        pass

    def note(self, label: str) -> None:
        pass

    def finish(self) -> None:
        pass


class LogLines:
    """One log line for each step, and more at intervals while it runs."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._label = ""
        self._total = self._done = 0.0
        self._last = 0.0

    def step(self, label: str, total: float = 0) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._last = time.monotonic()
        _log.info("%s: %s", self._title, label)

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        now = time.monotonic()
        if self._total and now - self._last >= _LOG_INTERVAL_SECONDS:
            self._last = now
            _log.info("%s: %s %.0f%%", self._title, self._label, 100 * min(self._done / self._total, 1))

    def note(self, label: str) -> None:
        self._label = label
        _log.info("%s: %s", self._title, label)

    def finish(self) -> None:
        pass


class NotebookLine:
    """One line under the cell, written again at each change."""

    def __init__(self, title: str) -> None:
        from IPython.display import DisplayHandle  # type: ignore[import-not-found,unused-ignore]

        self._title = title
        self._handle: Any = DisplayHandle()
        self._shown = False
        self._label = ""
        self._total = self._done = 0.0

    def step(self, label: str, total: float = 0) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._show()

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        self._show()

    def note(self, label: str) -> None:
        self._label = label
        self._show()

    def finish(self) -> None:
        self._label, self._total = "done", 0.0
        self._show()

    def _show(self) -> None:
        share = f" {100 * min(self._done / self._total, 1):.0f}%" if self._total else ""
        content = {"text/plain": f"{self._title}: {self._label}{share}"}
        (self._handle.update if self._shown else self._handle.display)(content, raw=True)
        self._shown = True


class TerminalBar:
    """A rich progress bar on standard error, removed at the end."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._title = title
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task: Any = None

    def step(self, label: str, total: float = 0) -> None:
        if self._task is None:
            self._bar.start()
        else:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task(f"{self._title}: {label}", total=total or None)

    def advance(self, amount: float = 1) -> None:
        if self._task is not None:
            self._bar.advance(self._task, amount)

    def note(self, label: str) -> None:
        if self._task is not None:
            self._bar.update(self._task, description=f"{self._title}: {label}")

    def finish(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def shown_progress(setting: Callable[[], str | None]) -> Iterator[None]:
    """Show the progress of the runs in the block: in a terminal, a notebook or the log.

    `setting` returns `spark.iceberg_compact_sql.progress`; it is called when there is something to show.
    """
    display = _EventDisplay(setting)
    try:
        with listening(display):
            yield
    finally:
        display.close()


class _EventDisplay:
    """Turns the events of a compaction into one step for each plan; commits only change the label."""

    def __init__(self, setting: Callable[[], str | None]) -> None:
        self._setting = setting
        self._progress: Progress | None = None
        self._label = ""

    def __call__(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "compact.start":
            if facts["attempt"] == 1:
                self.close()
                self._progress = _choose(f"compact_table {facts['table']}", self._setting())
            self._label = "rewriting" if facts["attempt"] == 1 else "rewriting again after a concurrent change"
        if self._progress is None:
            return
        if event == "compact.start":
            self._progress.step(self._label, facts["input_bytes"])
        elif event == "compact.progress":
            self._progress.advance(facts["input_bytes"])
        elif event == "compact.committing":
            self._progress.note("committing")
        elif event == "compact.committed":
            self._progress.note(self._label)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.finish()
            self._progress = None


def _choose(title: str, setting: str | None) -> Progress:
    if (setting or "").lower() in ("false", "off", "no"):
        return Silent()
    if _in_notebook():
        return NotebookLine(title)
    return TerminalBar(title) if sys.stderr.isatty() else LogLines(title)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"

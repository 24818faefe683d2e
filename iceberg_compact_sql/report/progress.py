"""Progress of long work: a bar on a terminal, an updating line in a notebook, plain log lines otherwise."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import Any, Protocol

LOGGER = logging.getLogger("iceberg_compact_sql")
# A log gets a line at most this often while a step goes on.
_LOG_INTERVAL_SECONDS = 10.0


class Progress(Protocol):
    """Where a procedure tells how far it is."""

    def step(self, label: str, total: float = 0) -> None:
        """Begin a step; `total` is what `advance` adds up to, 0 where nobody knows."""

    def advance(self, amount: float = 1) -> None:
        """Tell that some of the step is done."""

    def finish(self) -> None:
        """End the last step; called once, also after an error."""


class Silent:
    """For `spark.iceberg_compact_sql.progress=false`, and for table functions."""

    def step(self, label: str, total: float = 0) -> None:
        pass

    def advance(self, amount: float = 1) -> None:
        pass

    def finish(self) -> None:
        pass


class LogLines:
    """A line a step, and one now and then while it lasts."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._label = ""
        self._total = self._done = 0.0
        self._last = 0.0

    def step(self, label: str, total: float = 0) -> None:
        self._label, self._total, self._done = label, total, 0.0
        self._last = time.monotonic()
        LOGGER.info("%s: %s", self._title, label)

    def advance(self, amount: float = 1) -> None:
        self._done += amount
        now = time.monotonic()
        if self._total and now - self._last >= _LOG_INTERVAL_SECONDS:
            self._last = now
            LOGGER.info("%s: %s %.0f%%", self._title, self._label, 100 * min(self._done / self._total, 1))

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

    def finish(self) -> None:
        self._label, self._total = "done", 0.0
        self._show()

    def _show(self) -> None:
        share = f" {100 * min(self._done / self._total, 1):.0f}%" if self._total else ""
        content = {"text/plain": f"{self._title}: {self._label}{share}"}
        (self._handle.update if self._shown else self._handle.display)(content, raw=True)
        self._shown = True


class TerminalBar:
    """A rich bar on standard error, gone when the work is done."""

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

    def finish(self) -> None:
        self._bar.stop()


@contextlib.contextmanager
def progress_for(title: str, setting: str | None, *, shown: bool = True) -> Iterator[Progress]:
    """The kind of progress that fits where this process runs; `setting` is `spark.iceberg_compact_sql.progress`."""
    progress = _choose(title, setting, shown)
    try:
        yield progress
    finally:
        progress.finish()


def _choose(title: str, setting: str | None, shown: bool) -> Progress:
    if not shown or (setting or "").lower() in ("false", "off", "no"):
        return Silent()
    if _in_notebook():
        return NotebookLine(title)
    return TerminalBar(title) if sys.stderr.isatty() else LogLines(title)


def _in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"

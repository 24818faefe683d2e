"""What a piece of work costs: wall time, CPU, memory and bytes of this process and all that it started."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

MB = 1024**2
# What a side is compared with.
SLOWER = {"ours": "iceberg", "2 executors": "1 executor"}
_SAMPLE_EVERY_S = 0.1


@dataclass(frozen=True)
class Measurement:
    """The cost of one side of one case; JVM and Python workers are counted in.

    `read_mb` and `written_mb` are what went through system calls, pipes and page cache included. `peak_mb` is the whole
    process tree, the idle JVM too; `grown_mb` is how far the work took it beyond what was resident before.
    """

    case: str
    side: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    grown_mb: float
    read_mb: float | None
    written_mb: float | None
    output_mb: float | None = None
    files: int | None = None
    note: str = ""


@dataclass(frozen=True)
class _Account:
    """What one process has used since it began."""

    cpu_s: float
    resident_bytes: int
    read_bytes: int
    written_bytes: int


def measure(case: str, side: str, work: Callable[[], Any]) -> tuple[Measurement, Any]:
    """Do the work once; its cost, and what it gave."""
    tree = _Tree()
    before_bytes = tree.resident_bytes
    start = time.perf_counter()
    with tree:
        result = work()
        wall_s = time.perf_counter() - start
    used = tree.used()
    cost = Measurement(
        case,
        side,
        wall_s=round(wall_s, 3),
        cpu_s=round(used.cpu_s, 2),
        peak_mb=round(tree.highest_bytes / MB),
        grown_mb=round((tree.highest_bytes - before_bytes) / MB),
        read_mb=round(used.read_bytes / MB, 1),
        written_mb=round(used.written_bytes / MB, 1),
    )
    return cost, result


class _Tree:
    """This process and all that it started, looked at again and again while the block runs.

    Each process has an account of its own, which stays when the process ends: Spark's Python workers come and go. Bytes
    of a process that was waited for are in its parent's account too, so they are counted there; CPU seconds are not.
    """

    def __init__(self) -> None:
        self._first = self._last = self._look()
        self.resident_bytes = self.highest_bytes = sum(one.resident_bytes for one in self._first.values())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Tree:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self._take()

    def used(self) -> _Account:
        """What all processes used between the first look and the last one at each."""
        nothing = _Account(0.0, 0, 0, 0)
        present = _present()
        cpu_s, read_bytes, written_bytes = 0.0, 0, 0
        for key, last in self._last.items():
            first = self._first.get(key, nothing)
            cpu_s += last.cpu_s - first.cpu_s
            kept = last if key in present else nothing
            read_bytes += kept.read_bytes - first.read_bytes
            written_bytes += kept.written_bytes - first.written_bytes
        return _Account(cpu_s, self.highest_bytes, read_bytes, written_bytes)

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLE_EVERY_S):
            self._take()

    def _take(self) -> None:
        seen = self._look()
        self.highest_bytes = max(self.highest_bytes, sum(one.resident_bytes for one in seen.values()))
        self._last = {**self._last, **seen}

    @staticmethod
    def _look() -> dict[tuple[int, float], _Account]:
        """An account a process; one that ended and was not waited for yet has nothing to tell any more."""
        accounts = {}
        for key, process in _present().items():
            try:
                times, memory = process.cpu_times(), process.memory_info()
                counters: Any = process.io_counters() if hasattr(process, "io_counters") else None
            except psutil.Error:
                continue
            read_bytes, written_bytes = getattr(counters, "read_chars", 0), getattr(counters, "write_chars", 0)
            accounts[key] = _Account(times.user + times.system, memory.rss, read_bytes, written_bytes)
        return accounts


def _present() -> dict[tuple[int, float], psutil.Process]:
    """The processes that exist, by id and the moment when they began: ids are used again."""
    me = psutil.Process()
    found = {}
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            found[process.pid, process.create_time()] = process
    return found

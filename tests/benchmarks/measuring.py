"""What a piece of work costs: wall time, CPU, memory and bytes of this process and all that it started."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

MB = 1024**2
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
    read_mb: float
    written_mb: float
    output_mb: float | None = None
    files: int | None = None
    note: str = ""


@dataclass(frozen=True)
class _Tree:
    cpu_s: float
    resident_bytes: int
    read_bytes: int
    written_bytes: int


def measure(case: str, side: str, work: Callable[[], Any]) -> tuple[Measurement, Any]:
    """Do the work once; its cost, and what it gave."""
    before = _look()
    peak = _Peak(before.resident_bytes)
    start = time.perf_counter()
    with peak:
        result = work()
    wall_s = time.perf_counter() - start
    after = _look()
    highest = max(peak.highest_bytes, after.resident_bytes)
    cost = Measurement(
        case,
        side,
        wall_s=round(wall_s, 3),
        cpu_s=round(after.cpu_s - before.cpu_s, 2),
        peak_mb=round(highest / MB),
        grown_mb=round((highest - before.resident_bytes) / MB),
        read_mb=round((after.read_bytes - before.read_bytes) / MB, 1),
        written_mb=round((after.written_bytes - before.written_bytes) / MB, 1),
    )
    return cost, result


class _Peak:
    """The highest resident memory of the tree while the block runs."""

    def __init__(self, start_bytes: int) -> None:
        self.highest_bytes = start_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_EVERY_S):
            resident_bytes = 0
            for process in _processes():
                try:
                    resident_bytes += process.memory_info().rss
                except psutil.Error:
                    continue
            self.highest_bytes = max(self.highest_bytes, resident_bytes)


def _processes() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _look() -> _Tree:
    cpu_s, resident_bytes, read_bytes, written_bytes = 0.0, 0, 0, 0
    for process in _processes():
        try:
            times, memory = process.cpu_times(), process.memory_info()
            counters: Any = process.io_counters() if hasattr(process, "io_counters") else None
        except psutil.Error:
            continue
        # A child that has ended and was waited for is in its parent's account.
        cpu_s += times.user + times.system + times.children_user + times.children_system
        resident_bytes += memory.rss
        read_bytes += getattr(counters, "read_chars", 0)
        written_bytes += getattr(counters, "write_chars", 0)
    return _Tree(cpu_s, resident_bytes, read_bytes, written_bytes)

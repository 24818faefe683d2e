"""Pauses Python's garbage collector where many objects are made and none becomes garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def garbage_collector_off() -> Iterator[None]:
    """Switch the garbage collector off: it would rescan a growing heap in which nothing becomes garbage."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

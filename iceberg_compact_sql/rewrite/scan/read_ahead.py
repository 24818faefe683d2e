"""Reads the small files of a task before they are opened, many at the same time, each with one request.

The manifest gives the size of every file, so no request asks for it. Large files are opened when their turn comes, and
read in ranges. Local files are not read ahead.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future

from pyiceberg.io import FileIO

from iceberg_compact_sql.events import ThreadPool
from iceberg_compact_sql.rewrite.task import RewriteTask
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.request_limit import request_limit
from iceberg_compact_sql.storage.stores import Stores, stores_of
from iceberg_compact_sql.table.model import DeleteKind

# A file of at most this size is read whole. Row groups worth copying are larger.
SMALL_FILE_BYTES = 8 * 1024**2
# Bytes of one task that were read and not opened yet, or are on their way.
_AHEAD_BYTES = 48 * 1024**2


class ReadAhead:
    """The small files of one task, in the order in which they will be opened."""

    def __init__(self, stores: Stores, sizes: dict[str, int], reads: Counter[str]) -> None:
        self._stores = stores
        self._sizes = sizes
        self._waiting = deque(sizes)
        self._reads = reads
        self._under_way: dict[str, Future[bytes | None]] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self._pool = ThreadPool(max(1, min(request_limit().requests, len(sizes))), "read-ahead")

    def start(self) -> None:
        with self._lock:
            self._fill()

    def take(self, path: str) -> bytes | None:
        """Return the content of a file; None if it is not read ahead. Raises the error of reading it."""
        with self._lock:
            future = self._under_way.get(path)
            if future is None:
                return None
        try:
            return future.result()
        finally:
            with self._lock:
                self._reads[path] -= 1
                if self._reads[path] <= 0 and self._under_way.pop(path, None) is not None:
                    self._bytes -= self._sizes[path]
                self._fill()

    def close(self) -> None:
        """Wait for requests under way: none may outlive the task."""
        with self._lock:
            self._waiting.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self) -> None:
        while self._waiting and (not self._under_way or self._bytes + self._sizes[self._waiting[0]] <= _AHEAD_BYTES):
            path = self._waiting.popleft()
            self._bytes += self._sizes[path]
            self._under_way[path] = self._pool.submit(self._stores.read_small, path, SMALL_FILE_BYTES)


_current: contextvars.ContextVar[ReadAhead | None] = contextvars.ContextVar("read_ahead", default=None)


def read_ahead() -> ReadAhead | None:
    """Return what the task of this context reads ahead."""
    return _current.get()


@contextlib.contextmanager
def reading_ahead(io: FileIO, task: RewriteTask) -> Iterator[None]:
    """Read the small files of a task ahead while the block opens them: its deletes first, then its inputs."""
    sizes, reads = _small_files(task)
    if not sizes:
        yield
        return
    ahead = ReadAhead(stores_of(io), sizes, reads)
    token = _current.set(ahead)
    try:
        ahead.start()
        yield
    finally:
        _current.reset(token)
        ahead.close()


def _small_files(task: RewriteTask) -> tuple[dict[str, int], Counter[str]]:
    """Return the small remote files of a task with their sizes, and how often each will be opened."""
    sizes: dict[str, int] = {}
    reads: Counter[str] = Counter()
    used = {number for input_slice in task.inputs for number in input_slice.deletes}
    files = [(task.deletes[number].path, task.deletes[number].size_bytes) for number in sorted(used)]
    files += [(input_slice.path, input_slice.size_bytes) for input_slice in task.inputs]
    for path, size_bytes in files:
        if 0 < size_bytes <= SMALL_FILE_BYTES and not split_location(path).is_local:
            sizes[path] = size_bytes
            reads[path] += 1
    for input_slice in task.inputs:
        for number in input_slice.deletes:
            if task.deletes[number].kind is DeleteKind.EQUALITY:
                # The keys are read first, and the rows later.
                reads[input_slice.path] = 2
    return sizes, reads

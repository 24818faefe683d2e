"""Reads, writes, lists, moves and deletes files by their exact path, on every kind of storage.

`Stores` chooses the store of a path, and adds retries and threads. `protocol.Store` is the protocol of a store, with
one module for each kind: local disks, S3, file systems of pyarrow and fsspec. pyiceberg's own FileIO cannot list, and
cuts a path at `#` and `?`, so that it would delete another object.
"""

from __future__ import annotations

import functools
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql import events
from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.exclusive_create import refuse_create
from iceberg_compact_sql.storage.io_properties import io_properties
from iceberg_compact_sql.storage.kept_metadata import is_immutable, kept_metadata
from iceberg_compact_sql.storage.locations import HDFS_SCHEMES, split_location
from iceberg_compact_sql.storage.protocol import ByteSink, Store, StoredFile, UnansweredError
from iceberg_compact_sql.storage.request_limit import request_limit
from iceberg_compact_sql.storage.request_timeouts import timeouts_of
from iceberg_compact_sql.storage.silent_stores import silent_stores

T = TypeVar("T")
R = TypeVar("R")
_GIVE_UP_AFTER = 3
# An operation is tried this often, and not longer than the setting `retry_time`.
_ATTEMPTS = 4
_FIRST_WAIT_SECONDS = 0.1


def is_transient(error: BaseException) -> bool:
    """Whether an operation may succeed later: false for missing files and missing permissions."""
    if isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)):
        return False
    # Arrow has no exception class for denied access on S3.
    return isinstance(error, OSError) and "ACCESS_DENIED" not in str(error)


class Stores:
    """The stores behind one table's FileIO, opened when first needed.

    An operation that fails for a moment is tried again, with longer and longer waits. After a store has failed that
    way, further operations on it are tried once until one succeeds: the error must not wait for each of them.
    """

    def __init__(self, io: FileIO, *, workers: int | None = None) -> None:
        self._io = io
        self._open: dict[tuple[str, str], Store] = {}
        self._workers = workers
        self._identity = tuple(sorted(io_properties(io.properties).items()))
        self._limits = timeouts_of(io.properties)
        self._down: set[int] = set()

    @property
    def workers(self) -> int:
        """Threads for operations on many files."""
        return self._workers or request_limit().requests

    def renew(self, io: FileIO) -> None:
        """Continue with the FileIO of a freshly loaded table."""
        self._io = io
        self._identity = tuple(sorted(io_properties(io.properties).items()))
        self._limits = timeouts_of(io.properties)
        self._open.clear()

    def of(self, path: str) -> Store:
        """Return the store that holds a path."""
        location = split_location(path)
        key = (location.scheme, location.authority)
        if key not in self._open:
            # Imported late for the start-up time: file systems of pyarrow and fsspec are slow to import.
            from iceberg_compact_sql.storage.open_store import open_store

            self._open[key] = open_store(self._io, location)
        return self._open[key]

    def require_addressable(self, paths: Iterable[str]) -> None:
        """Raise UnsupportedError for the first path that its store cannot address exactly; makes no request."""
        for path in paths:
            self.of(path).require_addressable(path)

    def read(self, path: str) -> bytes:
        """Return the whole content; metadata that never changes is read once in a run."""
        kept = kept_metadata() if is_immutable(path) and not split_location(path).is_local else None
        content = kept.get(path) if kept is not None else None
        if content is None:
            content = self._retried(path, self.of(path).read, path)
            if kept is not None:
                kept.keep(path, content)
        return content

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        return self._retried(path, self.of(path).read_small, path, max_bytes)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._retried(path, self.of(path).open_input, path)

    def open_output(self, path: str) -> ByteSink:
        # Opening an object of S3 for writing sends no request: it does not show that the store answers.
        return self._retried(path, self.of(path).open_output, path, answers=False)

    def write(self, path: str, content: bytes) -> None:
        self._retried(path, self.of(path).write, path, content)
        kept = kept_metadata() if is_immutable(path) and not split_location(path).is_local else None
        if kept is not None:
            kept.keep(path, content)

    def create(self, path: str, content: bytes) -> bool:
        """Create a file if its name is free. Never retried here: a second attempt would find the file of the first."""
        return self.of(path).create(path, content)

    def require_create(self, path: str) -> None:
        """Raise UnsupportedError unless `create` is atomic at this path; makes no request."""
        location = split_location(path)
        if not (location.is_local or location.is_s3 or location.scheme in HDFS_SCHEMES):
            # Decided by the scheme, without opening the file system.
            raise refuse_create(path)
        self.of(path).require_create(path)

    def stat(self, path: str) -> StoredFile | None:
        return self._retried(path, self.of(path).stat, path)

    def is_gone(self, path: str) -> bool:
        """Whether the store reports that a file does not exist; false for a path that cannot be addressed."""
        try:
            return self.stat(path) is None
        except UnsupportedError:
            return False

    def move(self, source: str, target: str) -> None:
        """Move a file. Not repeated after UnansweredError: the first move may still delete a file that was restored."""
        self._retried(source, self.of(source).move, source, target, again_unanswered=False)

    def walk(self, root: str, enter: Callable[[str], bool] = lambda relative: True) -> Iterator[StoredFile]:
        self._require_answering(root)
        return self.of(root).walk(root, enter)

    def level(self, folder: str) -> list[StoredFile]:
        """Return the files directly in a folder."""
        self._require_answering(folder)
        return self.of(folder).level(folder)[0]

    def read_all(self, paths: Sequence[str]) -> Iterator[bytes | Exception]:
        """Yield the contents, or the error of a file, in order; only some of them are in memory at once."""

        def read(path: str) -> bytes | Exception:
            try:
                return self.read(path)
            except Exception as error:
                return error

        # Reading a local file is faster than passing it to a thread.
        remote = any(split_location(path).scheme != "file" for path in paths[:1])
        return self.each(read, paths) if remote else map(read, paths)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Yield results in order, computed in threads some items ahead; raises the first error."""
        if len(items) < 2 or self.workers == 1:
            yield from map(work, items)
            return
        with events.ThreadPool(min(self.workers, len(items)), thread_name_prefix="store") as pool:
            waiting: deque[Future[R]] = deque()
            try:
                for item in items:
                    waiting.append(pool.submit(work, item))
                    if len(waiting) >= 2 * self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def delete(self, paths: Iterable[str], missing: set[str] | None = None) -> dict[str, str]:
        """Delete files in bulk and in parallel; a file that does not exist counts as deleted.

        Returns the reason for each path that could not be deleted; never raises for a single file. Paths that were
        gone already are added to `missing` where the store says so; a bulk request of S3 does not.
        """
        batches: dict[int, tuple[Store, list[str]]] = {}
        failures: dict[str, str] = {}
        for path in paths:
            try:
                store = self.of(path)
                store.require_addressable(path)
            except UnsupportedError as error:
                # Never delete a path that could address another object.
                failures[path] = str(error)
                continue
            batches.setdefault(id(store), (store, []))[1].append(path)
        for store, batch in batches.values():
            # Without a bulk request each file is one round trip: use all threads.
            size = 1000 if store.bulk else max(1, min(1000, len(batch) // (4 * self.workers)))
            chunks = [batch[i : i + size] for i in range(0, len(batch), size)]
            for failed in self.each(lambda chunk, store=store: self._delete_chunk(store, chunk, missing), chunks):  # type: ignore[misc]
                failures.update(failed)
        return failures

    def _delete_chunk(self, store: Store, paths: list[str], missing: set[str] | None) -> dict[str, str]:
        events.reach("reclaim.delete", paths=paths)
        began = time.monotonic()
        try:
            self._require_answering(paths[0])
            answered = store.delete_many(paths)
        except Exception as error:
            if self._fell_silent(paths[0], began, error):
                return dict.fromkeys(paths, f"{type(error).__name__}: {error}")
            answered = None
        if answered is not None:
            return answered
        failures: dict[str, str] = {}
        in_a_row = 0
        for path in paths:
            if in_a_row == _GIVE_UP_AFTER:
                # The store is down. Each further attempt would wait as long; the next run deletes these files.
                failures[path] = "not tried: the store kept failing"
                continue
            try:
                self._retried(path, store.delete, path)
            except FileNotFoundError:
                if missing is not None:
                    missing.add(path)
            except Exception as error:
                failures[path] = f"{type(error).__name__}: {error}"
                in_a_row += is_transient(error)
                continue
            in_a_row = 0
        return failures

    def _key(self, path: str) -> tuple[object, ...]:
        """Return what tells a store apart from all others: its name, and how it is reached."""
        location = split_location(path)
        return location.scheme, location.authority, self._identity

    def _require_answering(self, path: str) -> None:
        if not split_location(path).is_local:
            silent_stores().require_answering(self._key(path))

    def _fell_silent(self, path: str, began: float, error: BaseException) -> bool:
        """Record a failed operation; return whether its store does not answer."""
        return silent_stores().failed(self._key(path), began, self._limits.answer_seconds, error)

    def _retried(
        self, path: str, work: Callable[..., R], *arguments: Any, answers: bool = True, again_unanswered: bool = True
    ) -> R:
        """Return the result of an operation of a path's store that may be repeated; retry after transient errors.

        `again_unanswered` is whether it may be repeated while its first attempt may still be carried out.
        """
        store = id(getattr(work, "__self__", work))
        began = time.monotonic()
        wait_s = _FIRST_WAIT_SECONDS
        for attempt in range(1, _ATTEMPTS + 1):
            attempt_began = time.monotonic()
            try:
                self._require_answering(path)
                result = work(*arguments)
            except OSError as error:
                if not is_transient(error):
                    silent_stores().answered(self._key(path))
                    raise
                if self._fell_silent(path, attempt_began, error):
                    raise
                if isinstance(error, UnansweredError) and not again_unanswered:
                    raise
                spent = time.monotonic() - began
                if store in self._down or attempt == _ATTEMPTS or spent + wait_s > self._limits.retry_seconds:
                    self._down.add(store)
                    raise
                # Many threads fail at the same moment: without the random share they would come back together.
                time.sleep(wait_s * (0.5 + random.random()))
                wait_s *= 3
                continue
            if answers:
                silent_stores().answered(self._key(path))
            self._down.discard(store)
            return result
        raise AssertionError("the last attempt returns or raises")


@functools.lru_cache(maxsize=16)
def stores_of(io: FileIO) -> Stores:
    """Return the stores of a FileIO, the same object for each call, so that connections are reused."""
    return Stores(io)

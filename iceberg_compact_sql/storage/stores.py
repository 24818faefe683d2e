"""Files by their exact path on whatever a table lives on: reading, listing, deleting in bulk, moving.

pyiceberg's FileIO cannot list, and takes `#` and `?` in a name for the end of it, so that it would delete another
object; here the file systems below it are asked with the raw path.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pyiceberg.io import FileIO
from tenacity import retry, retry_if_exception, stop_after_attempt, wait_exponential

from iceberg_compact_sql import events
from iceberg_compact_sql.storage.locations import Location, split_location

T = TypeVar("T")
R = TypeVar("R")
DEFAULT_WORKERS = 16
_GIVE_UP_AFTER = 3


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the store lists it; `modified_ms` is None where the store does not say."""

    path: str
    size_bytes: int
    modified_ms: int | None


class Store(Protocol):
    """One file system or bucket; paths are full locations, in the spelling that the caller uses."""

    @property
    def bulk(self) -> bool:
        """Whether `delete_many` is one request."""
        ...

    def read(self, path: str) -> bytes: ...

    def write(self, path: str, content: bytes) -> None: ...

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        """Every file below `root` whose relative path `enter` accepts; symbolic links are left out."""
        ...

    def level(self, root: str) -> tuple[list[StoredFile], list[str]]:
        """The files right below a root, and the names of the folders there; symbolic links are left out."""
        ...

    def stat(self, path: str) -> StoredFile | None: ...

    def delete(self, path: str) -> None:
        """Delete a file; FileNotFoundError if it is gone already."""
        ...

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        """Delete in one request where the store can, giving reasons by path that failed; None where it cannot."""
        ...

    def move(self, source: str, target: str) -> None: ...


def passing(error: BaseException) -> bool:
    """Whether another try may help: not for what is missing or forbidden."""
    if isinstance(error, (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)):
        return False
    # Arrow has no class of its own for what S3 forbids.
    return isinstance(error, OSError) and "ACCESS_DENIED" not in str(error)


_retrying = retry(
    retry=retry_if_exception(passing), stop=stop_after_attempt(4), wait=wait_exponential(0.1, max=2), reraise=True
)


def _patiently(work: Callable[..., R], *arguments: Any) -> R:
    """The call's result, tried again where that may help; the first try costs nothing extra."""
    try:
        return work(*arguments)
    except OSError as error:
        if not passing(error):
            raise
    return _retrying(work)(*arguments)


class Stores:
    """The stores behind one table's FileIO, opened when first needed."""

    def __init__(self, io: FileIO, *, workers: int | None = None) -> None:
        self._io = io
        self._open: dict[tuple[str, str], Store] = {}
        self.workers = workers or DEFAULT_WORKERS

    def renew(self, io: FileIO) -> None:
        """Go on with the FileIO of a freshly loaded table."""
        self._io = io
        self._open.clear()

    def of(self, path: str) -> Store:
        location = split_location(path)
        key = (location.scheme, location.authority)
        if key not in self._open:
            self._open[key] = _open_store(self._io, location)
        return self._open[key]

    def read(self, path: str) -> bytes:
        return _patiently(self.of(path).read, path)

    def write(self, path: str, content: bytes) -> None:
        _patiently(self.of(path).write, path, content)

    def stat(self, path: str) -> StoredFile | None:
        return _patiently(self.of(path).stat, path)

    def move(self, source: str, target: str) -> None:
        _patiently(self.of(source).move, source, target)

    def walk(self, root: str, enter: Callable[[str], bool] = lambda relative: True) -> Iterator[StoredFile]:
        return self.of(root).walk(root, enter)

    def read_all(self, paths: Sequence[str]) -> Iterator[bytes | Exception]:
        """The contents in order, or what went wrong with one; only a window of them is held in memory."""

        def read(path: str) -> bytes | Exception:
            try:
                return self.read(path)
            except Exception as error:
                return error

        # Opening a local file costs less than handing it to a thread.
        remote = any(split_location(path).scheme != "file" for path in paths[:1])
        return self.each(read, paths) if remote else map(read, paths)

    def each(self, work: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
        """Results in order, worked out in threads a window ahead; the first error goes up."""
        if len(items) < 2 or self.workers == 1:
            yield from map(work, items)
            return
        with ThreadPoolExecutor(min(self.workers, len(items)), thread_name_prefix="reclaim") as pool:
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

    def delete(self, paths: Iterable[str]) -> dict[str, str]:
        """Delete files in bulk and in parallel; a file that is gone already counts as deleted.

        Returns the reason for each path that could not be deleted; never raises for a single file.
        """
        batches: dict[int, tuple[Store, list[str]]] = {}
        for path in paths:
            store = self.of(path)
            batches.setdefault(id(store), (store, []))[1].append(path)
        failures: dict[str, str] = {}
        for store, batch in batches.values():
            # Without a bulk request each file is a round trip: spread them over the threads.
            size = 1000 if store.bulk else max(1, min(1000, len(batch) // (4 * self.workers)))
            chunks = [batch[i : i + size] for i in range(0, len(batch), size)]
            for failed in self.each(lambda chunk, store=store: _delete_chunk(store, chunk), chunks):  # type: ignore[misc]
                failures.update(failed)
        return failures


def _delete_chunk(store: Store, paths: list[str]) -> dict[str, str]:
    events.reach("reclaim.delete", paths=paths)
    try:
        answered = store.delete_many(paths)
    except Exception:
        answered = None
    if answered is not None:
        return answered
    failures: dict[str, str] = {}
    in_a_row = 0
    for path in paths:
        if in_a_row == _GIVE_UP_AFTER:
            # A store that is down: each further try would wait as long, and the next run does it.
            failures[path] = "not tried: the store kept failing"
            continue
        try:
            _patiently(store.delete, path)
        except FileNotFoundError:
            pass
        except Exception as error:
            failures[path] = f"{type(error).__name__}: {error}"
            in_a_row += passing(error)
            continue
        in_a_row = 0
    return failures


def _open_store(io: FileIO, location: Location) -> Store:
    from iceberg_compact_sql.storage.local import LocalStore

    if location.scheme == "file" and os.name == "posix":
        return LocalStore()
    from iceberg_compact_sql.storage.remote import open_remote_store

    return open_remote_store(io, location)

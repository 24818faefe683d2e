"""A time limit for the clients of stores that have none of their own: pyarrow's GCS and Azure, fsspec, HDFS.

An operation runs in a thread. If it takes too long, the caller gets an error, and the thread is left behind: these
clients cannot be interrupted. Content passes in pieces, each with the whole time, so that a slow store may be slow with
a large file as long as it answers. A step that was sent may be carried out later, further steps are not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa

from iceberg_compact_sql.storage.exclusive_create import unknown_create
from iceberg_compact_sql.storage.kinds.arrow import ArrowStore
from iceberg_compact_sql.storage.kinds.random_access import RandomAccess
from iceberg_compact_sql.storage.kinds.time_limit import within
from iceberg_compact_sql.storage.protocol import ByteSink, Store, StoredFile, UnansweredError, discard, is_proved
from iceberg_compact_sql.storage.request_timeouts import RequestTimeouts

T = TypeVar("T")
_PIECE_BYTES = 8 * 1024**2
# Entries of a listing that pass from the thread that lists.
_LISTED_AT_ONCE = 1000


class BoundedStore:
    """Another store, with a time limit for each operation.

    Operations that are late raise UnansweredError; a late `create` raises CommitStateUnknownException.
    """

    def __init__(self, inner: Store, limits: RequestTimeouts) -> None:
        self._inner = inner
        self._seconds = limits.patient_seconds
        self._commit_seconds = limits.commit_seconds

    @property
    def bulk(self) -> bool:
        return self._inner.bulk

    def require_addressable(self, path: str) -> None:
        self._inner.require_addressable(path)

    def read(self, path: str) -> bytes:
        with self.open_input(path) as file:
            return bytes(file.read())

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        return self._within(path, lambda: self._inner.read_small(path, max_bytes))

    def open_input(self, path: str) -> pa.NativeFile:
        file, size_bytes = self._within(path, lambda: _open_sized(self._inner, path))
        return pa.PythonFile(_BoundedReader(file, size_bytes, path, self._seconds), mode="r")

    def open_output(self, path: str) -> ByteSink:
        return BoundedSink(self._within(path, lambda: self._inner.open_output(path)), path, self._seconds)

    def write(self, path: str, content: bytes) -> None:
        self._within(path, lambda: self._inner.write(path, content))

    def create(self, path: str, content: bytes) -> bool:
        try:
            return within(self._commit_seconds, path, lambda: self._inner.create(path, content))
        except UnansweredError as error:
            # The file may appear later. It may be the commit of a table, so nothing that it names may be deleted.
            raise unknown_create(path, error) from None

    def require_create(self, path: str) -> None:
        self._inner.require_create(path)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        files = self._within(root, lambda: self._inner.walk(root, enter))
        while batch := self._within(root, lambda: _some(files)):
            yield from batch

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        return self._within(root, lambda: self._inner.level(root, follow_links=follow_links))

    def has_folder(self, path: str) -> bool:
        return self._within(path, lambda: self._inner.has_folder(path))

    def make_folder(self, path: str) -> None:
        self._within(path, lambda: self._inner.make_folder(path))

    def stat(self, path: str) -> StoredFile | None:
        return self._within(path, lambda: self._inner.stat(path))

    def delete(self, path: str) -> None:
        self._within(path, lambda: self._inner.delete(path))

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return self._within(paths[0], lambda: self._inner.delete_many(paths)) if paths else {}

    def move(self, source: str, target: str) -> None:
        self._within(source, lambda: self._inner.move(source, target))

    def _within(self, path: str, work: Callable[[], T]) -> T:
        return within(self._seconds, path, work)


def _open_sized(store: Store, path: str) -> tuple[pa.NativeFile, int]:
    if isinstance(store, ArrowStore):
        return store.open_sized(path)
    file = store.open_input(path)
    return file, file.size()


def _some(files: Iterator[StoredFile]) -> list[StoredFile]:
    return [file for file, _ in zip(files, range(_LISTED_AT_ONCE), strict=False)]


class BoundedSink:
    """A file that is being written, with a time limit for each piece."""

    def __init__(self, inner: ByteSink, path: str, seconds: float) -> None:
        self._inner, self._path, self._seconds = inner, path, seconds
        self._size_bytes = 0
        self.closed = False

    @property
    def proved(self) -> bool:
        return is_proved(self._inner)

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        for start in range(0, len(view), _PIECE_BYTES):
            piece = view[start : start + _PIECE_BYTES]
            within(self._seconds, self._path, lambda piece=piece: self._inner.write(piece))  # type: ignore[misc]
        self._size_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size_bytes

    def flush(self) -> None:
        """Do nothing: a file exists when it is closed."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            within(self._seconds, self._path, self._inner.close)

    def discard(self) -> None:
        """End a file that will not be used."""
        if not self.closed:
            self.closed = True
            within(self._seconds, self._path, lambda: discard(self._inner))

    def __enter__(self) -> BoundedSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class _BoundedReader(RandomAccess):
    """Random access to an open file, with a time limit for each piece."""

    def __init__(self, file: pa.NativeFile, size_bytes: int, path: str, seconds: float) -> None:
        super().__init__()
        self._file, self._path, self._seconds = file, path, seconds
        self._size = size_bytes

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._position, self._size)
        end = self._size if size is None or size < 0 else min(start + size, self._size)
        pieces = []
        while start < end:
            length = min(_PIECE_BYTES, end - start)
            piece = within(self._seconds, self._path, lambda at=start, n=length: self._file.read_at(n, at))  # type: ignore[misc]
            if not piece:
                raise OSError(f"{self._path} ends at byte {start}, before its size of {self._size}")
            pieces.append(bytes(piece))
            start += len(piece)
        self._position = end
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()

"""The protocol of a store of files; there is one implementation for each kind of store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as the store lists it; `modified_ms` is None where the store does not say."""

    path: str
    size_bytes: int
    modified_ms: int | None


class UnansweredError(TimeoutError):
    """A store did not answer in time: what was asked of it may still be done."""


class ByteSink(Protocol):
    """A file that is being written; it exists when `close` has returned."""

    def write(self, data: Any, /) -> Any: ...

    def close(self) -> None: ...


def is_proved(sink: ByteSink) -> bool:
    """Whether the store's own checksum proves that a closed file was stored as it was written."""
    return bool(getattr(sink, "proved", False))


def discard(sink: ByteSink) -> None:
    """End a file that will not be used; on stores that cannot do that it is closed, and exists."""
    getattr(sink, "discard", sink.close)()


class Store(Protocol):
    """One file system or bucket.

    Paths are full locations in the caller's spelling. Each names exactly one file: nothing in it is decoded,
    normalized or cut. A store raises UnsupportedError for a path that it cannot address exactly, before any change.
    """

    @property
    def bulk(self) -> bool:
        """Whether `delete_many` is one request."""
        ...

    def require_addressable(self, path: str) -> None:
        """Raise UnsupportedError if this store cannot address exactly this path; makes no request."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content; FileNotFoundError if there is no such file."""
        ...

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        """Return the whole content of a file of at most `max_bytes`, in one request.

        None for a larger file, and where reading whole files gains nothing: then open the file.
        """
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Open a file for random access."""
        ...

    def open_output(self, path: str) -> ByteSink:
        """Open a new file for writing; creates its folders on stores that have folders."""
        ...

    def write(self, path: str, content: bytes) -> None:
        """Write or replace a whole file; readers see the old or the new content."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Create a file with its whole content at once; False, without any change, if the name is taken.

        Raises CommitStateUnknownException if the store does not say whether the file was created.
        """
        ...

    def require_create(self, path: str) -> None:
        """Raise UnsupportedError unless `create` is atomic here: otherwise two writers could both succeed."""
        ...

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        """Yield every file below `root` whose relative path `enter` accepts; symbolic links are left out."""
        ...

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        """Return the files directly in a folder, and the names of its subfolders.

        Symbolic links are left out unless `follow_links`: files must not be deleted through a link.

        Raises FileNotFoundError for a missing folder on stores with folders; on others such a folder is empty.
        """
        ...

    def has_folder(self, path: str) -> bool: ...

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents if they do not exist."""
        ...

    def stat(self, path: str) -> StoredFile | None:
        """Return the size and time of a file; None if there is no such file."""
        ...

    def delete(self, path: str) -> None:
        """Delete a file; FileNotFoundError if it does not exist and the store reports that."""
        ...

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        """Delete in one request; return the reason for each path that failed. None if the store has no bulk delete."""
        ...

    def move(self, source: str, target: str) -> None:
        """Move a file; an interrupted move leaves one or two files, never none."""
        ...

"""Stores for a custom FileIO class: it reads and writes data; only local files can be listed or moved."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

import pyarrow as pa
from pyiceberg.io import FileIO

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.exclusive_create import refuse_create
from iceberg_compact_sql.storage.local import LocalStore
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.protocol import ByteSink, StoredFile


class FileIOStore:
    """Files of a custom FileIO class, which interprets the paths itself."""

    bulk = False

    def __init__(self, io: FileIO) -> None:
        self._io = io

    def require_addressable(self, path: str) -> None:
        """Accept every path: the custom class interprets it."""

    def read(self, path: str) -> bytes:
        with self._io.new_input(path).open() as stream:
            return bytes(stream.read())

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        """Return None: how the custom class reads is its own matter."""
        return None

    def open_input(self, path: str) -> pa.NativeFile:
        file = self._io.new_input(path).open(seekable=True)
        return file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")

    def open_output(self, path: str) -> ByteSink:
        return self._io.new_output(path).create(overwrite=False)

    def write(self, path: str, content: bytes) -> None:
        with self._io.new_output(path).create(overwrite=True) as stream:
            stream.write(content)

    def create(self, path: str, content: bytes) -> bool:
        raise refuse_create(path)

    def require_create(self, path: str) -> None:
        raise refuse_create(path)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        self._refuse(root, "list")

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        self._refuse(root, "list")

    def has_folder(self, path: str) -> bool:
        self._refuse(path, "list")

    def make_folder(self, path: str) -> None:
        self._refuse(path, "make folders")

    def stat(self, path: str) -> StoredFile | None:
        file = self._io.new_input(path)
        return StoredFile(path, len(file), None) if file.exists() else None

    def delete(self, path: str) -> None:
        # Safe: the caller decided that this file may be deleted.
        self._io.delete(path)

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        self._refuse(source, "move files")

    def _refuse(self, path: str, operation: str) -> NoReturn:
        location = split_location(path)
        raise UnsupportedError(
            f"files on {location.scheme}://{location.authority} are reached through {type(self._io).__name__},"
            f" which cannot {operation}",
            hint="Configure the catalog with pyiceberg's PyArrowFileIO or FsspecFileIO (py-io-impl).",
        )


class LocalFileIOStore(LocalStore):
    """Local files of a custom FileIO class: it reads and writes their content, which it may encrypt."""

    def __init__(self, io: FileIO) -> None:
        self._content = FileIOStore(io)

    def read(self, path: str) -> bytes:
        return self._content.read(path)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._content.open_input(path)

    def open_output(self, path: str) -> ByteSink:
        return self._content.open_output(path)

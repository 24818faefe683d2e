"""The file systems of pyarrow: gs, abfs, hdfs, and S3 for keys that pyarrow addresses exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType

from iceberg_compact_sql.storage.exclusive_create import refuse_create
from iceberg_compact_sql.storage.kinds.time_limit import require_waiting
from iceberg_compact_sql.storage.listing import every_level, listed_in_threads, modified_ms
from iceberg_compact_sql.storage.locations import join, split_location
from iceberg_compact_sql.storage.object_keys import has_plain_components, require_plain_components
from iceberg_compact_sql.storage.protocol import ByteSink, StoredFile


class ArrowStore:
    """A pyarrow file system."""

    bulk = False

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def require_addressable(self, path: str) -> None:
        require_plain_components(path, library="pyarrow")

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(self._exact(path), compression=None) as stream:
            return bytes(stream.read())

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        file, size_bytes = self.open_sized(path)
        with file:
            return None if size_bytes > max_bytes else bytes(file.read_at(size_bytes, 0))

    def open_input(self, path: str) -> pa.NativeFile:
        return self._fs.open_input_file(self._exact(path))

    def open_sized(self, path: str) -> tuple[pa.NativeFile, int]:
        """Return an open file and its size, from a request that other threads do not wait for.

        `NativeFile.size` holds the interpreter's lock while Google's client sends its request.
        """
        info = self._fs.get_file_info(self._exact(path))
        if info.type != FileType.File:
            raise FileNotFoundError(f"{path} does not exist")
        return self.open_input(path), info.size

    def open_output(self, path: str) -> ByteSink:
        sink: ByteSink = self._fs.open_output_stream(self._exact(path), compression=None)
        return sink

    def write(self, path: str, content: bytes) -> None:
        with self._fs.open_output_stream(self._exact(path), compression=None) as stream:
            stream.write(content)

    def create(self, path: str, content: bytes) -> bool:
        raise refuse_create(path)

    def require_create(self, path: str) -> None:
        raise refuse_create(path)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        top = self._exact(base)

        def listed(folder: str, *, recursive: bool) -> list[Any]:
            selector = FileSelector(folder, recursive=recursive, allow_not_found=True)
            return list(self._fs.get_file_info(selector))

        # The folders directly below the root are listed in parallel: the requests of one flat listing are sequential.
        first = listed(top, recursive=False)
        folders = [i.path[len(top) + 1 :] for i in first if i.type == FileType.Directory]
        if not all(has_plain_components(folder) for folder in folders):
            # A folder without a name (`top//x`) or named `.` cannot be listed by itself; a flat listing has them all.
            first, folders = listed(top, recursive=True), []
        inside = [f"{top}/{folder}" for folder in folders if enter(folder)]
        for page in (first, *listed_in_threads(lambda folder: listed(folder, recursive=True), inside)):
            for info in page:
                relative = info.path[len(top) + 1 :]
                if info.type == FileType.File and relative and every_level(relative, enter):
                    yield StoredFile(f"{base}/{relative}", info.size, modified_ms(info.mtime))

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        infos = self._fs.get_file_info(FileSelector(self._exact(root.rstrip("/")), allow_not_found=True))
        files = [i for i in infos if i.type == FileType.File]
        stored = [StoredFile(join(root, i.base_name), i.size, modified_ms(i.mtime)) for i in files]
        return stored, [i.base_name for i in infos if i.type == FileType.Directory]

    def has_folder(self, path: str) -> bool:
        return bool(self._fs.get_file_info(self._exact(path.rstrip("/"))).type == FileType.Directory)

    def make_folder(self, path: str) -> None:
        self._fs.create_dir(self._exact(path.rstrip("/")), recursive=True)

    def stat(self, path: str) -> StoredFile | None:
        info = self._fs.get_file_info(self._exact(path))
        if info.type != FileType.File:
            return None
        return StoredFile(path, info.size, modified_ms(info.mtime))

    def delete(self, path: str) -> None:
        # Safe: the caller decided that this file may be deleted, and the key is exactly that of its path.
        self._fs.delete_file(self._exact(path))

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        # Copy first, then delete: an interrupted move leaves two files, never none.
        self._fs.copy_file(self._exact(source), self._exact(target))
        require_waiting(source)
        self._fs.delete_file(self._exact(source))

    def _exact(self, path: str) -> str:
        self.require_addressable(path)
        return split_location(path).object_path

"""Object stores and other file systems, through pyarrow or fsspec, whichever the table's FileIO uses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.locations import Location, join, split_location
from iceberg_compact_sql.storage.s3_bulk import BulkDeleter, bulk_deleter
from iceberg_compact_sql.storage.stores import Store, StoredFile

_LISTING_THREADS = 16


def open_remote_store(io: FileIO, location: Location) -> Store:
    """The store that holds a location, or a refusal that names what cannot be listed."""
    bulk = bulk_deleter(io, location)
    try:
        if isinstance(io, PyArrowFileIO):
            return ArrowStore(io.fs_by_scheme(location.scheme, location.authority), bulk)
        if isinstance(io, FsspecFileIO):
            return FsspecStore(io.get_fs(location.scheme, location.authority), bulk)
    except ValueError as error:
        # pyiceberg's word for a scheme that it does not know.
        raise UnsupportedError(
            f"{location.scheme}://{location.authority} is no store that files can be listed on: {error}",
            hint="Known are local disks, s3, gs, abfs, hdfs and their variants.",
        ) from None
    raise UnsupportedError(
        f"files on {location.scheme}://{location.authority} are reached through {type(io).__name__}, which cannot list",
        hint="Configure the catalog with pyiceberg's PyArrowFileIO or FsspecFileIO (py-io-impl).",
    )


def _object_path(text: str) -> str:
    location = split_location(text)
    return location.path if location.scheme in ("hdfs", "viewfs") else f"{location.authority}{location.path}"


class ArrowStore:
    """A pyarrow file system."""

    def __init__(self, filesystem: Any, bulk: BulkDeleter | None) -> None:
        self._fs = filesystem
        self._bulk = bulk
        self.bulk = bulk is not None

    def read(self, path: str) -> bytes:
        with self._fs.open_input_stream(_object_path(path)) as stream:
            return bytes(stream.read())

    def write(self, path: str, content: bytes) -> None:
        with self._fs.open_output_stream(_object_path(path)) as stream:
            stream.write(content)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        from pyarrow.fs import FileSelector, FileType

        base = root.rstrip("/")
        top = _object_path(base)

        def listed(folder: str, *, recursive: bool) -> list[Any]:
            selector = FileSelector(folder, recursive=recursive, allow_not_found=True)
            return list(self._fs.get_file_info(selector))

        # The folders right below the root are listed side by side: a flat listing is one request after another.
        first = listed(top, recursive=False)
        folders = [i.path for i in first if i.type == FileType.Directory and enter(i.path[len(top) + 1 :])]
        with ThreadPoolExecutor(_LISTING_THREADS, thread_name_prefix="list") as pool:
            pages = pool.map(lambda folder: listed(folder, recursive=True), folders)
            for page in (first, *pages):
                for info in page:
                    relative = info.path[len(top) + 1 :]
                    if info.type == FileType.File and relative and _every_level(relative, enter):
                        yield StoredFile(f"{base}/{relative}", info.size, _modified_ms(info.mtime))

    def level(self, root: str) -> tuple[list[StoredFile], list[str]]:
        from pyarrow.fs import FileSelector, FileType

        found = self._fs.get_file_info(FileSelector(_object_path(root.rstrip("/")), allow_not_found=True))
        files = [i for i in found if i.type == FileType.File]
        stored = [StoredFile(join(root, i.base_name), i.size, _modified_ms(i.mtime)) for i in files]
        return stored, [i.base_name for i in found if i.type == FileType.Directory]

    def stat(self, path: str) -> StoredFile | None:
        from pyarrow.fs import FileType

        info = self._fs.get_file_info(_object_path(path))
        if info.type != FileType.File:
            return None
        return StoredFile(path, info.size, _modified_ms(info.mtime))

    def delete(self, path: str) -> None:
        self._fs.delete_file(_object_path(path))

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return self._bulk.delete(paths) if self._bulk else None

    def move(self, source: str, target: str) -> None:
        # Copied first, deleted after: an interrupted move leaves two files, never none.
        self._fs.copy_file(_object_path(source), _object_path(target))
        if not self._bulk or self._bulk.delete([source]):
            self._fs.delete_file(_object_path(source))


class FsspecStore:
    """An fsspec file system."""

    def __init__(self, filesystem: Any, bulk: BulkDeleter | None) -> None:
        self._fs = filesystem
        self._bulk = bulk
        self.bulk = bulk is not None

    def read(self, path: str) -> bytes:
        return bytes(self._fs.cat_file(_object_path(path)))

    def write(self, path: str, content: bytes) -> None:
        self._fs.pipe_file(_object_path(path), content)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        top = _object_path(base).lstrip("/")
        # A listing from the file system's cache could be hours old.
        self._fs.invalidate_cache()
        try:
            found = self._fs.find(_object_path(base), detail=True)
        except FileNotFoundError:
            return
        for name, info in found.items():
            relative = name.lstrip("/")[len(top) + 1 :]
            if info.get("type") == "file" and relative and _every_level(relative, enter):
                yield StoredFile(f"{base}/{relative}", int(info.get("size") or 0), _fsspec_modified_ms(info))

    def level(self, root: str) -> tuple[list[StoredFile], list[str]]:
        self._fs.invalidate_cache()
        files: list[StoredFile] = []
        folders: list[str] = []
        for info in self._fs.ls(_object_path(root.rstrip("/")), detail=True):
            name = info["name"].rstrip("/").rsplit("/", 1)[-1]
            if info["type"] == "directory":
                folders.append(name)
            elif info["type"] == "file":
                files.append(StoredFile(join(root, name), int(info.get("size") or 0), _fsspec_modified_ms(info)))
        return files, folders

    def stat(self, path: str) -> StoredFile | None:
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(_object_path(path))
        except FileNotFoundError:
            return None
        return StoredFile(path, int(info.get("size") or 0), _fsspec_modified_ms(info))

    def delete(self, path: str) -> None:
        if not self._fs.exists(_object_path(path)):
            raise FileNotFoundError(path)
        self._fs.rm_file(_object_path(path))

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return self._bulk.delete(paths) if self._bulk else None

    def move(self, source: str, target: str) -> None:
        self._fs.cp_file(_object_path(source), _object_path(target))
        self._fs.rm_file(_object_path(source))


def _every_level(relative: str, enter: Callable[[str], bool]) -> bool:
    """A flat listing has no folders to stop at: each level of the path must be allowed in."""
    at = relative.find("/")
    while at >= 0:
        if not enter(relative[:at]):
            return False
        at = relative.find("/", at + 1)
    return enter(relative)


def _modified_ms(moment: dt.datetime | None) -> int | None:
    if moment is None:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=dt.timezone.utc)
    return int(aware.timestamp() * 1000)


def _fsspec_modified_ms(info: dict[str, Any]) -> int | None:
    for key in ("LastModified", "mtime", "last_modified", "updated", "modified"):
        value = info.get(key)
        if isinstance(value, dt.datetime):
            return _modified_ms(value)
        if isinstance(value, (int, float)):
            return int(value * 1000)
        if isinstance(value, str):
            return _modified_ms(dt.datetime.fromisoformat(value.replace("Z", "+00:00")))
    return None

"""The file systems of fsspec."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.storage.exclusive_create import refuse_create
from iceberg_compact_sql.storage.kinds.time_limit import require_waiting
from iceberg_compact_sql.storage.listing import every_level, modified_ms
from iceberg_compact_sql.storage.locations import join, split_location
from iceberg_compact_sql.storage.object_keys import require_plain_components
from iceberg_compact_sql.storage.protocol import ByteSink, StoredFile

# fsspec keeps empty components, but its HTTP clients resolve `.` and `..`.
_DOTS = frozenset({".", ".."})


class FsspecStore:
    """An fsspec file system."""

    bulk = False

    def __init__(self, filesystem: Any) -> None:
        self._fs = filesystem

    def require_addressable(self, path: str) -> None:
        require_plain_components(path, library="fsspec", refused=_DOTS)

    def read(self, path: str) -> bytes:
        return bytes(self._fs.cat_file(self._exact(path)))

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        # One request more than the size allows: it returns one byte too many for a larger file.
        content = bytes(self._fs.cat_file(self._exact(path), start=0, end=max_bytes + 1))
        return content if len(content) <= max_bytes else None

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(self._fs.open(self._exact(path), "rb"), mode="r")

    def open_output(self, path: str) -> ByteSink:
        sink: ByteSink = self._fs.open(self._exact(path), "wb")
        return sink

    def write(self, path: str, content: bytes) -> None:
        self._fs.pipe_file(self._exact(path), content)

    def create(self, path: str, content: bytes) -> bool:
        raise refuse_create(path)

    def require_create(self, path: str) -> None:
        raise refuse_create(path)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        exact = self._exact(base)
        top = exact.lstrip("/")
        # The file system may cache listings for hours.
        self._fs.invalidate_cache()
        try:
            infos = self._fs.find(exact, detail=True)
        except FileNotFoundError:
            return
        for name, info in infos.items():
            relative = name.lstrip("/")[len(top) + 1 :]
            if info.get("type") == "file" and relative and every_level(relative, enter):
                yield StoredFile(f"{base}/{relative}", int(info.get("size") or 0), _modified_ms(info))

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        self._fs.invalidate_cache()
        files: list[StoredFile] = []
        folders: list[str] = []
        for info in self._fs.ls(self._exact(root.rstrip("/")), detail=True):
            name = info["name"].rstrip("/").rsplit("/", 1)[-1]
            if info["type"] == "directory":
                folders.append(name)
            elif info["type"] == "file":
                files.append(StoredFile(join(root, name), int(info.get("size") or 0), _modified_ms(info)))
        return files, folders

    def has_folder(self, path: str) -> bool:
        self._fs.invalidate_cache()
        return bool(self._fs.isdir(self._exact(path.rstrip("/"))))

    def make_folder(self, path: str) -> None:
        self._fs.makedirs(self._exact(path.rstrip("/")), exist_ok=True)

    def stat(self, path: str) -> StoredFile | None:
        self._fs.invalidate_cache()
        try:
            info = self._fs.info(self._exact(path))
        except FileNotFoundError:
            return None
        if info.get("type") == "directory":
            return None
        return StoredFile(path, int(info.get("size") or 0), _modified_ms(info))

    def delete(self, path: str) -> None:
        exact = self._exact(path)
        if not self._fs.exists(exact):
            raise FileNotFoundError(path)
        # Safe: the caller decided that this file may be deleted, and the key is exactly that of its path.
        self._fs.rm_file(exact)

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        # Copy first, then delete: an interrupted move leaves two files, never none.
        self._fs.cp_file(self._exact(source), self._exact(target))
        require_waiting(source)
        self._fs.rm_file(self._exact(source))

    def _exact(self, path: str) -> str:
        self.require_addressable(path)
        return split_location(path).object_path


def _modified_ms(info: dict[str, Any]) -> int | None:
    for key in ("LastModified", "mtime", "last_modified", "updated", "modified"):
        value = info.get(key)
        if isinstance(value, dt.datetime):
            return modified_ms(value)
        if isinstance(value, (int, float)):
            return int(value * 1000)
        if isinstance(value, str):
            return modified_ms(dt.datetime.fromisoformat(value.replace("Z", "+00:00")))
    return None

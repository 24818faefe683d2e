"""Files of this machine, without following symbolic links."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from iceberg_compact_sql.storage.locations import join, split_location
from iceberg_compact_sql.storage.stores import StoredFile


class LocalStore:
    """The local file system."""

    bulk = False

    def read(self, path: str) -> bytes:
        return Path(local_path(path)).read_bytes()

    def write(self, path: str, content: bytes) -> None:
        target = Path(local_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".partial")
        partial.write_bytes(content)
        partial.replace(target)

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                scan = os.scandir(local_path(f"{base}/{folder}" if folder else base))
            except FileNotFoundError:
                # Removed since its parent was read: nothing in it is left to list.
                continue
            with scan:
                for entry in scan:
                    relative = f"{folder}/{entry.name}" if folder else entry.name
                    if not enter(relative):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(relative)
                    elif entry.is_file(follow_symlinks=False):
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except FileNotFoundError:
                            continue
                        yield StoredFile(f"{base}/{relative}", status.st_size, status.st_mtime_ns // 1_000_000)

    def level(self, root: str) -> tuple[list[StoredFile], list[str]]:
        files: list[StoredFile] = []
        folders: list[str] = []
        with os.scandir(local_path(root)) as scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=False) and (found := self.stat(join(root, entry.name))):
                    files.append(found)
        return files, folders

    def stat(self, path: str) -> StoredFile | None:
        try:
            status = os.lstat(local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, path: str) -> None:
        exact = local_path(path)
        os.unlink(exact)  # noqa: PTH108 - a Path for each of a million files costs more than the deletes
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_checksum(exact))  # noqa: PTH108

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        place = Path(local_path(target))
        place.parent.mkdir(parents=True, exist_ok=True)
        Path(local_path(source)).rename(place)
        # Written now, as a copy on an object store is: what is brought back gets the grace of a new file.
        os.utime(place)
        with contextlib.suppress(FileNotFoundError):
            Path(_checksum(local_path(source))).rename(_checksum(local_path(target)))


def local_path(location: str) -> str:
    """The path that the operating system knows."""
    return split_location(location).path


def _checksum(path: str) -> str:
    """What Hadoop's local file system keeps beside each file, and moves and deletes with it."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def through_symlink(root: str, path: str) -> bool:
    """Whether any folder between a root and a file below it is a symbolic link."""
    top, inner = local_path(root).rstrip("/"), os.path.dirname(local_path(path))  # noqa: PTH120
    while len(inner) > len(top):
        if os.path.islink(inner):  # noqa: PTH114
            return True
        inner = os.path.dirname(inner)  # noqa: PTH120
    return False

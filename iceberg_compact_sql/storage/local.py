"""Files of this machine, without following symbolic links.

Hadoop's local file system keeps a checksum `.name.crc` beside each file `name`. Its readers verify a file that has a
checksum, and read a file without one unchecked. Rule: a checksum is never kept longer than its content. It is deleted
before the content is replaced (so that no crash leaves a new file with an old checksum), moved with its file, and
deleted with its file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.exclusive_create import create_locally
from iceberg_compact_sql.storage.locations import join, relative_to, split_location
from iceberg_compact_sql.storage.protocol import ByteSink, StoredFile

_FILES = pafs.LocalFileSystem()


class LocalStore:
    """The local file system."""

    bulk = False

    def require_addressable(self, path: str) -> None:
        """Refuse a relative path. The operating system resolves `//`, `.` and `..` in the same way for all programs."""
        full_local_path(path)

    def read(self, path: str) -> bytes:
        return Path(local_path(path)).read_bytes()

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        """Return None: a local file is mapped into memory page by page, without requests."""
        return None

    def open_input(self, path: str) -> pa.NativeFile:
        return _FILES.open_input_file(local_path(path))

    def open_output(self, path: str) -> ByteSink:
        exact = full_local_path(path)
        Path(exact).parent.mkdir(parents=True, exist_ok=True)
        remove_checksum(exact)
        sink: ByteSink = _FILES.open_output_stream(exact, compression=None)
        return sink

    def write(self, path: str, content: bytes) -> None:
        target = Path(full_local_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        # Each writer has its own temporary file: two writers must not share one.
        scratch = target.with_name(f"{target.name}.{secrets.token_hex(8)}.partial")
        try:
            scratch.write_bytes(content)
            remove_checksum(str(target))
            scratch.replace(target)
        finally:
            # Safe: only this call uses the random name. It no longer exists if the file was published.
            scratch.unlink(missing_ok=True)
        # Again: Java may have replaced file and checksum between the two steps above.
        remove_checksum(str(target))

    def create(self, path: str, content: bytes) -> bool:
        exact = full_local_path(path)
        if os.path.lexists(exact):
            return False
        # The name is free: a checksum there belongs to a file that was deleted.
        remove_checksum(exact)
        return create_locally(Path(exact), content)

    def require_create(self, path: str) -> None:
        """A hard link creates atomically; `create` itself refuses file systems without hard links."""

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                scan = os.scandir(local_path(f"{base}/{folder}" if folder else base))
            except FileNotFoundError:
                # Removed after its parent was listed: it has no files.
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

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        files: list[StoredFile] = []
        folders: list[str] = []
        with os.scandir(local_path(root)) as scan:
            for entry in scan:
                if entry.is_dir(follow_symlinks=follow_links):
                    folders.append(entry.name)
                elif entry.is_file(follow_symlinks=follow_links) and (file := self.stat(join(root, entry.name))):
                    files.append(file)
        return files, folders

    def has_folder(self, path: str) -> bool:
        return Path(local_path(path)).is_dir()

    def make_folder(self, path: str) -> None:
        Path(full_local_path(path)).mkdir(parents=True, exist_ok=True)

    def stat(self, path: str) -> StoredFile | None:
        try:
            status = os.lstat(local_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, path: str) -> None:
        exact = full_local_path(path)
        try:
            # Safe: the caller decided that this file may be deleted. Its checksum is useless without it.
            os.unlink(exact)  # noqa: PTH108 - a Path for each of a million files costs more than the deletes
        finally:
            if not os.path.lexists(exact):
                remove_checksum(exact)

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        target_path = Path(full_local_path(target))
        target_path.parent.mkdir(parents=True, exist_ok=True)
        remove_checksum(str(target_path))
        Path(full_local_path(source)).rename(target_path)
        # Set the time to now, as a copy on an object store does: a restored file is protected like a new one.
        os.utime(target_path, follow_symlinks=False)
        with contextlib.suppress(FileNotFoundError):
            Path(checksum_path(full_local_path(source))).rename(checksum_path(str(target_path)))


def local_path(location: str) -> str:
    """Return the path for the operating system."""
    return split_location(location).local_path


def full_local_path(location: str) -> str:
    """Return the path of a file that is written or deleted; raise for a relative one.

    Each process resolves a relative path in its own working folder, so that it would be another file.
    """
    parts = split_location(location)
    if not parts.path.startswith("/"):
        raise UnsupportedError(
            f"{location!r} is a relative path, and nothing is written or deleted there",
            hint="Use full locations in the table's metadata and settings: each process has its own working folder.",
        )
    return parts.local_path


def path_on_disk(location: str) -> Path | None:
    """Return the absolute path of a local location (`file:/x`, `file:///x`, `/x`, `x`); None for another scheme."""
    parts = split_location(location)
    return Path(parts.local_path) if parts.is_local else None


def checksum_path(path: str) -> str:
    """Return the path of the checksum that Hadoop's local file system keeps beside a file."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc"


def remove_checksum(path: str) -> None:
    """Remove the checksum of a file whose content goes or changes.

    Safe: a checksum holds no data, and Hadoop reads a file without one unchecked.
    """
    try:
        os.unlink(checksum_path(path))  # noqa: PTH108
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        # The file name is too long: `.name.crc` cannot exist.
        if error.errno != errno.ENAMETOOLONG:
            raise


def through_symlink(root: str, path: str) -> bool:
    """Whether any folder between a root and a file below it is a symbolic link; true for a file outside the root."""
    relative = relative_to(split_location(root), split_location(path))
    if relative is None:
        return True
    folder = local_path(root)
    for name in relative.split("/")[:-1]:
        folder = f"{folder}/{name}"
        if os.path.islink(folder):  # noqa: PTH114
            return True
    return False

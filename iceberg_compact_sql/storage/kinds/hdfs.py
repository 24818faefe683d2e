"""HDFS through `hdfs-native`, which needs neither Java nor libhdfs.

The settings of Hadoop come from the session (`spark.hadoop.*`) as properties `hdfs.conf.*`, and from the files in
HADOOP_CONF_DIR. A location without a host (`hdfs:/warehouse`) is on the file system that `fs.defaultFS` names.
"""

from __future__ import annotations

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from iceberg_compact_sql.errors import IcebergCompactError, MissingDependencyError
from iceberg_compact_sql.redaction import redact
from iceberg_compact_sql.storage.exclusive_create import unknown_create
from iceberg_compact_sql.storage.kinds.random_access import RandomAccess
from iceberg_compact_sql.storage.kinds.time_limit import require_waiting
from iceberg_compact_sql.storage.listing import every_level
from iceberg_compact_sql.storage.locations import join, split_location
from iceberg_compact_sql.storage.protocol import ByteSink, StoredFile

HADOOP_CONF_PREFIX = "hdfs.conf."
_DEFAULT_PORT = 8020
_KERBEROS = ("kerberos", "gssapi", "credential", "sasl", "ticket")


class HdfsStore:
    """One name node or name service."""

    bulk = False

    def __init__(self, scheme: str, authority: str, properties: Mapping[str, Any]) -> None:
        conf = {
            name.removeprefix(HADOOP_CONF_PREFIX): str(value)
            for name, value in properties.items()
            if name.startswith(HADOOP_CONF_PREFIX)
        }
        if not authority and (host := properties.get("hdfs.host")):
            port = properties.get("hdfs.port")
            authority = f"{host}:{port}" if port else str(host)
        self._client = _client(f"{scheme}://{authority}" if authority else None, tuple(sorted(conf.items())))

    def require_addressable(self, path: str) -> None:
        """Accept every path: HDFS resolves `//`, `.` and `..` in the same way for all programs."""

    def read(self, path: str) -> bytes:
        with _errors(path):
            return bytes(self._client.read(_path(path)).read())

    def read_small(self, path: str, max_bytes: int) -> bytes | None:
        with _errors(path):
            file = self._client.read(_path(path))
            return None if len(file) > max_bytes else bytes(file.read())

    def open_input(self, path: str) -> pa.NativeFile:
        with _errors(path):
            return pa.PythonFile(_Reader(self._client.read(_path(path)), path), mode="r")

    def open_output(self, path: str) -> ByteSink:
        return self._create(path, overwrite=False)

    def write(self, path: str, content: bytes) -> None:
        scratch = self._scratch(path, content)
        with _errors(path):
            require_waiting(path)
            # One step for readers: they see the old or the new content.
            self._client.rename(scratch, _path(path), overwrite=True)

    def create(self, path: str, content: bytes) -> bool:
        """Create a file as Java's hadoop catalog does: a rename that never replaces gives a complete file its name."""
        scratch = self._scratch(path, content)
        require_waiting(path)
        try:
            with _errors(path):
                self._client.rename(scratch, _path(path), overwrite=False)
        except FileExistsError:
            # A client that repeats a rename that landed gets this answer: the scratch file is gone then.
            landed = self._info(scratch) is None
            if not landed:
                # Safe: only this call uses the random name.
                self._client.delete(scratch, False)
            return landed
        except (FileNotFoundError, PermissionError):
            # The name node refused the rename.
            raise
        except (OSError, IcebergCompactError) as error:
            # The answer was lost: the name node may have renamed the file, or may do so later.
            raise unknown_create(path, error) from None
        return True

    def require_create(self, path: str) -> None:
        """A rename without overwriting is atomic on HDFS."""

    def walk(self, root: str, enter: Callable[[str], bool]) -> Iterator[StoredFile]:
        base = root.rstrip("/")
        top = _path(base).rstrip("/")
        with _errors(root):
            try:
                for info in self._client.list_status(top or "/", True):
                    relative = info.path[len(top) + 1 :]
                    if not info.isdir and relative and every_level(relative, enter):
                        yield StoredFile(f"{base}/{relative}", info.length, info.modification_time)
            except FileNotFoundError:
                return

    def level(self, root: str, *, follow_links: bool = False) -> tuple[list[StoredFile], list[str]]:
        with _errors(root):
            entries = list(self._client.list_status(_path(root.rstrip("/")) or "/", False))
        named = [(entry, entry.path.rstrip("/").rsplit("/", 1)[-1]) for entry in entries]
        files = [StoredFile(join(root, name), e.length, e.modification_time) for e, name in named if not e.isdir]
        return files, [name for entry, name in named if entry.isdir]

    def has_folder(self, path: str) -> bool:
        with _errors(path):
            info = self._info(_path(path.rstrip("/")) or "/")
        return info is not None and bool(info.isdir)

    def make_folder(self, path: str) -> None:
        with _errors(path):
            self._client.mkdirs(_path(path.rstrip("/")) or "/", create_parent=True)

    def stat(self, path: str) -> StoredFile | None:
        with _errors(path):
            info = self._info(_path(path))
        return None if info is None or info.isdir else StoredFile(path, info.length, info.modification_time)

    def delete(self, path: str) -> None:
        with _errors(path):
            # Safe: the caller decided that this file may be deleted. A folder is refused while it has files.
            if not self._client.delete(_path(path), False):
                raise FileNotFoundError(path)

    def delete_many(self, paths: Sequence[str]) -> dict[str, str] | None:
        return None

    def move(self, source: str, target: str) -> None:
        folder = _path(target).rpartition("/")[0]
        with _errors(source):
            if folder:
                self._client.mkdirs(folder, create_parent=True)
            require_waiting(source)
            # One step on HDFS: there is always exactly one of the two names.
            self._client.rename(_path(source), _path(target), overwrite=True)

    def _info(self, path: str) -> Any:
        try:
            return self._client.get_file_info(path)
        except FileNotFoundError:
            return None

    def _create(self, path: str, *, overwrite: bool) -> _Sink:
        from hdfs_native import WriteOptions

        options = WriteOptions(overwrite=overwrite, create_parent=True)
        with _errors(path):
            return _Sink(self, self._client.create(_path(path), options), path)

    def _scratch(self, path: str, content: bytes) -> str:
        """Write the content under a random name in the same folder; return the name."""
        folder, _, name = _path(path).rpartition("/")
        scratch = f"{folder}/.{name}.{secrets.token_hex(8)}.partial"
        sink = self._create(f"hdfs:{scratch}", overwrite=False)
        sink.write(content)
        sink.close()
        return scratch


class _Sink:
    """A file that is being written; it is complete when `close` has returned."""

    def __init__(self, store: HdfsStore, writer: Any, path: str) -> None:
        self._store, self._writer, self._path = store, writer, path
        self.closed = False

    def write(self, data: Any, /) -> int:
        with _errors(self._path):
            return int(self._writer.write(bytes(data)))

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _errors(self._path):
                self._writer.close()

    def discard(self) -> None:
        """End a file that will not be used, and remove it."""
        self.close()
        with contextlib.suppress(FileNotFoundError):
            # Safe: this sink created the file, and a name that was taken is refused.
            self._store.delete(self._path)


class _Reader(RandomAccess):
    """Random access to one file."""

    def __init__(self, file: Any, path: str) -> None:
        super().__init__()
        self._file, self._path = file, path
        self._size = len(file)

    def read(self, size: int | None = -1) -> bytes:
        start = min(self._position, self._size)
        length = self._size - start if size is None or size < 0 else min(size, self._size - start)
        if not length:
            return b""
        with _errors(self._path):
            data = bytes(self._file.read_range(start, length))
        self._position = start + len(data)
        return data


@functools.lru_cache(maxsize=16)
def _client(url: str | None, conf: tuple[tuple[str, str], ...]) -> Any:
    try:
        from hdfs_native import Client
    except ImportError:
        raise MissingDependencyError(
            "files on HDFS need the package hdfs-native, which is not installed",
            argument="catalog",
            hint="Run: pip install 'iceberg-compact-sql[hdfs]'",
        ) from None
    with _errors(url or "hdfs:/"):
        try:
            return Client(url, dict(conf))
        except RuntimeError as error:
            # A name without a port is taken for a name service. If there is none, it is a host with Hadoop's port.
            if url is None or "No NameNode hosts" not in str(error):
                raise
            return Client(f"{url}:{_DEFAULT_PORT}", dict(conf))


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """Shorten the errors of name nodes, which end with a Java stack trace, and explain those of the settings."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, PermissionError) as error:
        raise type(error)(f"{path}: {_first_line(error)}") from None
    except OSError as error:
        raise OSError(f"{path}: {_first_line(error)}") from None
    except RuntimeError as error:
        # hdfs-native raises this for settings and for failed authentication.
        text = _first_line(error)
        hint = "Set spark.hadoop.fs.defaultFS, or the name service in spark.hadoop.dfs.*; HADOOP_CONF_DIR is read too."
        if any(word in text.lower() for word in _KERBEROS):
            hint = "Get a Kerberos ticket with kinit on the driver and on every executor, and call again."
        raise IcebergCompactError(f"HDFS at {path} cannot be reached: {text}", argument="catalog", hint=hint) from None


def _first_line(error: BaseException) -> str:
    return redact(error).strip().partition("\n")[0]


def _path(location: str) -> str:
    return split_location(location).path

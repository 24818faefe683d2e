"""Small files of a hadoop catalog on local disks and object stores, and the one write that must not overwrite."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.errors import MissingDependencyError, UnsupportedError
from iceberg_compact_sql.redaction import redact

_LOCATION = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://([^/]*)(.*)", re.DOTALL)
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_S3_SCHEMES = frozenset({"s3", "s3a", "s3n"})


def local_path(location: str) -> Path | None:
    """The path of a local location (`file:/x`, `file:///x`, `/x`, `x`), or None for a store with another scheme."""
    if location.startswith("file:"):
        return Path("/" + location.removeprefix("file:").lstrip("/"))
    return None if _LOCATION.fullmatch(location) else Path(location).absolute()


class MetadataFiles:
    """Reads, lists and creates files by their full location; creating never overwrites."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)
        self._io = PyArrowFileIO(self._properties)
        self._s3_client: Any = None

    def read(self, location: str) -> bytes:
        """The bytes of a file; FileNotFoundError if there is none."""
        filesystem, path = self._place(location)
        with filesystem.open_input_stream(path, compression=None) as stream:
            return bytes(stream.read())

    def exists(self, location: str) -> bool:
        filesystem, path = self._place(location)
        return bool(filesystem.get_file_info(path).type == pafs.FileType.File)

    def folder_exists(self, location: str) -> bool:
        filesystem, path = self._place(location)
        return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """Names directly in a folder, each with whether it is a folder; empty if there is no such folder."""
        filesystem, path = self._place(folder)
        found = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted((info.base_name, info.type == pafs.FileType.Directory) for info in found)

    def make_folder(self, location: str) -> None:
        filesystem, path = self._place(location)
        filesystem.create_dir(path, recursive=True)

    def require_exclusive_create(self, location: str) -> None:
        """Raise unless `create` is atomic there: without that two commits could both believe that they won."""
        if local_path(location) is not None:
            return
        scheme = location.partition(":")[0]
        if scheme not in _S3_SCHEMES:
            message = f"a hadoop catalog on {scheme}:// cannot be committed to from Python without risk of lost commits"
            hint = "Dry runs and scores work. Use a REST, JDBC, Hive or Glue catalog to change tables there."
            raise UnsupportedError(message, argument="catalog", hint=hint)
        self._s3()

    def create(self, location: str, data: bytes) -> bool:
        """Create a file with its whole content at once; False if the name is taken, and nothing was changed."""
        self.require_exclusive_create(location)
        path = local_path(location)
        return self._create_on_s3(location, data) if path is None else _create_locally(path, data)

    def replace(self, location: str, data: bytes) -> None:
        """Write a file, over an older one if need be; readers see the old or the new content."""
        path = local_path(location)
        if path is not None:
            scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            scratch.write_bytes(data)
            scratch.replace(path)
            return
        filesystem, store_path = self._place(location)
        with filesystem.open_output_stream(store_path, compression=None) as stream:
            stream.write(data)

    def _place(self, location: str) -> tuple[Any, str]:
        path = local_path(location)
        if path is not None:
            return pafs.LocalFileSystem(), str(path)
        match = _LOCATION.fullmatch(location)
        assert match is not None
        scheme, authority, rest = match.groups()
        # Not by urlparse: it would cut a key at `#` or `?`.
        key = rest if scheme in ("hdfs", "viewfs") else f"{authority}{rest}"
        return self._io.fs_by_scheme(scheme, authority), key

    def _s3(self) -> Any:
        if self._s3_client is None:
            try:
                import boto3
            except ImportError as error:
                message = "commits to a hadoop catalog on S3 need boto3"
                hint = "Run: pip install 'iceberg-compact-sql[s3]'"
                raise MissingDependencyError(message, argument="catalog", hint=hint) from error
            get = self._properties.get
            self._s3_client = boto3.client(
                "s3",
                endpoint_url=get("s3.endpoint"),
                region_name=get("s3.region") or get("client.region"),
                aws_access_key_id=get("s3.access-key-id") or get("client.access-key-id"),
                aws_secret_access_key=get("s3.secret-access-key") or get("client.secret-access-key"),
                aws_session_token=get("s3.session-token") or get("client.session-token"),
            )
        return self._s3_client

    def _create_on_s3(self, location: str, data: bytes) -> bool:
        match = _LOCATION.fullmatch(location)
        assert match is not None
        bucket, key = match[2], match[3].lstrip("/")
        try:
            self._s3().put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except Exception as error:
            # A client's own retry of a request that landed is answered with "exists": look whose content is there.
            there = self._content_or_none(location)
            if there is not None:
                return there == data
            status = _http_status(error)
            if status in (409, 412):
                # A concurrent conditional write, or the key exists: nothing was written.
                return False
            if status is not None and 400 <= status < 500:
                raise
            message = f"S3 did not say whether {location} was created: {redact(error)}"
            raise CommitStateUnknownException(message) from None
        return True

    def _content_or_none(self, location: str) -> bytes | None:
        try:
            return self.read(location)
        except OSError:
            return None


def _create_locally(path: Path, data: bytes) -> bool:
    """A hard link is the one local operation that publishes a complete file and fails if the name is taken."""
    scratch = path.with_name(f"{secrets.token_hex(16)}.metadata.json")
    try:
        with scratch.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        try:
            os.link(scratch, path)
        except FileExistsError:
            # Over NFS the answer to a link that was made can get lost; the second link then shows in the count.
            return scratch.stat().st_nlink > 1
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            message = f"the file system of {path.parent} has no hard links: commits would not be safe"
            raise UnsupportedError(message, argument="catalog", hint="Use a REST or JDBC catalog there.") from error
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            scratch.unlink()


def _http_status(error: Exception) -> int | None:
    response = getattr(error, "response", None)
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(response, dict) else None
    return status if isinstance(status, int) else None

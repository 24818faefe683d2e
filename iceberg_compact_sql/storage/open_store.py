"""Opens the store of a location."""

from __future__ import annotations

import functools
import os

from pyiceberg.io import FileIO
from pyiceberg.io.fsspec import FsspecFileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.io_by_scheme import FileIOByScheme
from iceberg_compact_sql.storage.kinds.any_file_io import FileIOStore, LocalFileIOStore
from iceberg_compact_sql.storage.kinds.arrow import ArrowStore
from iceberg_compact_sql.storage.kinds.bounded import BoundedStore
from iceberg_compact_sql.storage.kinds.fsspec import FsspecStore
from iceberg_compact_sql.storage.kinds.hdfs import HdfsStore
from iceberg_compact_sql.storage.local import LocalStore
from iceberg_compact_sql.storage.locations import HDFS_SCHEMES, Location
from iceberg_compact_sql.storage.protocol import Store
from iceberg_compact_sql.storage.request_timeouts import timeouts_of
from iceberg_compact_sql.storage.s3.store import S3Store


def open_store(io: FileIO, location: Location) -> Store:
    """Return the store that holds a location; UnsupportedError for a scheme that no file system serves."""
    if location.is_local and os.name == "posix":
        return LocalStore() if isinstance(io, (PyArrowFileIO, FsspecFileIO)) else LocalFileIOStore(io)
    if isinstance(io, FileIOByScheme):
        io = io.chosen_for(location)
    if location.is_s3 and isinstance(io, (PyArrowFileIO, FsspecFileIO)):
        return S3Store(functools.partial(_open_file_system, io, location), io.properties, location.authority)
    is_pyiceberg_io = isinstance(io, (PyArrowFileIO, FsspecFileIO))
    if is_pyiceberg_io and location.scheme in HDFS_SCHEMES:
        return BoundedStore(HdfsStore(location.scheme, location.authority, io.properties), timeouts_of(io.properties))
    store = _open_file_system(io, location)
    if isinstance(store, FileIOStore):
        # A custom class has limits of its own.
        return store
    return BoundedStore(store, timeouts_of(io.properties))


def _open_file_system(io: FileIO, location: Location) -> Store:
    try:
        if isinstance(io, PyArrowFileIO):
            return ArrowStore(io.fs_by_scheme(location.scheme, location.authority))
        if isinstance(io, FsspecFileIO):
            return FsspecStore(io.get_fs(location.scheme, location.authority))
    except ValueError as error:
        # pyiceberg raises this for an unknown scheme.
        raise UnsupportedError(
            f"files on {location.scheme}://{location.authority} cannot be reached: {error}",
            hint="Supported: local disks, s3, gs, abfs, hdfs and their variants.",
        ) from None
    return FileIOStore(io)

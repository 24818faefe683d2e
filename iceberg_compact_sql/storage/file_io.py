"""A pyiceberg FileIO with exact paths, for metadata files and manifests.

pyiceberg parses a location as a URL and cuts it at `#` and `?`, and pyarrow's S3 file system refuses or folds some
keys. All files that pyiceberg itself reads, writes or deletes go through this class.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import pyarrow as pa
from pyiceberg.io import PY_IO_IMPL, FileIO, InputFile, InputStream, OutputFile, OutputStream, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from iceberg_compact_sql.storage.io_by_scheme import FileIOByScheme
from iceberg_compact_sql.storage.kept_metadata import is_immutable
from iceberg_compact_sql.storage.locations import split_location
from iceberg_compact_sql.storage.metadata_json import is_metadata_json
from iceberg_compact_sql.storage.stores import Stores, stores_of

_PYARROWS = "pyiceberg.io.pyarrow.PyArrowFileIO"


class ExactFileIO(FileIOByScheme):
    """A FileIO that uses every path unchanged."""

    def new_input(self, location: str) -> StoredFileIO:  # type: ignore[override]
        return StoredFileIO(location, stores_of(self))

    def new_output(self, location: str) -> StoredFileIO:  # type: ignore[override]
        return StoredFileIO(location, stores_of(self))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        path = location if isinstance(location, str) else location.location
        # Safe: pyiceberg deletes only files that it created, and old metadata files if a table property allows it.
        stores_of(self).of(path).delete(path)


class StoredFileIO(InputFile, OutputFile):
    """One file at an exact location, as pyiceberg's InputFile and OutputFile."""

    def __init__(self, location: str, stores: Stores) -> None:
        super().__init__(location)
        self._stores = stores

    def __len__(self) -> int:
        file = self._stores.stat(self.location)
        if file is None:
            raise FileNotFoundError(f"{self.location} does not exist")
        return file.size_bytes

    def exists(self) -> bool:
        return self._stores.stat(self.location) is not None

    def open(self, seekable: bool = True) -> InputStream:
        stream: InputStream = self._open()
        # As in pyarrow: pyiceberg itself decompresses only files named `.gz.metadata.json`.
        return pa.CompressedInputStream(stream, "gzip") if self._compressed and not seekable else stream

    def _open(self) -> pa.NativeFile:
        if self._is_remote_metadata:
            # One request, and at most once in a run.
            return pa.BufferReader(self._stores.read(self.location))
        return self._stores.open_input(self.location)

    @property
    def _is_remote_metadata(self) -> bool:
        remote = not split_location(self.location).is_local
        return remote and (is_immutable(self.location) or is_metadata_json(self.location))

    @property
    def _compressed(self) -> bool:
        return self.location.endswith(".gz")

    def create(self, overwrite: bool = False) -> OutputStream:
        if not overwrite and self.exists():
            raise FileExistsError(f"{self.location} exists already")
        if self._is_remote_metadata:
            return _WholeFile(self._stores, self.location)
        stream: OutputStream = self._stores.open_output(self.location)  # type: ignore[assignment]
        return stream

    def to_input_file(self) -> StoredFileIO:
        return self


class _WholeFile:
    """A metadata file that is written to its store in one request when it is closed."""

    def __init__(self, stores: Stores, location: str) -> None:
        self._stores = stores
        self._location = location
        self._content = bytearray()
        self.closed = False

    def write(self, data: bytes) -> int:
        self._content += data
        return len(data)

    def tell(self) -> int:
        return len(self._content)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._stores.write(self._location, bytes(self._content))

    def __enter__(self) -> _WholeFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        # Do not write an incomplete file.
        self.closed = True


def open_file_io(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the FileIO that these settings choose, with exact paths."""
    return with_exact_paths(load_file_io(dict(properties), location))


def with_exact_paths(io: FileIO) -> FileIO:
    """Return the same FileIO with exact paths; a custom class is returned unchanged."""
    return ExactFileIO(io.properties) if type(io) is PyArrowFileIO else io


def default_to_exact_paths(properties: dict[str, str]) -> None:
    """Make pyiceberg's catalogs open files by exact paths, unless the settings name a custom class."""
    if properties.get(PY_IO_IMPL, _PYARROWS) == _PYARROWS:
        properties[PY_IO_IMPL] = f"{ExactFileIO.__module__}.{ExactFileIO.__qualname__}"

"""Writing, sizing, listing and deleting files by the exact text of their path."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as pafs
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

# A scheme has two letters at least: `C:` is a drive.
_LOCATION = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]+):(?://(?P<netloc>[^/]*))?(?P<path>/.*)", re.DOTALL)
_WITHOUT_NETLOC = frozenset({"hdfs", "viewfs"})


class ByteSink(Protocol):
    """What an output file is written to."""

    def write(self, data: Any, /) -> Any: ...

    def close(self) -> None: ...


def locate(io: PyArrowFileIO, path: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem of a path, and its name there, taken as it is.

    pyiceberg parses locations as URLs and cuts them at `#` and `?`: a delete would then hit another object.
    """
    match = _LOCATION.fullmatch(path)
    if match is None:
        return io.fs_by_scheme("file", ""), str(Path(path).absolute())
    scheme, netloc, rest = match["scheme"].lower(), match["netloc"] or "", match["path"]
    if scheme == "file":
        return io.fs_by_scheme(scheme, ""), rest
    return io.fs_by_scheme(scheme, netloc), rest if scheme in _WITHOUT_NETLOC else f"{netloc}{rest}"


def open_sink(io: FileIO, path: str) -> ByteSink:
    """A stream to a new file; folders appear where the storage has any."""
    if isinstance(io, PyArrowFileIO):
        filesystem, name = locate(io, path)
        sink: ByteSink = filesystem.open_output_stream(name, compression=None)
        return sink
    return io.new_output(path).create(overwrite=False)


def open_stored(io: FileIO, path: str) -> pa.NativeFile:
    """A written file again, for reading."""
    if isinstance(io, PyArrowFileIO):
        filesystem, name = locate(io, path)
        return filesystem.open_input_file(name)
    file = io.new_input(path).open(seekable=True)
    return file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="r")


def stored_bytes(io: FileIO, path: str) -> int | None:
    """What the storage says is a file's size; None if it has no such file."""
    if isinstance(io, PyArrowFileIO):
        filesystem, name = locate(io, path)
        size: int | None = filesystem.get_file_info(name).size
        return size
    file = io.new_input(path)
    return len(file) if file.exists() else None


def delete_exactly(io: FileIO, path: str) -> None:
    """Delete one file; a file that is not there is as good as deleted."""
    try:
        if isinstance(io, PyArrowFileIO):
            filesystem, name = locate(io, path)
            filesystem.delete_file(name)
        else:
            io.delete(path)
    except FileNotFoundError:
        return


def list_folder(io: FileIO, folder: str, *, recursive: bool) -> Iterator[str]:
    """Full paths of the files in a folder, in the folder's own spelling; none where the storage cannot list."""
    if not isinstance(io, PyArrowFileIO):
        return
    filesystem, name = locate(io, folder)
    selector = pafs.FileSelector(name, allow_not_found=True, recursive=recursive)
    for info in filesystem.get_file_info(selector):
        if info.type == pafs.FileType.File:
            yield folder.rstrip("/") + "/" + info.path[len(name.rstrip("/")) + 1 :]

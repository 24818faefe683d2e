"""Opens input files by their exact path; errors name the file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from iceberg_compact_sql.rewrite.scan.read_ahead import SMALL_FILE_BYTES, read_ahead
from iceberg_compact_sql.storage.stores import stores_of


class InputFileError(Exception):
    """A file cannot be read under the table's schema: corrupt, truncated, missing, encrypted, or of another schema."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self.reason}"


class ProjectionError(ValueError):
    """A file's columns cannot be read under the table's schema; the text says which column and why."""


def open_input(io: FileIO, path: str, size_bytes: int) -> pa.NativeFile:
    """Open a random-access file at exactly `path`; raise `InputFileError` if it is missing or unreadable.

    `size_bytes` is the size that the manifest gives: a small file on a remote store is read with one request.

    pyiceberg parses locations as URLs and so cuts them at `#` and `?`, which are legal in object names: reading by
    its own `new_input` could open another object. Here the text after the authority is taken as it is.
    """
    with input_errors(path):
        ahead = read_ahead()
        content = ahead.take(path) if ahead is not None else None
        if content is None and size_bytes <= SMALL_FILE_BYTES:
            content = stores_of(io).read_small(path, SMALL_FILE_BYTES)
        return stores_of(io).open_input(path) if content is None else pa.BufferReader(content)


@contextlib.contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Turn errors of reading a file into an `InputFileError` that names it."""
    try:
        yield
    except InputFileError:
        raise
    except FileNotFoundError:
        raise InputFileError(path, "the file does not exist") from None
    except (pa.ArrowException, OSError, ValueError, KeyError, EOFError, IndexError) as error:
        raise InputFileError(path, _reason(error)) from error


def _reason(error: Any) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    if "decrypt" in text.lower() or "encrypt" in text.lower():
        return "the file is encrypted, which is not supported"
    return text[:500]


def open_parquet(file: pa.NativeFile, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file; pages with a CRC, as Java's writers add them, are checked.

    INT96 times are read as microseconds, which no date of theirs can overflow.
    """
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True, **options)

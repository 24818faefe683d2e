"""Opening input files by their exact path, and the one error that names a file that cannot be read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO

from iceberg_compact_sql.storage.exact_files import open_stored


class InputFileError(Exception):
    """A file cannot be read as the table says: corrupt, truncated, missing, encrypted, or of a foreign schema."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read {self.path}: {self.reason}"


class ProjectionError(ValueError):
    """A file's columns cannot be read under the table's schema; the text says which column and why."""


def open_input(io: FileIO, path: str) -> pa.NativeFile:
    """A random-access file at exactly `path`; missing or unreadable files raise `InputFileError`.

    pyiceberg parses locations as URLs and so cuts them at `#` and `?`, which are legal in object names: reading by
    its own `new_input` could open another object. Here the text after the authority is taken as it is.
    """
    with naming_file(path):
        return open_stored(io, path)


@contextlib.contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Turn what goes wrong while a file is read into an `InputFileError` that names it."""
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
    """A Parquet file whose pages are checked by their CRC where they have one, as Java's writers give them.

    INT96 times are read as microseconds, which no date of theirs can overflow.
    """
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us", page_checksum_verification=True, **options)

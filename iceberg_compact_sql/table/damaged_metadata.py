"""Errors of damaged metadata files."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

from zstandard import ZstdError

from iceberg_compact_sql.errors import IcebergCompactError

# What pyiceberg and the codecs raise for damaged bytes. Errors of the storage are not among them.
_DAMAGE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    SystemError,
    TypeError,
    ValueError,
    zlib.error,
    ZstdError,
)


@contextlib.contextmanager
def stop_if_damaged(what: str, path: str) -> Iterator[None]:
    """Stop the run with a clear error when a metadata file is damaged: files that it lists must not look removed."""
    try:
        yield
    except _DAMAGE as error:
        raise IcebergCompactError(
            f"{what} {path} cannot be read: {error}",
            hint="Nothing was changed. Check the file in the object store against a replica or an older snapshot.",
        ) from error

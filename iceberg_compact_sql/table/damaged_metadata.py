"""Metadata files whose bytes are not what they should be."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

from zstandard import ZstdError

from iceberg_compact_sql.errors import IcebergCompactError

# What pyiceberg and the codecs raise for bytes that are not what they should be; errors of the storage are not in it.
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
def readable(what: str, path: str) -> Iterator[None]:
    """A metadata file that is damaged ends the run: what it lists must not look as if it were not there."""
    try:
        yield
    except _DAMAGE as error:
        raise IcebergCompactError(
            f"{what} {path} cannot be read: {error}",
            hint="Nothing was changed. Check the file in the object store against a replica or an older snapshot.",
        ) from error

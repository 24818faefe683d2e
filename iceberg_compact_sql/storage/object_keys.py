"""Checks which object keys pyarrow and fsspec address exactly."""

from __future__ import annotations

from collections.abc import Container

from iceberg_compact_sql.errors import UnsupportedError
from iceberg_compact_sql.storage.locations import split_location

# File systems with real folders: they resolve `//`, `.` and `..` in the same way for all programs.
_WITH_FOLDERS = frozenset({"file", "hdfs", "viewfs"})
EMPTY_AND_DOTS = frozenset({"", ".", ".."})


def has_plain_components(key: str, refused: Container[str] = EMPTY_AND_DOTS) -> bool:
    """Whether no component of an object key is one that clients drop, resolve or refuse.

    >>> [has_plain_components(key) for key in ("a/b#c", "a//b", "/a", "a/", "a/./b", "..")]
    [True, False, False, False, False, False]
    """
    return not any(component in refused for component in key.split("/"))


def require_plain_components(path: str, *, library: str, refused: Container[str] = EMPTY_AND_DOTS) -> None:
    """Raise UnsupportedError for a key that a library would refuse, or confuse with another key."""
    location = split_location(path)
    key = location.key
    if location.scheme in _WITH_FOLDERS or not key:
        return
    if not has_plain_components(key, refused) or key.endswith("/"):
        raise UnsupportedError(
            f"the object key {key!r} has an empty, '.' or '..' component, which {library} cannot address on"
            f" {location.scheme}://",
            value=path,
            hint="Copy the table to a location without such components. On S3 boto3 can address them.",
        )
